"""The run loop without Spark: in which order it rests, closes windows and ends, with a query that is only acted."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from pyspark.sql.streaming.listener import QueryTerminatedEvent
from pyspark.sql.types import StructType

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_api.model.plan import Plan
from millrace_api.model.streamquery import StreamQuery
from millrace_api.sql.parsed_query import parsed_query
from millrace_jobs.plan.plan_source import FixedPlan
from millrace_jobs.process import jvm
from millrace_jobs.queries.execution import CompiledQuery
from millrace_jobs.queries.native.native import Native
from millrace_jobs.run import loop as run_module
from millrace_jobs.run.assembly import RunEnvironment, RunInputs, RunQuery
from millrace_jobs.run.end_of_input import EndOfInput
from millrace_jobs.run.loop import RunLoop
from millrace_jobs.sinks.base import LastBatch

DOCUMENT = {
    "apiVersion": "millrace.io/v1alpha1",
    "kind": "StreamQuery",
    "metadata": {"name": "fares"},
    "spec": {
        "sources": {
            "trips": {
                "files": {"path": "data/*.csv", "format": "csv"},
                "schema": "at TIMESTAMP, fare DOUBLE",
                "watermark": {"column": "at", "delay": "10m"},
            }
        },
        "query": {"sql": "SELECT count(*) FROM trips GROUP BY window(at, '1 minute')"},
        "sink": {"files": {"path": "out", "format": "csv"}},
        "emit": "OnWindowClose",
    },
}


class Checkpoint:
    """What the run loop asks of one."""

    def __init__(self, folder):
        self.root, self.policies = folder, folder / "policies"
        self.lost = None

    def committed_offsets(self):
        return []

    def last_batch(self):
        return LastBatch(None, None)

    def unfinished_pin(self):
        return None

    def damaged_state(self, _):
        return MillraceError(Problem("the checkpoint is damaged", ""))


class Watcher:
    def __init__(self):
        self.messages = []

    def batch(self, report):
        pass

    def message(self, text):
        self.messages.append(text)

    def idle(self, pin):
        pass


class Query:
    """Spark's, which is idle until it is stopped."""

    def __init__(self, run, log):
        self.status = {"isTriggerActive": False}
        self.runId = None
        self._run = run
        self._log = log

    def stop(self):
        self._log.append("stopped")
        self._run._events.put(QueryTerminatedEvent(None, None, None, None))


@pytest.fixture
def log():
    return []


@pytest.fixture
def run(tmp_path, monkeypatch, log):
    monkeypatch.setattr(jvm, "is_running", lambda: True)
    monkeypatch.setattr(run_module.Listener, "register", lambda *_: lambda: log.append("deaf"))
    monkeypatch.setattr(run_module, "POLL_SECONDS", 0.01)
    compiled = CompiledQuery(Native(parsed_query("SELECT 1"), ""), StructType(), aggregates=True)
    made = RunLoop(
        RunQuery("fares", StreamQuery.model_validate(DOCUMENT).spec, compiled, sink=None),
        RunInputs({"trips": SimpleNamespace(exhausted=lambda _: True)}),
        RunEnvironment(None, Checkpoint(tmp_path), tmp_path),
        plans=FixedPlan(Plan.model_validate({"epoch": 1, "algorithm": "hash", "parallelism": 1, "replicas": 1})),
        watcher=Watcher(),
    )
    tell = made._steering.instruct_sources

    def instructed(*, draining, closing_time):
        log.append("drain" if draining else "go on")
        tell(draining=draining, closing_time=closing_time)

    monkeypatch.setattr(made._steering, "instruct_sources", instructed)
    monkeypatch.setattr(made, "_start", lambda *_, **__: Query(made, log))
    return made


@pytest.fixture
def streams(run, monkeypatch):
    """Streams end as this list says; returns it, and with which closing times they were begun."""
    outcomes, begun = [], []

    def stream(closing_time):
        begun.append(closing_time)
        outcome = outcomes.pop(0)
        return outcome() if callable(outcome) else outcome

    monkeypatch.setattr(run, "_stream", stream)
    return outcomes, begun


def test_the_sources_are_drained_before_the_query_is_stopped(run, log):
    run._steering.follow_plan()
    run.drain()
    assert run._stream(None)
    assert log[:3] == ["go on", "drain", "stopped"]


def test_a_query_is_accepted_once_and_only_where_spark_starts_it(run, monkeypatch):
    instructed, start = [], run._start

    def refuse(*_, **__):
        raise MillraceError(Problem("Sorting is not supported", ""))

    run.accepted = lambda: instructed.append("accepted")
    run._steering.follow_plan()
    monkeypatch.setattr(run, "_start", refuse)
    with pytest.raises(MillraceError, match="Sorting"):
        run._stream(None)
    assert (instructed, run.is_accepted) == ([], False)
    monkeypatch.setattr(run, "_start", start)
    run.drain()
    run._stream(None)
    run._stream(None)
    assert (instructed, run.is_accepted) == (["accepted"], True)


