"""A program for ``test_partition_tasks``: write batches from tasks on executors, while attempts of tasks have faults.

It takes a JSON document: the folder for temporary files, the URL of Spark's master, the brokers and the topic. Each batch has
ROWS rows and one of the FAULTS, whose marks are in a folder of its name in ``marks``. A line for each batch has the number
of rows that its tasks say they have written.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafka.partition_attempts import CUT_OFFS, FAULT, FAULTS, MARKS, FaultyWriter
from lab.waiting import wait_until
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.session import local_session
from millrace_jobs.sinks.base import LastBatch, ResultBatch, ResultKeys
from millrace_jobs.sinks.kafka.sink import AppendSink, TaskWrites
from millrace_jobs.sinks.kafka.topic import TargetTopic

ROWS, TASKS = 4_000, 4
BATCHES = ("none", *FAULTS, "none")
RESUMED = "resumed"
"""The mark of a batch whose executor was cut off, and goes on."""

SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
}


def marks_of(folder: Path, number: int) -> Path:
    """Return the folder of the marks of a batch."""
    return folder / "marks" / f"{number} {BATCHES[number]}"


def main(given: Mapping[str, Any]) -> None:
    """Write all batches."""
    settings = SETTINGS | {"spark.master": given["master"], "spark.executorEnv.MILLRACE_PYTHON": sys.executable}
    spark = local_session("attempts", TASKS, settings, Path(given["folder"]), quiet=True)
    topic = TargetTopic(given["topic"], Connection(given["brokers"]), "spec.sink.kafka.topic")
    sink = AppendSink(topic, ResultKeys(("k",)), "rows", "c1", TaskWrites(TASKS, by_partition=True))
    sink._writer = FaultyWriter(topic, sink._transactions.id, "rows")
    sink.prepare(LastBatch(None, None))
    for number, fault in enumerate(BATCHES):
        results = spark.range(number * ROWS, (number + 1) * ROWS, 1, TASKS).selectExpr(
            "concat('k', id) AS k", "id AS n"
        )
        marks = marks_of(Path(given["folder"]), number)
        marks.mkdir(parents=True)
        spark.sparkContext.environment.update({FAULT: fault, MARKS: str(marks)})
        written = sink.write(sink.shape(results), ResultBatch(number, 1, 0))
        if fault in {each.__name__ for each in CUT_OFFS}:
            wait_until((marks / RESUMED).exists)
        print(fault, written, sep="|", flush=True)
    sink.close()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
