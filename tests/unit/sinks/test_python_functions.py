"""Functions that write results: which ones a query can name, how they are called, and what is said of their errors."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from millrace_api.errors import MillraceError, TransientError
from millrace_jobs.own_code.sink_functions import SinkBatch, SinkFunction
from millrace_jobs.run.query_file import check_file

MODULE = """
from __future__ import annotations
import pyarrow as pa
from millrace import SinkBatch

written = []

def write(results: pa.Table, batch: SinkBatch, *, topic: str = "all", retries: int = 3) -> None:
    written.append((results.to_pylist(), batch, topic))

def stream(results: pa.RecordBatchReader, batch: SinkBatch) -> None:
    written.append((results.read_all().to_pylist(), batch, ""))

def bare(results, batch):
    pass

def swapped(batch: SinkBatch, results: pa.Table) -> None:
    pass

def fails(results: pa.Table, batch: SinkBatch) -> None:
    raise ValueError("no such\\nalert")

def unreachable(results: pa.Table, batch: SinkBatch) -> None:
    raise ConnectionError("refused")

def ends(results: pa.Table, batch: SinkBatch) -> None:
    raise SystemExit(3)
"""
BATCH = SinkBatch(7, "a-checkpoint", "alerts", datetime(2026, 1, 1, tzinfo=UTC))
RESULTS = pa.table({"n": [1, 2]})


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sinks_in_tests.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "sinks_in_tests", raising=False)


def function(name: str, **options: Any) -> SinkFunction:
    return SinkFunction(f"sinks_in_tests:{name}", options)


def refusal(name: str, **options: Any) -> str:
    with pytest.raises(MillraceError) as caught:
        function(name, **options)(RESULTS, BATCH)
    return str(caught.value)


def test_a_function_gets_the_results_the_batch_and_the_options() -> None:
    function("write", topic="late")(RESULTS, BATCH)
    function("stream")(pa.RecordBatchReader.from_batches(RESULTS.schema, RESULTS.to_batches()), BATCH)
    import sinks_in_tests

    rows = [{"n": 1}, {"n": 2}]
    assert sinks_in_tests.written == [(rows, BATCH, "late"), (rows, BATCH, "")]
    assert (function("write").takes_table, function("stream").takes_table) == (True, False)


def test_the_key_of_a_batch_differs_by_number_checkpoint_and_output() -> None:
    keys = {SinkBatch(*each, "q").key for each in ((1, "a"), (2, "a"), (1, "b"), (1, "a-final"))}
    assert len(keys) == 4


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("bare", {}, "spec.sink.python.write: 'sinks_in_tests:bare' is not annotated as a function that writes results; annotate its first parameter as pa.Table or pa.RecordBatchReader, and its second one as millrace.SinkBatch, as in def write(results: pa.Table, batch: millrace.SinkBatch) -> None"),
        ("swapped", {}, "spec.sink.python.write: 'sinks_in_tests:swapped' is not annotated as a function that writes results; annotate its first"),
        ("absent", {}, "spec.sink.python.write: module 'sinks_in_tests' has no Python function 'absent'; write one of its functions: ends, fails, stream, unreachable, write"),
        ("write", {"topics": "a"}, "spec.sink.python.options: 'sinks_in_tests:write' cannot be called with these options: got an unexpected keyword argument 'topics'; correct the options, or the function, which takes topic, retries"),
        ("stream", {"topic": "a"}, "spec.sink.python.options: 'sinks_in_tests:stream' cannot be called with these options: got an unexpected keyword argument 'topic'; correct the options, or the function, which takes none"),
        ("fails", {}, "spec.sink.python.write: the function sinks_in_tests:fails failed on batch 7: ValueError: no such alert (sinks_in_tests.py, line 21); correct it, then run the same command again: nothing is lost"),
        ("ends", {}, "spec.sink.python.write: the function sinks_in_tests:ends failed on batch 7: SystemExit: 3 (sinks_in_tests.py, line 27); correct it"),
    ],
)  # fmt: skip
def test_what_cannot_be_called_or_fails_is_named(name: str, options: dict[str, Any], said: str) -> None:
    assert refusal(name, **options).startswith(said)


def test_a_failed_connection_may_pass() -> None:
    with pytest.raises(
        TransientError, match=r"ConnectionError: refused \(sinks_in_tests\.py, line 24\); check what it"
    ):
        function("unreachable")(RESULTS, BATCH)


def test_validate_loads_the_functions_of_all_outputs(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("at,n\n2026-01-01T00:00:00Z,1\n")
    source: dict[str, Any] = {
        "files": {"path": str(tmp_path / "in.csv"), "format": "csv"},
        "schema": "at TIMESTAMP, n INT",
    }
    source["watermark"] = {"column": "at", "delay": "1s"}
    spec = {
        "sources": {"r": source},
        "query": {"sql": "SELECT window.start AS since, count(*) AS n FROM r GROUP BY window(at, '1 minute')"},
        "sink": {"python": {"write": "sinks_in_tests:write", "options": {"topic": "a"}}},
        "additionalOutputs": {"final": {"emit": "OnWindowClose", "sink": {"python": {"write": "sinks_in_tests:bare"}}}},
    }
    head = {"apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery", "metadata": {"name": "q"}}
    file = tmp_path / "query.yaml"
    file.write_text(yaml.safe_dump(head | {"spec": spec}))
    (problem,) = check_file(file)
    assert problem.field == "spec.additionalOutputs.final.sink.python.write"
    assert problem.message == "'sinks_in_tests:bare' is not annotated as a function that writes results"
