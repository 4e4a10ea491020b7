"""The platforms of a job: one process on this machine, or a driver pod with executor pods."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pyspark.sql import SparkSession

from millrace_api.errors import MillraceError
from millrace_api.model.memory_use import ExecutorSeries, MemorySeries
from millrace_api.model.streamquery import Spec, StreamQuery
from millrace_api.validation.loading import load_plan
from millrace_jobs.checkpoint.checkpoint import COPIES, Checkpoint
from millrace_jobs.checkpoint.spark_settings import settings_of
from millrace_jobs.dedicated.processes import LocalReplicas, ReplicaProcesses
from millrace_jobs.pending import PendingCall
from millrace_jobs.pipeline.progress import BatchReport
from millrace_jobs.plan.control import Pin
from millrace_jobs.plan.plan_source import PlanFile, PlanSource, pin_of
from millrace_jobs.run.requested_snapshots import SnapshotRequests
from millrace_jobs.session import ExecutorState, local_session


class Platform(Protocol):
    """The environment that a job runs in; it also receives the job's events."""

    @property
    def host(self) -> str:
        """The address that metrics and probes listen on."""

    @property
    def chooses_algorithm(self) -> bool:
        """Whether the job itself resolves ``algorithm: auto`` now; else the algorithm is that of the plans or stays."""

    def state_partitions(self, spec: Spec) -> int:
        """Return the number of state partitions for a query that has no checkpoint yet."""

    def plans(self) -> PlanSource | None:
        """Return the source of plans; None if the job makes its own plan.

        Raises:
            MillraceError: the first plan cannot be followed.
        """

    def session(self, query: StreamQuery, partitions: int, workspace: Path, *, quiet: bool) -> SparkSession:
        """Return the Spark session; ``quiet`` drops what the JVM and its Python processes print."""

    def replicas(self, query: StreamQuery, workspace: Path) -> ReplicaProcesses:
        """Return what runs the processes of the partitioner's replicas."""

    def copies(self, checkpoint: Checkpoint) -> Path | None:
        """Return the folder on a local disk where copies of tables stay between runs; None if there is none."""

    def cores(self, spark: SparkSession) -> int:
        """Return the number of cores that run tasks now."""

    def executors(self) -> ExecutorState | None:
        """Return the executors; None where tasks run in this process."""

    def snapshot_requests(self) -> SnapshotRequests | None:
        """Return who asks for snapshots while the query runs; None where nothing does."""

    def when_replaced(self, give_way: Callable[[], None]) -> None:
        """Call ``give_way``, in any thread, once another version of the query is to take over in this process."""

    def started(self, spark: SparkSession, partitions: int) -> None:
        """Handle the start of the first batch; ``partitions`` is the number of state partitions."""

    def batch(self, report: BatchReport) -> None:
        """Handle a finished batch."""

    def idle(self, pin: Pin) -> None:
        """Handle an idle query: its next records will be processed under this pin."""

    def waits(self, calls: Sequence[PendingCall]) -> MillraceError | None:
        """Handle the calls that last now, of which there are none most of the time.

        Return the error to end the run with at once; None lets it wait.
        """

    def memory(self, driver: Sequence[MemorySeries], executor: ExecutorSeries | None) -> None:
        """Handle the memory in use of the driver, and of the executor nearest to its limit, as it went lately."""

    def close(self) -> None:
        """Handle the end of the job, before Spark stops."""


@dataclass
class OneProcess:
    """Local Spark, with an optional plan file."""

    plan_file: Path | None = None
    host: str = "127.0.0.1"

    @property
    def chooses_algorithm(self) -> bool:
        """Whether the job chooses the algorithm: only without a plan file."""
        return self.plan_file is None

    def state_partitions(self, spec: Spec) -> int:
        """Return the number of state partitions that suits the cores of this machine."""
        return spec.state_partitions(os.cpu_count() or 2)

    def plans(self) -> PlanSource | None:
        """Return the plan file, or None without one; raise if its first plan cannot be followed."""
        if self.plan_file is None:
            return None
        pin_of(load_plan(self.plan_file))
        return PlanFile(self.plan_file)

    def session(self, query: StreamQuery, partitions: int, workspace: Path, *, quiet: bool) -> SparkSession:
        """Return a local Spark session."""
        return local_session(query.name, partitions, settings_of(query), workspace, quiet=quiet)

    def replicas(self, query: StreamQuery, workspace: Path) -> ReplicaProcesses:
        """Return child processes of this one."""
        return LocalReplicas(query, workspace)

    def copies(self, checkpoint: Checkpoint) -> Path | None:
        """Return a folder in the checkpoint; None if that is in an object store."""
        return checkpoint.root / COPIES if isinstance(checkpoint.root, Path) else None

    def cores(self, spark: SparkSession) -> int:
        """Return the number of cores of local Spark."""
        return int(spark.sparkContext.defaultParallelism)

    def executors(self) -> ExecutorState | None:
        """Return None: tasks run in this process."""
        return None

    def snapshot_requests(self) -> None:
        """Return None: on this machine, millrace snapshot takes them."""

    def when_replaced(self, give_way: Callable[[], None]) -> None:
        """Do nothing: a process runs the query that it was started with."""

    def started(self, spark: SparkSession, partitions: int) -> None:
        """Do nothing: one process has no operator to notify."""

    def batch(self, report: BatchReport) -> None:
        """Do nothing: one process has no operator to notify."""

    def idle(self, pin: Pin) -> None:
        """Do nothing: one process has no operator to notify."""

    def waits(self, calls: Sequence[PendingCall]) -> MillraceError | None:
        """Do nothing: one process has no operator to notify."""
        return None

    def memory(self, driver: Sequence[MemorySeries], executor: ExecutorSeries | None) -> None:
        """Do nothing: one process has no operator to notify."""

    def close(self) -> None:
        """Do nothing: the platform holds no resources."""