def test_a_plan_that_returns_to_the_old_mode_while_the_query_stops_is_not_the_end(run, log, monkeypatch):
    run._steering.follow_plan()
    monkeypatch.setattr(run, "_matches_plan", lambda _: "go on" not in log or "stopped" in log)
    assert not run._stream(None)
    assert "stopped" in log


def test_a_query_stops_for_a_copy_of_its_state_and_goes_on(run, log, monkeypatch):
    switch = SimpleNamespace(is_requested=lambda: "switched" not in log)
    switch.switch = lambda _: log.append("switched") or "state partitions: 2 -> 8"
    sink = SimpleNamespace(prepare=lambda last: log.append(last))
    monkeypatch.setattr(run, "_switch", switch)
    monkeypatch.setattr(run, "query", replace(run.query, sink=sink))
    run._steering.follow_plan()
    assert not run._stream(None)
    assert [each for each in log if each != "drain"] == ["go on", "stopped", "switched", LastBatch(None, None)]
    assert log.index("drain") < log.index("stopped")
    assert run.watcher.messages[-1] == "state partitions: 2 -> 8"


@pytest.fixture
def closing_times(monkeypatch):
    """The event times that close the input, one for each round; the input is closed after the last."""
    times = []
    monkeypatch.setattr(EndOfInput, "closing_time", lambda *_: times.pop(0) if times else None)
    return times


def test_windows_are_closed_by_a_new_query_where_the_plan_changed_the_mode_of_the_first(run, streams, closing_times):
    outcomes, begun = streams
    outcomes += [False, True, False, True]
    closing_times += [7_000, 7_000]
    assert run.run() == "finished"
    assert begun == [None, None, 7_000, 7_000]


def test_input_is_closed_in_as_many_rounds_as_operators_need(run, streams, closing_times):
    outcomes, begun = streams
    outcomes += [True, True, True]
    closing_times += [7_000, 9_000]
    assert run.run() == "finished"
    assert begun == [None, 7_000, 9_000]


def test_windows_are_left_open_on_request(run, streams, closing_times):
    outcomes, begun = streams
    outcomes += [True]
    closing_times += [7_000]
    run.leaves_open = True
    assert run.run() == "finished"
    assert begun == [None]


def test_who_is_asked_to_end_while_windows_are_closed_does_not_say_that_it_has_finished(run, streams, closing_times):
    outcomes, begun = streams
    outcomes += [True, lambda: run.drain() or False]
    closing_times += [7_000, 9_000]
    assert run.run() == "drained"
    assert begun == [None, 7_000]


def failing(run):
    run.drain("another version takes over", hands_over=True)
    raise TransientError(Problem("Kafka cannot be reached", ""))


def test_a_run_that_hands_over_has_drained_although_its_last_batch_failed(run, streams, closing_times):
    outcomes, begun = streams
    outcomes += [lambda: failing(run)]
    closing_times += [7_000]
    assert run.run() == "drained"
    assert begun == [None]
    assert run.watcher.messages == ["handing over after a failure: Kafka cannot be reached"]


def test_a_run_that_hands_over_fails_as_before_once_it_is_asked_to_end(run, streams):
    def stopped():
        run.drain()
        raise TransientError(Problem("Kafka cannot be reached", ""))

    outcomes, _ = streams
    run._why_drained, run._hands_over = "another version takes over", True
    outcomes += [stopped]
    with pytest.raises(TransientError):
        run.run()


def test_a_run_that_does_not_start_again_ends_with_its_first_failure(run, streams):
    def fails():
        raise TransientError(Problem("Kafka cannot be reached", "see whether it runs"))

    outcomes, begun = streams
    run.starts_again = False
    outcomes += [fails]
    with pytest.raises(TransientError, match="Kafka cannot be reached"):
        run.run()
    assert (begun, run.restarts) == ([None], 0)


def test_an_unexpected_error_stops_the_query_before_anything_is_closed(run, log):
    run._events.put({"no": "progress of a batch"})
    with pytest.raises(KeyError):
        run.run()
    assert log == ["go on", "stopped", "deaf"]


def test_a_lost_lease_stops_the_query(run, log):
    run.environment.checkpoint.lost = MillraceError(Problem("this driver ends", ""))
    with pytest.raises(MillraceError, match="this driver ends"):
        run.run()
    assert log == ["go on", "stopped", "deaf"]


def test_a_cause_that_is_known_comes_before_what_it_did_to_the_state(run):
    said = "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state.\nCaused by: java.io."
    assert "a disk is full" in str(run._explained(f"{said}IOException: No space left on device"))
    assert "the checkpoint is damaged" in str(run._explained(f"{said}EOFException: Stream ended prematurely"))
