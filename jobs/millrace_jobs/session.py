"""The Spark session of a query: in one process, or on Kubernetes with executors in pods of their own."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from millrace_api.errors import MillraceError, Problem
from millrace_jobs import pending
from millrace_jobs.confinement import VARIABLE, confinement
from millrace_jobs.disk import path_for_spark
from millrace_jobs.own_code.own_code import current
from millrace_jobs.process import jvm
from millrace_jobs.process.signals import interrupt_handler_kept
from millrace_jobs.stores import requests

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

COUNTS_ROWS = "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows"
"""Setting by which Spark counts the rows of its state."""

_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # whoever reaches the pages of a query, where they are on, only reads
    "spark.ui.killEnabled": "false",
    # Spark's default passes over passwords that are called passphrases, and keys with '_' or '-' in their names
    "spark.redaction.regex": r"(?i)secret|passw|passphrase|credential|token|(access|account|private|api)[._-]?key",
    "spark.sql.session.timeZone": "UTC",
    # the sources are the only tables: no FROM csv.`/folder`
    "spark.sql.runSQLOnFiles": "false",
    # a text is what it says: no '${env:HOME}', which the checks before Spark would not see
    "spark.sql.variable.substitute": "false",
    # the default, INT96, is not part of Parquet any more, and wraps in readers that keep it in nanoseconds
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # to count rows, each write would first look whether there is one: a tenth and more of a batch with many keys
    COUNTS_ROWS: "false",
    # the limit in bytes is for blocks, which are large values; the limit in records is for single records
    "spark.sql.execution.arrow.maxRecordsPerBatch": "131072",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
    "spark.sql.streaming.noDataProgressEventInterval": "1000",
    "spark.sql.streaming.metricsEnabled": "false",
    # the default makes Hadoop start ten processes for each file of a checkpoint, for permissions and links; both
    # managers write a temporary file and rename it, and their files are identical
    "spark.sql.streaming.checkpointFileManagerClass": _FILES,
    # Hive's, which is found otherwise, renames over no file: a batch that runs again, by now with another filter, would
    # go on in memory from its own state, and leave that of the attempt that died on disk
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
    # would be a second checksum beside Hadoop's own
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # isolation is for sessions that add files or modules, which ours do not; it gives each session its own workers
    "spark.sql.artifact.isolation.enabled": "false",
    # over TCP the last bytes of each Python task wait 40 ms (Nagle's algorithm and delayed acknowledgements)
    "spark.python.unix.domain.socket.enabled": "true",
    # plan texts, which nothing reads, would otherwise be built twice for each batch
    "spark.sql.ui.explainMode": "simple",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Spark retains one fewer; reports are large, and a listener receives them anyway
    "spark.sql.streaming.numRecentProgressUpdates": "2",
    "spark.log.level": "ERROR",
}

_CONFINED = ("spark.sql.runSQLOnFiles", "spark.sql.variable.substitute")
"""Settings of these that a confined query cannot change."""

_MAX_SOCKET_FOLDER = 59
"""Longest path, in bytes, of a folder for sockets: Spark appends 43, and Java allows 102 in all on some systems."""

TASK_ATTEMPTS = 4
"""Attempts per task, as on a cluster: a killed Python worker then fails a task, not the batch."""

_QUERY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""PySpark's loggers that print JVM exceptions to the terminal when they are raised."""


class ExecutorState(NamedTuple):
    """The executors of a job.

    Attributes:
        ready: number of those that take tasks.
        wanted: number that the query needs at least.
        signs: a number that grows while tasks finish, or while no executor is there that could finish one.
    """

    ready: int
    wanted: int
    signs: int


