"""What the session keeps in the driver's memory, and how the jobs of a query are named in it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from millrace_jobs.sinks.base import ResultBatch

from .streams import Placing, Stream
from .tables import parquet
from .wrapped_sink import WrappedSink

pytestmark = pytest.mark.spark


def test_only_the_last_report_of_a_query_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for i in range(4):
        (tmp_path / "in" / str(i)).write_text("line\n", encoding="utf-8")
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(tmp_path / "in"))
    query = lines.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    running = query.trigger(availableNow=True).start()
    running.awaitTermination()
    assert [progress.batchId for progress in running.recentProgress] == [3]


@dataclass
class FetchingSink(WrappedSink):
    """Fetches the results, after which PySpark takes away the name of what is run, and keeps the names it found."""

    spark: SparkSession
    names: list[str | None] = field(default_factory=list)

    def write(self, results: DataFrame, batch: ResultBatch) -> int:
        self.names.append(self.spark.sparkContext.getLocalProperty("callSite.short"))
        results.toArrow()
        return super().write(results, batch)


def test_jobs_after_the_first_batch_have_the_name_of_the_query(spark: SparkSession, tmp_path: Path) -> None:
    native: Placing = ("native", 1, 2)
    stream = Stream(spark, tmp_path, schema="key STRING", sql="SELECT key, count(*) AS n FROM events GROUP BY key")
    sink = FetchingSink(stream.sink(), spark)
    one = parquet(pa.schema([("key", pa.string())]), [("a",)])
    stream.feed([(native, one)] * 3, sink)
    assert sink.names[1:3] == [stream.query.metadata.name] * 2


_REFUSALS = """
from millrace_jobs.session import log_refused_pods_rarely
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("WARN")
log_refused_pods_rarely(spark, "WARN")
log4j = spark._jvm.org.apache.logging.log4j.LogManager
for _ in range(20):
    log4j.getLogger("org.apache.spark.scheduler.cluster.k8s.ExecutorPodsAllocator").error("a pod is refused")
    log4j.getLogger("org.apache.spark.scheduler.Other").error("something else")
"""


def test_of_many_refused_pods_the_log_has_some() -> None:
    done = subprocess.run([sys.executable, "-c", _REFUSALS], capture_output=True, text=True, timeout=300, check=True)
    assert done.stderr.count("a pod is refused") == 3
    assert done.stderr.count("something else") == 20
