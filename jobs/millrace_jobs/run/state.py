"""The commands on the state of a query: ``millrace state show``, and ``millrace state repartition`` for a stopped one.

``running_state`` repartitions the state of a running query.

Spark repartitions in a separate batch, which reads no records, writes no results, and keeps the offsets, the plan and
the watermark of the batch before it. A query cannot start from half of that batch. So the batch runs in a copy of
Spark's checkpoint, which replaces the original once it is complete (``spark_folder``). Spark takes the number of
partitions from its own log, so the marker need not be updated in the same atomic step.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.checkpoint.checkpoint import Checkpoint, checkpoint_root
from millrace_jobs.checkpoint.object_lease import download
from millrace_jobs.checkpoint.spark_folder import make_copy, plainly_named
from millrace_jobs.places import files_below
from millrace_jobs.process import jvm
from millrace_jobs.run.failures import explain_failure, jvm_gone
from millrace_jobs.session import local_session, stop
from millrace_jobs.stores.objects import ObjectPath

MAX_PARTITIONS = 1000
"""Maximum number of state partitions: each costs about 10 ms per batch, so a larger number is surely a typo."""


def describe_state(query: StreamQuery) -> str:
    """Describe a query's state from its checkpoint, without Spark, also while the query runs.

    Its size includes the versions that Spark keeps for a restart.

    Raises:
        MillraceError: the checkpoint does not exist.
    """
    checkpoint = Checkpoint(checkpoint_root(query))
    if not checkpoint.exists():
        raise MillraceError(Problem(f"there is no checkpoint {checkpoint.root}", "run the query first"))
    last = checkpoint.last_batch().committed
    bytes_stored = sum(size for _, size in files_below(checkpoint.spark / "state"))
    lines = {
        "checkpoint": checkpoint.root,
        "state partitions": checkpoint.state_partitions,
        "last batch": "-" if last is None else last,
        "state stored": f"{bytes_stored / (1 << 20):,.1f} MiB",
    }
    return "\n".join(f"{name:<18}{value}" for name, value in lines.items())


def repartition(query: StreamQuery, partitions: int, *, debug: bool = False) -> int:
    """Redistribute the state of a stopped query over another number of partitions; its next run continues from there.

    Returns:
        The number of partitions before; if it equals ``partitions``, nothing changes.

    Raises:
        MillraceError: the number is out of range, there is no state, another run holds the checkpoint, a batch is
            unfinished, or Spark cannot do it. The checkpoint is then unchanged.
    """
    if not 1 <= partitions <= MAX_PARTITIONS:
        hint = f"write a number from 1 to {MAX_PARTITIONS}"
        raise MillraceError(Problem(f"{partitions} state partitions are not possible", hint))
    checkpoint = Checkpoint(checkpoint_root(query))
    if not checkpoint.exists():
        raise _no_state(checkpoint)
    checkpoint.open(query)
    try:
        require_state(checkpoint)
        _require_finished_batches(checkpoint)
        before = checkpoint.state_partitions
        if before != partitions:
            with tempfile.TemporaryDirectory(prefix="millrace-") as name:
                workspace = Path(name)
                spark = local_session(query.name, partitions, query.spec.spark_conf, workspace, quiet=not debug)
                try:
                    replace_state(spark, checkpoint, partitions)
                finally:
                    stop(spark)
        return before
    finally:
        checkpoint.close()
        jvm.end_unused()


def replace_state(spark: SparkSession, checkpoint: Checkpoint, partitions: int) -> None:
    """Replace Spark's part of an opened checkpoint, whose last batch is finished, by a repartitioned copy.

    Raises:
        MillraceError: the checkpoint cannot be copied or replaced, Spark cannot repartition, or the lease is lost.
    """
    with _copy_of(checkpoint) as copy:
        repartition_copy(spark, copy, partitions)
        checkpoint.require_lease()
        try:
            checkpoint.replace_spark(copy)
            checkpoint.note_state_partitions(partitions)
        except OSError as error:
            why = f"the changed state cannot be put in place in {checkpoint.root}: {error.strerror or error}"
            raise MillraceError(
                Problem(why, f"{_hint(checkpoint)}; then repeat this command: nothing is lost")
            ) from None


@contextmanager
def _copy_of(checkpoint: Checkpoint) -> Iterator[Path]:
    """Yield a copy of Spark's part: beside it, or of one in an object store in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="millrace-") as name:
        try:
            if isinstance(checkpoint.spark, ObjectPath):
                copy = Path(name, "spark")
                download(checkpoint.spark, copy)
            else:
                copy = make_copy(checkpoint.spark)
        except OSError as error:
            why = f"the checkpoint {checkpoint.root} cannot be copied: {error.strerror or error}"
            raise MillraceError(Problem(why, _hint(checkpoint))) from None
        yield copy


def _hint(checkpoint: Checkpoint) -> str:
    if isinstance(checkpoint.root, ObjectPath):
        return "check that the store answers, and that this machine has room for the state"
    return "free some space there, and let this user write to it"


def repartition_copy(spark: SparkSession, copy: Path, partitions: int) -> None:
    """Let Spark repartition the state in a copy of its part of a checkpoint.

    Raises:
        MillraceError: Spark cannot do it.
    """
    try:
        with plainly_named(copy) as path:
            spark._streamingCheckpointManager.repartition(str(path), partitions)
    except (PySparkException, Py4JJavaError) as error:
        cause = explain_failure(str(error)).problems[0]
        raise MillraceError(Problem(f"the state is unchanged: {cause.message}", cause.hint)) from None
    except (Py4JNetworkError, ConnectionError):
        raise jvm_gone() from None


def require_state(checkpoint: Checkpoint) -> None:
    """Raise MillraceError unless a batch was finished or begun, and the query keeps state."""
    if checkpoint.last_batch().begun is None:
        raise _no_state(checkpoint)
    if not (checkpoint.spark / "state").is_dir():
        hint = "only aggregations, joins and the like have state to repartition"
        raise MillraceError(Problem("the query keeps no state", hint))


def _require_finished_batches(checkpoint: Checkpoint) -> None:
    """Raise MillraceError unless every batch that was begun is finished."""
    last = checkpoint.last_batch()
    if last.unfinished is not None:
        message = f"batch {last.unfinished} of the checkpoint {checkpoint.root} was begun and is not finished"
        hint = "run the query again, end it with Ctrl-C after a batch, then repeat this command"
        raise MillraceError(Problem(message, hint))


def _no_state(checkpoint: Checkpoint) -> MillraceError:
    hint = "run the query first; a new one gets its number from spec.parallelism.max"
    return MillraceError(Problem(f"no batch has been finished on the checkpoint {checkpoint.root}", hint))