def local_session(
    name: str, state_partitions: int, settings: Mapping[str, str], workspace: Path, *, quiet: bool
) -> SparkSession:
    """Start Spark in this process, on all cores; a failed task is retried.

    Args:
        name: name of the query.
        state_partitions: number of tasks and of state stores of the merge; fixed once a checkpoint has data.
        settings: the user's Spark settings, which override ours.
        workspace: folder for files that Spark needs only while it runs.
        quiet: discard the output of the JVM and its Python processes.

    Raises:
        MillraceError: Java is not installed, or Spark cannot use the workspace's name.
    """
    if "," in str(path_for_spark(workspace, "TMPDIR")):
        message = f"the temporary folder {workspace} has a comma in its name, at which Spark cuts it into two"
        raise MillraceError(Problem(message, "set TMPDIR to another folder"))
    own = {
        "spark.master": f"local[*, {TASK_ATTEMPTS}]",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(workspace),
    }
    folder = str(jvm.start(settings, quiet=quiet).folder)
    if len(os.fsencode(folder)) <= _MAX_SOCKET_FOLDER:
        # Python workers do not authenticate connections, so the sockets need a folder that only this user may enter.
        own["spark.python.unix.domain.socket.dir"] = folder
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
    """Start Spark in client mode in a driver pod; the cluster's settings are in the pod's ``spark-defaults.conf``.

    Args:
        name, state_partitions, settings, workspace: as for ``local_session``.
        address: address of the pod, at which executors reach the driver.
        prefix: prefix of the names of the executor pods.
        executors: number of executors to request at the start.

    Raises:
        MillraceError: Java is not installed.
    """
    own = {
        "spark.driver.bindAddress": _bracketed(address),
        "spark.driver.host": _bracketed(address),
        "spark.kubernetes.executor.podNamePrefix": prefix,
        "spark.executor.instances": str(executors),
        "spark.executorEnv.MILLRACE_PYTHON": sys.executable,
        "spark.log.level": "OFF",
    }
    confined = confinement()
    executors_too = {} if confined is None else {f"spark.executorEnv.{VARIABLE}": confined.to_json()}
    spark = _session(name, state_partitions, own | dict(settings) | executors_too, workspace, quiet=False)
    current().add_to_workers(spark.sparkContext)
    level = settings.get("spark.log.level", _SETTINGS["spark.log.level"])
    spark.sparkContext.setLogLevel(level)
    log_refused_pods_rarely(spark, level)
    return spark


def following_session(spark: SparkSession, partitions: int) -> SparkSession:
    """Return a session of the same Spark for the version of a query that follows; nothing of the old one is in it.

    Executors, and the settings of ``spark``'s start, are the same. Its views and cached tables are forgotten.
    """
    spark.catalog.clearCache()
    following = spark.newSession()
    following.conf.set("spark.sql.shuffle.partitions", str(partitions))
    return following


def _bracketed(address: str) -> str:
    """Return an address as Spark takes it as a host: in brackets if it is one of IPv6."""
    return f"[{address}]" if ":" in address else address


def authenticated(secret: Path) -> dict[str, str]:
    """Return the settings by which driver and executors talk only to those that have the secret, and encrypt all of it.

    Args:
        secret: file with the secret, at the same path in driver and executors. It has to be a file: Spark puts a secret
            that it gets in any other way into the environment of the executor pods.
    """
    return {
        "spark.authenticate": "true",
        # not those of driver and executor: an executor's first connection ignores them
        "spark.authenticate.secret.file": str(secret),
        "spark.network.crypto.enabled": "true",
        "spark.network.crypto.authEngineVersion": "2",
        # also detects changed bytes, which the default cipher does not
        "spark.network.crypto.cipher": "AES/GCM/NoPadding",
        # never agree on the older protocol, which has weaker ciphers
        "spark.network.crypto.saslFallback": "false",
    }


def log_refused_pods_rarely(spark: SparkSession, level: str) -> None:
    """Log at most three refused executor pods, and then one in five minutes.

    Spark asks again each second while a quota leaves no room, and logs a stack trace each time.
    """
    jvm: Any = spark._jvm
    log4j = jvm.org.apache.logging.log4j
    logger = "org.apache.spark.scheduler.cluster.k8s.ExecutorPodsAllocator"
    log4j.core.config.Configurator.setLevel(logger, log4j.Level.toLevel(level))
    rarely = log4j.core.filter.BurstFilter.newBuilder().setLevel(log4j.Level.ERROR).setRate(1 / 300).setMaxBurst(3)
    context, limit = log4j.LogManager.getContext(False), rarely.build()
    limit.start()
    context.getConfiguration().getLoggerConfig(logger).addFilter(limit)
    context.updateLoggers()


def silence(spark: SparkSession) -> None:
    """Turn off Spark's log.

    At its start Spark waits in vain for its pod to be ready. At its end it tries to remove volumes that it never
    created and may not remove. It logs both at length.
    """
    spark.sparkContext.setLogLevel("OFF")


def _session(
    name: str, state_partitions: int, settings: Mapping[str, str], workspace: Path, *, quiet: bool
) -> SparkSession:
    builder = SparkSession.builder.appName(name)
    own = _SETTINGS | {
        "spark.sql.shuffle.partitions": str(state_partitions),
        "spark.sql.warehouse.dir": str(workspace / "warehouse"),
    }
    fixed = {} if confinement() is None else {name: _SETTINGS[name] for name in _CONFINED}
    for key, value in (own | dict(settings) | fixed).items():
        builder = builder.config(key, value)
    for logger in _QUERY_LOGGERS:  # the code that catches the exception reports the same
        logging.getLogger(logger).disabled = quiet
    with jvm.start(settings, quiet=quiet).announced(), interrupt_handler_kept():
        spark = builder.getOrCreate()
    # the JVM may have been started before the job
    spark.sparkContext.environment |= requests.environment() | pending.environment()
    return spark


def stop(spark: SparkSession) -> None:
    """Stop Spark, unless its JVM has already ended."""
    if jvm.is_running():
        spark.stop()
