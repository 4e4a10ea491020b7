"""What a job runs on: one process of this machine, or a driver's pod with executors in pods of their own."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pyspark.sql import SparkSession

from millrace_api.model.streamquery import Spec, StreamQuery
from millrace_api.validation.loading import load_plan
from millrace_jobs.pipeline.progress import BatchReport
from millrace_jobs.plan.following import PlanFile, PlanSource, pin_of
from millrace_jobs.plan.pin import Pin
from millrace_jobs.session import local_session


class Platform(Protocol):
    """Gives a job what it runs on, and is told what it does."""

    @property
    def host(self) -> str:
        """Address that metrics and probes listen on."""
        ...

    @property
    def chooses_algorithm(self) -> bool:
        """Whether ``algorithm: auto`` is a matter of the job; else the algorithm is that of the plans."""
        ...

    def state_partitions(self, spec: Spec) -> int:
        """Of a query that has no state yet."""
        ...

    def plans(self) -> PlanSource | None:
        """Where plans come from; None where the query makes its own.

        Raises:
            MillraceError: the first plan cannot be followed.
        """
        ...

    def session(self, query: StreamQuery, partitions: int, workspace: Path, *, quiet: bool) -> SparkSession:
        """Spark; ``quiet`` drops what the JVM and its Python processes print."""
        ...

    def cores(self, spark: SparkSession) -> int:
        """On which tasks run at the same time now."""
        ...

    def started(self, spark: SparkSession, partitions: int) -> None:
        """The first batch is about to begin, with so many partitions of the state."""
        ...

    def batch(self, report: BatchReport) -> None:
        """A batch has been finished."""
        ...

    def idle(self, pin: Pin) -> None:
        """There is nothing to do under this pin."""
        ...

    def close(self) -> None:
        """The job has ended; Spark is still there."""
        ...


@dataclass
class OneProcess:
    """Local Spark, and a plan file where there is one."""

    plan_file: Path | None = None
    host: str = "127.0.0.1"

    @property
    def chooses_algorithm(self) -> bool:
        """A plan file says which."""
        return self.plan_file is None

    def state_partitions(self, spec: Spec) -> int:
        """At most one per core of this machine."""
        return spec.state_partitions(os.cpu_count() or 2)

    def plans(self) -> PlanSource | None:
        """The plan file, where its first plan can be followed."""
        if self.plan_file is None:
            return None
        pin_of(load_plan(self.plan_file))
        return PlanFile(self.plan_file)

    def session(self, query: StreamQuery, partitions: int, workspace: Path, *, quiet: bool) -> SparkSession:
        """In this process, on all its cores."""
        return local_session(query.name, partitions, query.spec.spark_conf, workspace, quiet=quiet)

    def cores(self, spark: SparkSession) -> int:
        """Of this machine."""
        return int(spark.sparkContext.defaultParallelism)

    def started(self, spark: SparkSession, partitions: int) -> None:
        """Nobody else has to know."""

    def batch(self, report: BatchReport) -> None:
        """Nobody else has to know."""

    def idle(self, pin: Pin) -> None:
        """Nobody else has to know."""

    def close(self) -> None:
        """Nothing is held."""
