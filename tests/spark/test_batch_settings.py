"""Spark compiles the plan of a batch where it has much to do for each record, and interprets it elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from millrace_jobs.run.batch_settings import BatchSettings
from millrace_jobs.sinks.base import ResultBatch

from .answers import assert_same, duckdb_rows, latest
from .streams import FOREVER, Placing, Stream
from .tables import parquet, table_of
from .wrapped_sink import WrappedSink

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("key", pa.string())])
COLUMNS = "at TIMESTAMP, key STRING"
BY_KEY = "SELECT key, count(*) AS n FROM events GROUP BY key"
BY_UPPER_KEY = "SELECT initcap(key) AS name, count(*) AS n FROM events GROUP BY initcap(key)"
TUMBLING = "SELECT window.start AS w, key, count(*) AS n FROM events GROUP BY window(at, '1 minute'), key"
HOPPING = "SELECT window.start AS w, key, count(*) AS n FROM events GROUP BY window(at, '1 minute', '20 seconds'), key"

NATIVE: Placing = ("native", 1, 2)
HASH: Placing = ("hash", 2, 2)
FEW, MANY = 100, 30_000


@dataclass
class Spy(WrappedSink):
    """A sink that looks how the batch it writes was planned."""

    spark: SparkSession
    compiled: list[bool] = field(default_factory=list)

    def write(self, results: DataFrame, batch: ResultBatch) -> int:
        (query,) = self.spark.streams.active
        self.compiled.append("*(" in query._jsq.explainInternal(False))
        return super().write(results, batch)


def records(rows: int) -> bytes:
    return parquet(SCHEMA, [(row * 1_000, f"key {row % 7}") for row in range(rows)])


def compiled(spark, folder, sql: str, placing: Placing, sizes: list[int]) -> list[bool]:
    """Which batches of these sizes were compiled."""
    stream = Stream(spark, folder, schema=COLUMNS, sql=sql, watermark=("at", FOREVER))
    spy = Spy(stream.sink(), spark)
    stream.feed([(placing, records(size)) for size in sizes], spy)
    return spy.compiled[: len(sizes)]


@pytest.mark.in_turn
@pytest.mark.parametrize(("sql", "placing"), [(BY_KEY, NATIVE), (TUMBLING, NATIVE), (BY_UPPER_KEY, HASH)])
def test_a_plan_with_work_for_each_record_is_compiled_at_first_and_for_many(spark, tmp_path, sql, placing):
    found = compiled(spark, tmp_path, sql, placing, [FEW] * 4 + [MANY] * 4)
    assert (found[0], found[3], found[7]) == (True, False, True)  # a batch may be planned before the last is reported


def test_a_native_plan_that_makes_several_rows_of_each_is_always_compiled(spark, tmp_path):
    assert all(compiled(spark, tmp_path, HOPPING, NATIVE, [FEW, FEW]))


@pytest.mark.parametrize("sql", [BY_KEY, HOPPING])
def test_a_routed_plan_is_never_compiled(spark, tmp_path, sql):
    assert not any(compiled(spark, tmp_path, sql, HASH, [MANY, MANY, MANY]))


def test_results_are_the_same_either_way(spark, tmp_path):
    sizes = [FEW, FEW, FEW, FEW, MANY]
    stream = Stream(spark, tmp_path, schema=COLUMNS, sql=TUMBLING, watermark=("at", FOREVER))
    spy = Spy(stream.sink(), spark)
    stream.feed([(NATIVE, records(size)) for size in sizes], spy)
    assert set(spy.compiled) == {True, False}
    rows = [(row * 1_000, f"key {row % 7}") for size in sizes for row in range(size)]
    counted = "SELECT time_bucket(INTERVAL '1 minute', events.\"at\") AS w, key, count(*) AS n FROM events GROUP BY ALL"
    assert_same(latest(stream.results(), 2), duckdb_rows(table_of(SCHEMA, rows), counted), 2)


def test_what_the_user_has_chosen_stays(spark):
    spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
    BatchSettings({"spark.sql.codegen.wholeStage": "true"}).begin(spark.range(1), per_record=False)
    assert spark.conf.get("spark.sql.codegen.factoryMode") == "FALLBACK"
