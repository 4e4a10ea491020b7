"""Functions that write results: which ones a query can name, how they are called, and what is said of their errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from millrace_api.errors import MillraceError, TransientError
from millrace_jobs.own_code.sink_functions import SinkBatch, SinkFunction
from millrace_jobs.run.query_file import check_file
from millrace_jobs.sinks.base import ResultBatch
from millrace_jobs.sinks.python.connector import PythonSink

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

async def later(results: pa.Table, batch: SinkBatch) -> None:
    written.append(results)

def yields(results: pa.Table, batch: SinkBatch) -> None:
    yield written.append(results)

async def yields_later(results: pa.Table, batch: SinkBatch) -> None:
    yield written.append(results)

def forgets(results: pa.Table, batch: SinkBatch) -> None:
    return later(results, batch)

def forgets_rows(results: pa.Table, batch: SinkBatch) -> None:
    return (written.append(row) for row in results.to_pylist())

def first(results: pa.RecordBatchReader, batch: SinkBatch) -> None:
    written.append(results.read_next_batch().to_pylist())

def skips(results: pa.RecordBatchReader, batch: SinkBatch) -> None:
    pass

def all_of(results: pa.RecordBatchReader, batch: SinkBatch) -> None:
    written.extend(batch.to_pylist() for batch in results)

def swallows(results: pa.RecordBatchReader, batch: SinkBatch) -> None:
    try:
        all_of(results, batch)
    except Exception:
        pass
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
        ("absent", {}, "spec.sink.python.write: module 'sinks_in_tests' has no Python function 'absent'; write one of its functions: all_of, ends, fails, first, forgets"),
        ("write", {"topics": "a"}, "spec.sink.python.options: 'sinks_in_tests:write' cannot be called with these options: got an unexpected keyword argument 'topics'; correct the options, or the function, which takes topic, retries"),
        ("stream", {"topic": "a"}, "spec.sink.python.options: 'sinks_in_tests:stream' cannot be called with these options: got an unexpected keyword argument 'topic'; correct the options, or the function, which takes none"),
        ("fails", {}, "spec.sink.python.write: the function sinks_in_tests:fails failed on batch 7: ValueError: no such alert (sinks_in_tests.py, line 21); correct it, then run the same command again: nothing is lost"),
        ("later", {}, "spec.sink.python.write: 'sinks_in_tests:later' is an async function, whose call runs nothing; write it with def"),
        ("yields", {}, "spec.sink.python.write: 'sinks_in_tests:yields' is a generator function, whose call runs nothing; write it with def"),
        ("yields_later", {}, "spec.sink.python.write: 'sinks_in_tests:yields_later' is an async function, whose call runs nothing"),
        ("forgets", {}, "spec.sink.python.write: the function sinks_in_tests:forgets returned a coroutine for batch 7, which has not run; run it within"),
        ("forgets_rows", {}, "spec.sink.python.write: the function sinks_in_tests:forgets_rows returned a generator for batch 7, which has not run"),
        ("ends", {}, "spec.sink.python.write: the function sinks_in_tests:ends failed on batch 7: SystemExit: 3 (sinks_in_tests.py, line 27); correct it"),
    ],
)  # fmt: skip
def test_what_cannot_be_called_or_fails_is_named(name: str, options: dict[str, Any], said: str) -> None:
    assert refusal(name, **options).startswith(said)


class Fetched:
    """Fetches given tables, as ``ResultFetcher`` does by Spark, and then fails with the last of them if it is one."""

    def __init__(self, *given: pa.Table | Exception) -> None:
        self._given = given

    @contextmanager
    def fetched(self, results: object, *, may_be_any: bool) -> Iterator[Iterator[pa.Table]]:
        def tables() -> Iterator[pa.Table]:
            for each in self._given:
                if isinstance(each, Exception):
                    raise each
                yield pa.table({"value": each.to_struct_array()})

        yield tables()


def written_by(name: str, *given: pa.Table | Exception, monkeypatch: pytest.MonkeyPatch) -> int:
    sink = PythonSink(function(name), "q", "a-checkpoint", jumps=True)
    monkeypatch.setattr(sink, "_fetcher", Fetched(*given))
    nothing: Any = None
    return sink.write(nothing, ResultBatch(4, 1, 0))


def test_a_batch_of_which_a_function_leaves_rows_unread_is_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert written_by("all_of", RESULTS, RESULTS, monkeypatch=monkeypatch) == 4
    assert written_by("first", RESULTS, monkeypatch=monkeypatch) == 2
    with pytest.raises(
        MillraceError, match=r"sinks_in_tests:first returned with 3 rows of batch 4 unread; read the reader to its end"
    ):
        written_by("first", RESULTS, RESULTS, RESULTS[:1], monkeypatch=monkeypatch)
    written_by("skips", RESULTS, RESULTS, monkeypatch=monkeypatch)  # as after a crash, of a batch that is written


@pytest.mark.parametrize("name", ["all_of", "swallows"])
def test_an_error_in_reading_ends_the_batch_whatever_the_function_does(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OSError, match="lost"):
        written_by(name, RESULTS, OSError("lost"), monkeypatch=monkeypatch)


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
