"""Records without a key or an event time: which columns they need, how many they are, and what is said of them."""

import pyarrow as pa
import pytest

from builders import a_query
from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.pipeline.incomplete import incomplete, required_columns, why_incomplete

FILES = {"path": "in", "format": "csv"}
TIMED = {"files": FILES, "schema": "at TIMESTAMP, who STRING, n INT", "watermark": {"column": "At", "delay": "10s"}}
SOURCES = {
    "events": TIMED,
    "prices": TIMED | {"table": {"keys": ["who", "n"]}},
    "towns": {"files": FILES, "schema": "who STRING, town STRING", "table": {"keys": ["who"], "static": True}},
}


def spec(sql, emit="OnUpdate"):
    document = {
        "apiVersion": "millrace.io/v1alpha1",
        "kind": "StreamQuery",
        "metadata": {"name": "q"},
        "spec": {"sources": SOURCES, "query": {"sql": sql}, "sink": {"console": {}}, "emit": emit},
    }
    return StreamQuery.model_validate(document).spec


WINDOWS = spec("SELECT count(*) AS n FROM events e JOIN prices p ON p.who = e.who GROUP BY window(e.at, '1 hour')")
GROUPS = "SELECT ts, who, count(*) AS n FROM (SELECT e.at AS ts, e.who FROM events e) GROUP BY {} who"
RECORDS = spec("SELECT e.at, p.n FROM events e JOIN prices p ON p.who = e.who")


@pytest.mark.parametrize(
    ("spec", "source", "columns"),
    [
        (WINDOWS, "events", ("at",)),
        (WINDOWS, "prices", ("who", "n", "At")),
        (WINDOWS, "towns", ("who",)),
        (RECORDS, "events", ()),
        (spec(GROUPS.format("ts,"), "OnWindowClose"), "events", ("at",)),
        (spec(GROUPS.format("1,"), "OnWindowClose"), "events", ("at",)),
        (spec(GROUPS.format("ts,")), "events", ()),
        (spec("SELECT count(*) AS n FROM events GROUP BY who, at + INTERVAL 1 HOUR", "OnWindowClose"), "events", ()),
        (RECORDS, "prices", ("who", "n", "At")),
    ],
)
def test_tables_need_their_key_and_time_and_windows_their_time(spec, source, columns):
    assert required_columns(spec, source) == columns


@pytest.mark.parametrize(("required", "count"), [([], 0), ([0], 1), ([1], 2), ([0, 1], 2), ([0, 2], 2), ([0, 1, 2], 3)])
def test_a_record_counts_once(required, count):
    batch = pa.record_batch({"a": [None, 1, 2, 3], "b": [None, None, 2, 3], "c": [1, 2, None, 3]})
    assert incomplete(batch, required) == count


def test_what_is_said_names_the_columns():
    assert why_incomplete(3, WINDOWS) == (
        "incomplete=3: these records are in no result: those of source events without a value in at are in no window or "
        "group that closes; "
        "those of source prices without a value in who or n or At are no rows of its table"
    )
    python = a_query("spec", "query", value={"python": {"aggregator": "a:B", "groupBy": ["cell"]}}).spec
    assert required_columns(python, "trips") == ()
