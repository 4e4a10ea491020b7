"""When a run sends events, and what they have of a failure."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from lineage_receiver import check_event
from millrace_api.errors import MillraceError, Problem
from millrace_api.validation.loading import read_query
from millrace_jobs.run.reports import RunReports
from millrace_jobs.run.run_lineage import RunLineage
from unit.fields.documents import KAFKA, SQL, query

RESULTS = StructType().add("window", StructType().add("start", "timestamp").add("end", "timestamp")).add("k", "long")
SOURCES = {"trips": SimpleNamespace(schema=pa.schema([("city", pa.string())]))}


class Clock:
    """A clock that a test sets, in seconds."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def asked(tmp_path):
    """A query whose events go to a file."""
    return read_query(query(KAFKA, query={"sql": SQL}, lineage={"file": str(tmp_path / "events"), "interval": "1m"}))


def sent(tmp_path):
    events = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    for each in events:
        check_event(each)
    return events


def test_an_event_between_start_and_end_is_sent_once_in_an_interval(asked, tmp_path):
    clock, progress = Clock(), SimpleNamespace(positions={}, results=0)
    run = RunLineage(asked, asked.spec.lineage, print, clock)
    run.started(asked.spec, SOURCES, RESULTS, progress)
    for second in range(0, 150, 10):
        clock.now = second
        progress.results += 2
        while run.sender.is_behind:
            pass
        run.batch(10)
    run.ended("drained", None)
    run.sender.close()
    events = sent(tmp_path)
    assert [each["eventType"] for each in events] == ["START", "RUNNING", "RUNNING", "ABORT"]
    rows = [each["inputs"][0].get("inputFacets", {}).get("inputStatistics", {}).get("rowCount") for each in events]
    assert rows == [None, 70, 130, 150]
    assert events[-1]["inputs"][0]["name"] == "trips"
    assert events[-1]["outputs"] == []


def test_a_failure_has_class_and_field_and_not_the_words_that_may_quote_a_record(asked, tmp_path):
    run = RunLineage(asked, asked.spec.lineage, print)
    run.started(asked.spec, SOURCES, RESULTS, SimpleNamespace(positions={}, results=0))
    run.ended("failed", MillraceError(Problem('"4711-secret" is no number', "write one", field="spec.sources.trips")))
    run.sender.close()
    message = sent(tmp_path)[-1]["run"]["facets"]["errorMessage"]["message"]
    assert message == "SourceFailed: spec.sources.trips"


def test_a_run_that_never_started_sends_nothing(asked, tmp_path):
    run = RunLineage(asked, asked.spec.lineage, print)
    run.ended("failed", ValueError("x"))
    run.sender.close()
    assert not (tmp_path / "events").exists()


def test_a_fault_in_an_event_ends_no_run_and_is_said_once(asked):
    said: list[str] = []
    reports = RunReports(asked, "checkpoint", said.append)
    for _ in range(2):
        reports.started(asked.spec, {"trips": None}, RESULTS, None)  # type: ignore[arg-type, dict-item]
    reports.close()
    assert len(said) == 1
    assert said[0].startswith("lineage: an event could not be made, and the query goes on: AttributeError(")
    assert set(reports.counts) == {"millrace_lineage_events_total", "millrace_lineage_dropped_events_total"}


def test_a_query_without_reports_does_nothing():
    reports = RunReports(read_query(query(KAFKA)), "checkpoint", print)
    reports.spark_started(None)  # type: ignore[arg-type]
    reports.batch(1)
    reports.ended("finished")
    reports.close()
    assert reports.counts == {}
