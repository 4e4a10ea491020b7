"""Two executors that exchange records, for ``test_wires``: prints the ports of the driver and of all that send blocks.

Run as ``exchanging_executors.py FOLDER SALT open|encrypted``. A marker, which no other text has, is in the
settings of each task, which the driver sends; the records, which the executors make and exchange, are hashes of it.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

from millrace_jobs.session import authenticated, local_session

KEYS = 20


def task_marker(salt: str) -> str:
    """Return the text in what the driver sends to executors."""
    return f"task-{salt}"


def record_markers(salt: str) -> list[str]:
    """Return the texts of all records."""
    return [hashlib.md5(f"{salt}-{key}".encode()).hexdigest() for key in range(KEYS)]


def encrypted(folder: Path) -> dict[str, str]:
    """Return the settings of a driver's pod, but for the file with the secret: only executors on Kubernetes read it."""
    ours = authenticated(folder / "secret")
    del ours["spark.authenticate.secret.file"]
    return ours | {"spark.authenticate.secret": "a secret of this test"}


def main(folder: Path, salt: str, wires: str) -> None:
    """Exchange the records, and print the ports."""
    settings = {
        "spark.master": "local-cluster[2,1,512]",
        "spark.executor.memory": "512m",
        "spark.shuffle.compress": "false",  # a text that comes again would not be on the wire as it is
    }
    settings |= encrypted(folder) if wires == "encrypted" else {}
    spark = local_session("wires", 4, settings, folder, quiet=True)
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
