"""The Spark session of a query in one process."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping

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
    "spark.log.level": "OFF",
}


def local_session(name: str, state_partitions: int, settings: Mapping[str, str]) -> SparkSession:
    """Spark in this process, on all its cores.

    Args:
        name: of the query.
        state_partitions: number of tasks and of state stores of the merge; fixed once a checkpoint has data.
        settings: the user's own, which come before ours.

    Raises:
        MillraceError: there is no Java.
    """
    _require_java()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName(name).master("local[*]")
    own = _SETTINGS | {"spark.sql.shuffle.partitions": str(state_partitions)}
    for key, value in (own | dict(settings)).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and os.access(os.path.join(home, "bin", "java"), os.X_OK)):  # noqa: PTH118
        raise MillraceError(Problem("there is no Java", "install a Java 17 or later, or set JAVA_HOME to one"))
