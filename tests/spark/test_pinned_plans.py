"""A batch keeps the plan it was begun under: after a crash, and when a task is tried again."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from millrace_api.errors import MillraceError
from millrace_jobs.checkpoint.checkpoint import Checkpoint, checkpoint_root
from millrace_jobs.pipeline.route import Router
from millrace_jobs.plan.control import Pin
from millrace_jobs.sinks.base import ResultBatch
from millrace_jobs.sources.base import OnArrival, Slice
from millrace_jobs.sources.files.source import FilesSource

from .aggregators import fail_first_attempt
from .answers import assert_same, duckdb_rows, latest
from .streams import Placing, Stream
from .tables import parquet, table_of
from .wrapped_sink import WrappedSink

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

SCHEMA = pa.schema([("key", pa.string()), ("value", pa.int64())])
COLUMNS = "key STRING, value BIGINT"
SQL = "SELECT key, count(*) AS records, sum(value) AS total FROM events GROUP BY key"
SPREAD = {"aggregator": "spark.aggregators:Spread", "options": {"column": "value"}, "groupBy": ["key"]}


def made(batches: int, rows: int = 300) -> list[list[tuple[str, int]]]:
    chance = random.Random(batches)
    return [
        [(f"key {int(chance.paretovariate(0.8))}", chance.randrange(100)) for _ in range(rows)] for _ in range(batches)
    ]


def assert_nothing_lost_or_double(stream: Stream, batches: list[list[tuple[str, int]]]) -> None:
    everything = table_of(SCHEMA, [row for batch in batches for row in batch])
    expected = duckdb_rows(everything, "SELECT key, count(*), sum(value) FROM events GROUP BY key")
    assert_same(latest(stream.results(), 1), expected, 1)


@dataclass
class CrashingSink(WrappedSink):
    """A sink that fails in a given batch, before or after it has written the results."""

    batch: int
    after_writing: bool

    def write(self, results: DataFrame, batch: ResultBatch) -> int:
        if batch.number == self.batch and not self.after_writing:
            raise RuntimeError("before writing, as the test wants it")
        written = super().write(results, batch)
        if batch.number == self.batch:
            raise RuntimeError("after writing, as the test wants it")
        return written


@pytest.mark.parametrize(
    ("then", "changed", "after_writing"),
    [
        (("pkg", 7, 3), ("hash", 2, 1), False),
        (("shuffle", 16, 1), ("native", 1, 3), True),
        (("native", 2, 3), ("pkg", 7, 1), False),
    ],
)
def test_a_batch_replayed_after_a_crash_has_its_old_plan(spark, tmp_path, then, changed, after_writing):
    first: Placing = (then[0], 2, 2)
    batches = made(3)
    files = [parquet(SCHEMA, batch) for batch in batches]
    stream = Stream(spark, tmp_path, schema=COLUMNS, sql=SQL)
    sink = CrashingSink(stream.sink(), 1, after_writing)
    with pytest.raises(MillraceError, match="as the test wants it"):
        stream.feed([(first, files[0]), (then, files[1])], sink)
    reports = [report for report in stream.feed([(changed, files[2])]) if report.rows]
    assert [report.batch for report in reports] == [1, 2]
    replayed, next_one = (report.pin for report in reports)
    assert (replayed.algorithm, replayed.workers, replayed.replicas) == then
    assert (next_one.algorithm, next_one.workers, next_one.replicas) == changed
    if then[0] != "native":
        assert len(reports[0].worker_rows) == then[1]
        assert sum(reports[0].worker_rows) == len(batches[1])
    assert_nothing_lost_or_double(stream, batches)


def test_a_batch_begins_with_what_partitioners_learned_before_also_when_it_is_replayed(spark, tmp_path):
    placing: Placing = ("pkg", 7, 2)
    batches = made(6, rows=10)
    files = [(placing, parquet(SCHEMA, batch)) for batch in batches]
    stream = Stream(spark, tmp_path, schema=COLUMNS, sql=SQL)
    sink = CrashingSink(stream.sink(), 3, after_writing=True)
    with pytest.raises(MillraceError, match="as the test wants it"):
        stream.feed(files[:4], sink)
    begun = Checkpoint(checkpoint_root(stream.query)).unfinished_pin()
    replayed, *rest = (report for report in stream.feed(files[4:]) if report.rows)
    assert begun == replayed.pin
    assert begun.policy == 2
    first, second = (report.pin.policy for report in rest)
    assert first in (2, 3)  # batch 4 may be planned before batch 3 has been reported
    assert second == 4
    assert_nothing_lost_or_double(stream, batches)


def test_a_policy_that_was_lost_changes_no_result(spark, tmp_path):
    placing: Placing = ("pkg", 7, 2)
    batches = made(3)
    first, *later = ((placing, parquet(SCHEMA, batch)) for batch in batches)
    stream = Stream(spark, tmp_path, schema=COLUMNS, sql=SQL)
    stream.feed([first])
    (policy,) = (checkpoint_root(stream.query) / "policies").iterdir()
    policy.write_text("damaged")
    reports = [report for report in stream.feed(later) if report.rows]
    assert [report.pin.policy for report in reports] == [None, 1]
    assert_nothing_lost_or_double(stream, batches)


def test_a_batch_replayed_after_kill_9_has_its_old_plan(spark, tmp_path):
    then: Placing = ("pkg", 7, 3)
    batches = made(3)
    files = [parquet(SCHEMA, batch) for batch in batches]
    stream = Stream(spark, tmp_path, schema=COLUMNS, sql=SQL)
    stream.feed([(("pkg", 2, 1), files[0])])
    killed = stream.feed_in_a_process_that_dies(then, files[1])
    assert killed == -9
    reports = [report for report in stream.feed([(("hash", 16, 1), files[2])]) if report.rows]
    assert [(report.pin.algorithm, report.pin.workers, report.pin.replicas) for report in reports] == [
        then,
        ("hash", 16, 1),
    ]
    assert_nothing_lost_or_double(stream, batches)


class FailingOnceSource(FilesSource):
    """Files whose every slice fails after its first block, once."""

    def read(self, piece: Slice, label: str, on_arrival: OnArrival):
        blocks = super().read(piece, label, on_arrival)
        yield next(blocks)
        fail_first_attempt()
        yield from blocks


@pytest.mark.parametrize("algorithm", ["shuffle", "pkg"])
def test_a_retried_task_routes_as_before(spark, tmp_path, monkeypatch, algorithm):
    (batch,) = made(1, rows=2000)
    placing: Placing = (algorithm, 7, 3)
    calm = Stream(spark, tmp_path / "calm", schema=COLUMNS, python=SPREAD)
    (expected,) = calm.feed([(placing, parquet(SCHEMA, batch))])
    failing = SPREAD | {"aggregator": "spark.aggregators:FailingOnce"}
    monkeypatch.setattr("millrace_jobs.sources.files.connector.FilesSource", FailingOnceSource)
    disturbed = Stream(spark, tmp_path / "disturbed", schema=COLUMNS, python=failing)
    (report,) = disturbed.feed([(placing, parquet(SCHEMA, batch))])
    assert report.rows == expected.rows == len(batch)
    assert report.worker_rows == expected.worker_rows
    assert report.worker_keys == expected.worker_keys
    assert_same(latest(disturbed.results(), 1), latest(calm.results(), 1), 1)


def test_routing_is_a_function_of_slice_and_plan():
    (records,) = made(1, rows=5000)
    router = Router(lambda batch: batch, keys=1, window=None)
    blocks = table_of(SCHEMA, records).to_batches(max_chunksize=700)
    for algorithm in ("shuffle", "hash", "pkg"):
        pin = Pin(epoch=1, algorithm=algorithm, replicas=3, workers=7)
        once, again = ([cut.to_pydict() for cut in router(blocks, pin, 1, 0)] for _ in range(2))
        assert once == again
        assert sum(len(cut["worker"]) for cut in once) > len(blocks)
