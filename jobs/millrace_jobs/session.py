"""The Spark session of a query in one process."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from millrace_api.errors import MillraceError, Problem

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # blocks are large values: few to an Arrow batch, while records come by the hundred thousand
    "spark.sql.execution.arrow.maxRecordsPerBatch": "131072",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
    "spark.sql.streaming.noDataProgressEventInterval": "1000",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.log.level": "ERROR",
}


def local_session(
    name: str, state_partitions: int, settings: Mapping[str, str], workspace: Path, log: Path | None = None
) -> SparkSession:
    """Spark in this process, on all its cores.

    Args:
        name: of the query.
        state_partitions: number of tasks and of state stores of the merge; fixed once a checkpoint has data.
        settings: the user's own, which come before ours.
        workspace: folder for what Spark needs only while it runs.
        log: file for what the JVM and its Python processes print; None for the terminal.

    Raises:
        MillraceError: there is no Java.
    """
    _require_java()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName(name).master("local[*]")
    own = _SETTINGS | {
        "spark.sql.shuffle.partitions": str(state_partitions),
        "spark.sql.warehouse.dir": str(workspace / "warehouse"),
        "spark.local.dir": str(workspace),
    }
    for key, value in (own | dict(settings)).items():
        builder = builder.config(key, value)
    with _stderr_to(log):
        return builder.getOrCreate()


@contextmanager
def _stderr_to(log: Path | None) -> Iterator[None]:
    """Let processes started meanwhile write their standard error to a file."""
    if log is None:
        yield
        return
    sys.stderr.flush()
    terminal = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and (Path(home) / "bin" / "java").exists()):
        raise MillraceError(Problem("there is no Java", "install a Java 17 or later, or set JAVA_HOME to one"))
