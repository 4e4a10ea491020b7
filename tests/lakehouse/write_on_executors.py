"""A program for ``test_task_attempts``: write batches by several sinks on executors, while attempts of tasks have faults.

It takes a JSON document: the folder for temporary files, the URL of Spark's master, and by name the sinks' specs. Each
sink gets a batch for each fault, with these keys, then one of many rows. A line with the growth of the driver's memory in
MiB is printed for each of the latter.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from lakehouse import attempts
from lakehouse.attempts import FAULT, LOSS, MARKS, NONE, SPECULATION
from millrace_api.model.streamquery import Emit, StreamQuery
from millrace_jobs.session import local_session
from millrace_jobs.sinks.base import LastBatch, ResultBatch, ResultKeys, Sink
from millrace_jobs.sinks.connector import SinkContext
from millrace_jobs.sinks.files import object_sink
from millrace_jobs.sinks.lakehouse import delta_sink, iceberg_sink
from millrace_jobs.sinks.outputs import open_sink

ROWS, MANY, TASKS = 1_000, 1_000_000, 4
FAULTS = (SPECULATION, LOSS)
IN_DRIVER = ("postgres", "mysql")
"""Sinks whose driver writes what tasks have computed."""

RESULT_BYTES = 2 << 20
"""What tasks may send to the driver for a batch: less than a fiftieth of many rows."""

SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.driver.memory": "600m",
    "spark.driver.maxResultSize": str(RESULT_BYTES),
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
}


def rows(spark: SparkSession, begin: int, end: int) -> DataFrame:
    """Return the rows with these keys."""
    return spark.range(begin, end, 1, TASKS).selectExpr(
        "concat('k', id) AS k", "id AS n", "repeat(md5(concat(id)), 4) AS text"
    )


def opened(spark: SparkSession, spec: Mapping[str, Any]) -> Sink:
    """Return a sink for the rows, ready for its first batch."""
    key = next(iter(spec.values())).get("key")
    parts = {"sources": {"s": {"rate": {}}}, "query": {"sql": "SELECT key FROM s"}, "sink": spec}
    document = {"apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery", "metadata": {"name": "rows"}}
    query = StreamQuery.model_validate(document | {"spec": parts | {"emit": Emit.ON_UPDATE.value}}, by_name=False)
    columns = rows(spark, 0, 0).schema
    sink = open_sink(
        SinkContext(query, ResultKeys(tuple(key) if key else None), "a-checkpoint", print, results=columns)
    )
    sink.prepare(LastBatch(None, None))
    return sink


def write(spark: SparkSession, sink: Sink, number: int, results: DataFrame, fault: str, *, in_driver: bool) -> None:
    """Write a batch, and check that its fault has happened."""
    with tempfile.TemporaryDirectory() as marks:
        spark.sparkContext.environment.update({FAULT: fault, MARKS: marks})
        given = results.mapInArrow(attempts.faulty, results.schema) if in_driver else results
        written = sink.write(sink.shape(given), ResultBatch(number, 1, 0))
        assert written == (MANY if fault == NONE else ROWS), written
        happened = [each.name for each in Path(marks).iterdir()]
        assert fault == NONE or len(happened) == 2, happened


def peak_mib() -> float:
    """Return the most memory that this process has had, in MiB."""
    (line,) = (each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def main(given: Mapping[str, Any]) -> None:
    """Write all batches."""
    settings = SETTINGS | {"spark.master": given["master"], "spark.executorEnv.MILLRACE_PYTHON": sys.executable}
    spark = local_session("attempts", TASKS, settings, Path(given["folder"]), quiet=True)
    spark.sparkContext.environment.update(given["environment"])
    delta_sink.FileWriter = iceberg_sink.FileWriter = attempts.FaultyFileWriter  # type: ignore[misc]
    object_sink.ObjectsWriter = attempts.FaultyObjectsWriter  # type: ignore[misc]
    for name, spec in given["sinks"].items():
        sink, in_driver = opened(spark, spec), not spec.keys().isdisjoint(IN_DRIVER)
        for number, fault in enumerate(FAULTS):
            results = rows(spark, number * ROWS, (number + 1) * ROWS)
            write(spark, sink, number, results, fault, in_driver=in_driver)
        if not in_driver and not spec[next(iter(spec))].get("key"):
            before = peak_mib()
            write(spark, sink, len(FAULTS), rows(spark, MANY, 2 * MANY), NONE, in_driver=False)
            print(name, round(peak_mib() - before), flush=True)
        sink.close()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
