"""What passes by itself does not end a run: the query is started again from its checkpoint, and counts all once."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_jobs.run.failures import MAX_RESTARTS
from millrace_jobs.sinks.base import LastBatch, ResultBatch, Sink

from .answers import assert_same, duckdb_rows, latest
from .streams import Placing, Stream
from .tables import parquet, table_of

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("key", pa.string()), ("value", pa.int64())])
COLUMNS = "key STRING, value BIGINT"
SQL = "SELECT key, count(*) AS records, sum(value) AS total FROM events GROUP BY key"
EXPECTED = "SELECT key, count(*), sum(value) FROM events GROUP BY key"
SPREAD = {"options": {"column": "value"}, "groupBy": ["key"]}
PLACINGS: list[Placing] = [("hash", 2, 2), ("native", 2, 2), ("pkg", 4, 1)]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restarts follow at once."""
    monkeypatch.setattr("millrace_jobs.run.failures.Backoff.next", lambda _: 0.0)


@dataclass
class TroubledSink:
    """A sink that calls ``trouble`` when it has written a batch, or before."""

    inner: Sink
    trouble: Callable[[int], None]
    before: bool = False
    prepared: list[LastBatch] = field(default_factory=list)

    @property
    def place(self) -> str:
        return self.inner.place

    def prepare(self, last: LastBatch) -> None:
        self.prepared.append(last)
        self.inner.prepare(last)

    def shape(self, results: DataFrame) -> DataFrame:
        return self.inner.shape(results)

    def write(self, results: DataFrame, batch: ResultBatch) -> int:
        if self.before:
            self.trouble(batch.number)
        written = self.inner.write(results, batch)
        if not self.before:
            self.trouble(batch.number)
        return written

    def withdraw(self) -> None:
        self.inner.withdraw()

    def close(self) -> None:
        self.inner.close()


def troubled(stream: Stream, trouble: Callable[[int], None], *, before: bool = False) -> TroubledSink:
    return TroubledSink(stream.sink(), trouble, before)


def made(batches: int = 3, rows: int = 300) -> list[list[tuple[str, int]]]:
    chance = random.Random(batches)
    return [
        [(f"key {int(chance.paretovariate(0.8))}", chance.randrange(100)) for _ in range(rows)] for _ in range(batches)
    ]


def fed(stream: Stream, batches: list[list[tuple[str, int]]], sink: Sink | None = None) -> None:
    stream.feed([(PLACINGS[i], parquet(SCHEMA, batch)) for i, batch in enumerate(batches)], sink)


def assert_exact(stream: Stream, batches: list[list[tuple[str, int]]], expected: str = EXPECTED) -> None:
    everything = table_of(SCHEMA, [row for batch in batches for row in batch])
    assert_same(latest(stream.results(), 1), duckdb_rows(everything, expected), 1)


def kill_source_processes() -> None:
    """SIGKILL to the processes in which Spark plans the batches of this session's sources."""
    killed = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            grandparent = int(Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if b"python_streaming_source_runner" in command and os.getpid() in (parent, grandparent):
            os.kill(int(folder.name), signal.SIGKILL)
            killed += 1
    assert killed


def test_a_killed_source_process_costs_a_restart_and_no_record(spark, tmp_path):
    stream, batches = Stream(spark, tmp_path, schema=COLUMNS, sql=SQL), made()
    to_kill = [0, 1]

    def trouble(number: int) -> None:
        if number in to_kill:
            to_kill.remove(number)
            kill_source_processes()

    sink = troubled(stream, trouble)
    fed(stream, batches, sink)
    restarts = [message for message in stream.messages if "starting again" in message]
    assert len(restarts) == 2
    for said in restarts:
        assert said.startswith("starting again in 0 s (1 of 5): a Python process of Spark has died")
    assert sink.prepared[0] == LastBatch(None, None)
    assert len(sink.prepared) == 3
    assert_exact(stream, batches)


def test_a_killed_python_worker_costs_a_task_and_no_restart(spark, tmp_path):
    stream = Stream(spark, tmp_path, schema=COLUMNS, python=SPREAD | {"aggregator": "spark.aggregators:DyingOnce"})
    batches = made()
    fed(stream, batches)
    assert not [message for message in stream.messages if "starting again" in message]
    assert_exact(stream, batches, "SELECT key, max(value) - min(value), count(*) FROM events GROUP BY key")


@pytest.mark.parametrize("before", [True, False])
def test_a_sink_whose_server_is_away_for_a_while_gets_the_batch_again(spark, tmp_path, before):
    stream, batches = Stream(spark, tmp_path, schema=COLUMNS, sql=SQL), made()
    failures = [1, 1, 1, 2]

    def trouble(number: int) -> None:
        if number in failures:
            failures.remove(number)
            raise TransientError(Problem("Kafka at nowhere:9092 did not answer in time", "see whether it runs"))

    sink = troubled(stream, trouble, before=before)
    fed(stream, batches, sink)
    assert not failures
    assert [last.unfinished for last in sink.prepared] == [None, 1, 1, 1, 2]
    restarts = [message for message in stream.messages if "starting again" in message]
    counts = ["1 of 5", "2 of 5", "3 of 5", "1 of 5"]
    said = "Kafka at nowhere:9092 did not answer in time; see whether it runs"
    assert restarts == [f"starting again in 0 s ({count}): {said}" for count in counts]
    assert_exact(stream, batches)


def test_what_does_not_pass_ends_the_run_after_some_restarts_and_the_next_run_goes_on(spark, tmp_path):
    stream, batches = Stream(spark, tmp_path, schema=COLUMNS, sql=SQL), made()

    def trouble(number: int) -> None:
        if number == 1:
            raise TransientError(Problem("Kafka at nowhere:9092 cannot be reached", "see whether it runs"))

    sink = troubled(stream, trouble, before=True)
    with pytest.raises(MillraceError) as raised:
        fed(stream, batches[:2], sink)
    assert not isinstance(raised.value, TransientError)
    said = "Kafka at nowhere:9092 cannot be reached; see whether it runs"
    assert str(raised.value) == f"after 5 restarts without a finished batch: {said}"
    assert len(sink.prepared) == 1 + MAX_RESTARTS
    stream.feed([(PLACINGS[2], parquet(SCHEMA, batches[2]))])
    assert_exact(stream, batches)


def test_any_other_failure_ends_the_run_at_once(spark, tmp_path):
    stream, batches = Stream(spark, tmp_path, schema=COLUMNS, sql=SQL), made()

    def trouble(number: int) -> None:
        if number == 1:
            raise MillraceError(Problem("the topic has gone", "make it again"))

    sink = troubled(stream, trouble, before=True)
    with pytest.raises(MillraceError, match="the topic has gone; make it again"):
        fed(stream, batches[:2], sink)
    assert len(sink.prepared) == 1
