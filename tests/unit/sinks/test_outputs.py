"""The sinks of several outputs: what each is told, and which field its errors name."""

import pytest

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_api.model.status import FailureClass
from millrace_jobs.changes import WEIGHT
from millrace_jobs.sinks.base import LastBatch, Sink
from millrace_jobs.sinks.outputs import Output, OutputSinks, errors_of


class RecordingSink(Sink):
    def __init__(self, name, error=None):
        self._name = name
        self.done = []
        self._error = error

    @property
    def place(self):
        return self._name

    def prepare(self, last):
        self.done.append(last)
        if self._error is not None:
            raise self._error

    def close(self):
        self.done.append("closed")
        if self._error is not None:
            raise self._error


def outputs_of(*sinks):
    fields = ("spec", "spec.additionalOutputs.final")
    return OutputSinks([Output(*each) for each in zip(sinks, ((WEIGHT,), ()), fields, strict=True)])


def test_only_the_first_sink_may_have_been_another_one_before():
    first, second = RecordingSink("topic a"), RecordingSink("topic b")
    outputs = outputs_of(first, second)
    outputs.prepare(LastBatch(7, 6, elsewhere=True))
    assert outputs.place == "topic a and topic b"
    assert first.done == [LastBatch(7, 6, elsewhere=True)]
    assert second.done == [LastBatch(7, 6)]


def test_all_sinks_are_closed_even_if_one_of_them_fails():
    first, second = RecordingSink("a"), RecordingSink("b", RuntimeError("the broker has gone"))
    with pytest.raises(RuntimeError, match="the broker has gone"):
        outputs_of(first, second).close()
    assert (first.done, second.done) == (["closed"], ["closed"])


def test_errors_name_the_field_of_their_output():
    error = TransientError(Problem("no broker", "start it", field="spec.sink.kafka.topic"), Problem("else"))
    error.failure = FailureClass.SINK
    with pytest.raises(TransientError) as raised:
        outputs_of(RecordingSink("a"), RecordingSink("b", error)).prepare(LastBatch(None, None))
    assert str(raised.value) == "spec.additionalOutputs.final.sink.kafka.topic: no broker; start it\nelse"
    assert raised.value.failure is FailureClass.SINK


def test_errors_of_the_first_output_stay_as_they_are():
    error = MillraceError(Problem("no folder", field="spec.sink.files.path"))
    with pytest.raises(MillraceError) as raised, errors_of("spec"):
        raise error
    assert raised.value is error
