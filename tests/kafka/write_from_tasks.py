"""A program for ``test_partition_tasks``: write batches from tasks on executors, while attempts of tasks have faults.

It takes a JSON document: the folder for temporary files, the URL of Spark's master, the brokers and the topic. Each batch has
ROWS rows and one of the FAULTS. A line for each batch has the number of rows that its tasks say they have written.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafka import partition_attempts
from kafka.partition_attempts import FAULT, FAULTS, MARKS, FaultyWriter
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.session import local_session
from millrace_jobs.sinks.base import LastBatch, ResultBatch, ResultKeys
from millrace_jobs.sinks.kafka.appends import AppendSink
from millrace_jobs.sinks.kafka.sink import TaskWrites
from millrace_jobs.sinks.kafka.topic import TargetTopic

ROWS, TASKS = 4_000, 4
BATCHES = ("none", *FAULTS, "none")

SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
}


def main(given: Mapping[str, Any]) -> None:
    """Write all batches."""
    settings = SETTINGS | {"spark.master": given["master"], "spark.executorEnv.MILLRACE_PYTHON": sys.executable}
    spark = local_session("attempts", TASKS, settings, Path(given["folder"]), quiet=True)
    topic = TargetTopic(given["topic"], Connection(given["brokers"]), "spec.sink.kafka.topic")
    sink = AppendSink(topic, ResultKeys(("k",)), "rows", "c1", TaskWrites(TASKS, by_partition=True))
    sink._writer = FaultyWriter(topic, sink._transactions.id, "rows")
    sink.prepare(LastBatch(None, None))
    assert partition_attempts.FAULTS
    for number, fault in enumerate(BATCHES):
        results = spark.range(number * ROWS, (number + 1) * ROWS, 1, TASKS).selectExpr(
            "concat('k', id) AS k", "id AS n"
        )
        with tempfile.TemporaryDirectory() as marks:
            spark.sparkContext.environment.update({FAULT: fault, MARKS: marks})
            written = sink.write(sink.shape(results), ResultBatch(number, 1, 0))
            happened = [each.name for each in Path(marks).iterdir()]
            assert fault == "none" or len(happened) >= 2, happened
        print(fault, written, *sorted(each for each in happened if not each.startswith("attempt")), sep="|", flush=True)
    sink.close()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
