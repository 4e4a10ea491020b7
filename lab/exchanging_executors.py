"""Two executors that exchange records: for ``test_wires``, as a program, and for what encryption costs (``bench.wires``).

Run as ``exchanging_executors.py FOLDER SALT open|encrypted``; it prints the ports of the driver and of all that send
blocks. A marker, which no other text has, is in the settings of each task, which the driver sends; the records, which the
executors make and exchange, are hashes of it.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from millrace_jobs.session import authenticated, local_session

WIRES = ("open", "encrypted")
KEYS = 20


def task_marker(salt: str) -> str:
    """Return the text in what the driver sends to executors."""
    return f"task-{salt}"


def record_markers(salt: str) -> list[str]:
    """Return the texts of all records."""
    return [hashlib.md5(f"{salt}-{key}".encode()).hexdigest() for key in range(KEYS)]


def exchanging_session(folder: Path, wires: str, more: Mapping[str, str]) -> SparkSession:
    """Start a driver and two executors of one core, with or without the settings of a driver's pod."""
    settings = {
        "spark.master": "local-cluster[2,1,512]",
        "spark.executor.memory": "512m",
        "spark.shuffle.readHostLocalDisk": "false",  # pods have no disk in common
    }
    if wires == "encrypted":
        settings |= authenticated(folder / "secret")
        del settings["spark.authenticate.secret.file"]  # only executors on Kubernetes read it
        settings["spark.authenticate.secret"] = "a secret of this test"
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    return local_session("wires", 4, settings | dict(more), folder, quiet=True)


def main(folder: Path, salt: str, wires: str) -> None:
    """Exchange the records, and print the ports."""
    # compressed, a text that comes again would not be on the wire as it is
    spark = exchanging_session(folder, wires, {"spark.shuffle.compress": "false"})
    spark.sparkContext.setLocalProperty("millrace.marker", task_marker(salt))
    records = spark.range(20_000, numPartitions=4).selectExpr("id", f"md5(concat('{salt}-', id % {KEYS})) AS text")
    assert records.repartition(4, "id").selectExpr("count(DISTINCT text)").first() == (KEYS,)
    context: Any = spark.sparkContext._jsc
    managers = context.sc().getExecutorMemoryStatus().keySet().mkString(",").split(",")
    assert len(managers) == 3, managers
    print(spark.conf.get("spark.driver.port"), *(each.rpartition(":")[2] for each in managers), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
