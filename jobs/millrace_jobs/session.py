"""The Spark session of a query: in one process, or on Kubernetes with executors in pods of their own."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from millrace_jobs import jvm

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # blocks are large values: few to an Arrow batch, while records come by the hundred thousand
    "spark.sql.execution.arrow.maxRecordsPerBatch": "131072",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
    "spark.sql.streaming.noDataProgressEventInterval": "1000",
    "spark.sql.streaming.metricsEnabled": "false",
    # the default has Hadoop start ten processes for each file of a checkpoint, for permissions and links; both write
    # a file beside its place and rename it, and the files are the same
    "spark.sql.streaming.checkpointFileManagerClass": _FILES,
    # a second checksum beside Hadoop's own
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # for sessions that add files or modules, which ours do not: with it they have Python workers of their own
    "spark.sql.artifact.isolation.enabled": "false",
    # over TCP the last bytes of each Python task wait 40 ms: small writes for an acknowledgement, and that for company
    "spark.python.unix.domain.socket.enabled": "true",
    # texts of plans, which are not read, and would be made twice for each batch
    "spark.sql.ui.explainMode": "simple",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "2",  # keeps one less: reports are large, and come by a listener
    "spark.log.level": "ERROR",
}

_SOCKET_FOLDER = 61
"""The longest name of a folder in which Spark makes sockets, in characters."""

TASK_ATTEMPTS = 4
"""How often a task is tried, as on a cluster: a Python worker that was killed costs a task, not the batch."""

_QUERY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""PySpark's loggers that print the exceptions of the JVM to the terminal, when they are made."""


def local_session(
    name: str, state_partitions: int, settings: Mapping[str, str], workspace: Path, *, quiet: bool
) -> SparkSession:
    """Spark in this process, on all its cores; a task that fails is tried again.

    Args:
        name: of the query.
        state_partitions: number of tasks and of state stores of the merge; fixed once a checkpoint has data.
        settings: the user's own, which come before ours.
        workspace: folder for what Spark needs only while it runs.
        quiet: drop what the JVM and its Python processes print.

    Raises:
        MillraceError: there is no Java.
    """
    own = {
        "spark.master": f"local[*, {TASK_ATTEMPTS}]",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(workspace),
    }
    folder = str(jvm.start(settings, quiet=quiet).folder)
    if len(folder) <= _SOCKET_FOLDER:
        own["spark.python.unix.domain.socket.dir"] = folder  # Python's workers ask no secret of who connects
    return _session(name, state_partitions, own | dict(settings), workspace, quiet=quiet)


def pod_session(
    name: str,
    state_partitions: int,
    settings: Mapping[str, str],
    workspace: Path,
    address: str,
    prefix: str,
    executors: int,
) -> SparkSession:
    """Spark in client mode in a driver's pod; what concerns the cluster is in its ``spark-defaults.conf``.

    Args:
        name, state_partitions, settings, workspace: as for ``local_session``.
        address: of the pod, where executors find the driver.
        prefix: of the names of the executors' pods.
        executors: that are asked for at once.

    Raises:
        MillraceError: there is no Java.
    """
    own = {
        "spark.driver.bindAddress": address,
        "spark.driver.host": address,
        "spark.kubernetes.executor.podNamePrefix": prefix,
        "spark.executor.instances": str(executors),
        "spark.executorEnv.MILLRACE_PYTHON": sys.executable,
        "spark.log.level": "OFF",
    }
    spark = _session(name, state_partitions, own | dict(settings), workspace, quiet=False)
    spark.sparkContext.setLogLevel(settings.get("spark.log.level", _SETTINGS["spark.log.level"]))
    return spark


def silence(spark: SparkSession) -> None:
    """Let Spark say nothing more: at its start it waits in vain for its pod to be ready, and at its end it removes
    volumes that it has never made and may not remove, and says so at length."""
    spark.sparkContext.setLogLevel("OFF")


def _session(
    name: str, state_partitions: int, settings: Mapping[str, str], workspace: Path, *, quiet: bool
) -> SparkSession:
    builder = SparkSession.builder.appName(name)
    own = _SETTINGS | {
        "spark.sql.shuffle.partitions": str(state_partitions),
        "spark.sql.warehouse.dir": str(workspace / "warehouse"),
    }
    for key, value in (own | dict(settings)).items():
        builder = builder.config(key, value)
    for logger in _QUERY_LOGGERS:  # what they say, whoever catches the exception says too
        logging.getLogger(logger).disabled = quiet
    with jvm.start(settings, quiet=quiet).announced(), _interrupts_as_before():
        return builder.getOrCreate()


def stop(spark: SparkSession) -> None:
    """End Spark, where it has not ended by itself."""
    if jvm.is_running():
        spark.stop()


@contextmanager
def _interrupts_as_before() -> Iterator[None]:
    """Take back Ctrl-C: a new SparkContext answers it by cancelling all jobs, also those of a batch to be finished."""
    handler = signal.getsignal(signal.SIGINT)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)
