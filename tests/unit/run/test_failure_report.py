"""What a run says of its failure to whoever started it."""

import json

import pytest

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.status import REPORT_VARIABLE
from millrace_jobs import sinks, sources
from millrace_jobs.run.failures import class_of, class_of_text, write_report

OURS = {
    "source": f"{sources.__path__[0]}/kafka_reading.py",
    "sink": f"{sinks.__path__[0]}/kafka/sink.py",
    "files": f"{sinks.__path__[0]}/files.py",
}
NO_SPACE = "java.io.IOException: No space left on device"
STATE = "\n\tat org.apache.spark.sql.execution.streaming.state.RocksDB.commit(RocksDB.scala:1)"


def traceback(*files):
    frames = "".join(f'  File "{file}", line 7, in something\n    action()\n' for file in files)
    return f"Traceback (most recent call last):\n{frames}ValueError: no"


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        (traceback("/usr/lib/user_code.py", OURS["source"]), "SourceFailed"),
        (traceback(OURS["sink"]), "SinkFailed"),
        (traceback(OURS["source"], "/home/me/aggregators.py"), "UserCodeFailed"),
        (traceback(json.__file__), "DriverFailed"),
        ("java.lang.OutOfMemoryError: Java heap space", "OutOfMemory"),
        ("[CANNOT_LOAD_STATE_STORE.X] An error occurred", "StateUnusable"),
        (
            traceback(OURS["source"]) + "millrace_api.errors.MissingInputError: Kafka at k has no topic t",
            "SourceMissing",
        ),
        ("[CANNOT_COMMIT_STATE_STORE.X] " + NO_SPACE, "DiskFull"),
        (traceback(OURS["source"]) + NO_SPACE, "DiskFull"),
        (traceback(OURS["sink"]) + NO_SPACE, "DiskFull"),
        (traceback(OURS["files"]) + NO_SPACE, "SinkFailed"),
        (traceback(OURS["files"]) + NO_SPACE + STATE, "DiskFull"),
        ("something else", "DriverFailed"),
    ],
)
def test_a_traceback_tells_whose_failure_it_was(text, failure):
    assert class_of_text(text) == failure


@pytest.mark.parametrize(
    ("field", "failure"),
    [
        ("spec.sources.trips.kafka.topic", "SourceFailed"),
        ("spec.sink.kafka", "SinkFailed"),
        ("spec.sink", "SinkFailed"),
        ("spec.checkpoint", "StateUnusable"),
        ("spec.query.sql", "InvalidConfiguration"),
        ("", "DriverFailed"),
    ],
)
def test_the_field_of_a_problem_decides_whose_failure_it_was(field, failure):
    assert class_of(MillraceError(Problem("no", field=field))) == failure


def test_a_checkpoint_that_cannot_be_written_for_want_of_space_is_not_unusable():
    problem = Problem("the lease cannot be written: [Errno 28] No space left on device", field="spec.checkpoint")
    assert class_of(MillraceError(problem)) == "DiskFull"


def test_a_class_given_by_the_raiser_comes_before_that_of_the_field():
    error = MillraceError(Problem("no", field="spec.checkpoint"))
    error.failure = class_of_text("")
    assert class_of(error) == "DriverFailed"
    assert class_of(ValueError("no")) == "DriverFailed"


def test_the_report_is_written_to_the_file_that_is_asked_for(tmp_path, monkeypatch):
    place = tmp_path / "termination-log"
    monkeypatch.delenv(REPORT_VARIABLE, raising=False)
    write_report(MillraceError("no"))
    monkeypatch.setenv(REPORT_VARIABLE, str(place))
    write_report(MillraceError(Problem("no such topic", "create it", field="spec.sources.trips")))
    assert json.loads(place.read_text()) == {
        "failure": "SourceFailed",
        "message": "spec.sources.trips: no such topic; create it",
    }
    write_report(MillraceError("x" * 10_000))
    assert 3000 < len(place.read_bytes()) <= 4096
    write_report(MillraceError('\n"\u00e9' * 5000))
    assert 2000 < len(place.read_bytes()) <= 4096
    assert json.loads(place.read_text())["failure"] == "DriverFailed"
    monkeypatch.setenv(REPORT_VARIABLE, str(tmp_path / "no" / "such" / "folder"))
    write_report(MillraceError("no"))
