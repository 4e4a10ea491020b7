"""What a run is assembled from: its query, its inputs, and the environment that computes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from millrace_api.model.streamquery import Spec
from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.queries.execution import CompiledQuery
from millrace_jobs.run.replicas import ReplicaControl
from millrace_jobs.run.table_refresh import RefreshedTables
from millrace_jobs.session import ExecutorState
from millrace_jobs.sinks.base import Sink
from millrace_jobs.sources.base import Source


@dataclass(frozen=True)
class RunQuery:
    """The query that a run executes, in its compiled form, with the sink that is ready for its next batch.

    ``spec`` has event times as columns.
    """

    name: str
    spec: Spec
    compiled: CompiledQuery
    sink: Sink


@dataclass(frozen=True)
class RunInputs:
    """What a query reads: its opened sources, and the static tables that are refreshed.

    ``replicas`` place the records of a source under plans that dedicate processes to them.
    """

    sources: Mapping[str, Source]
    tables: RefreshedTables | None = None
    replicas: ReplicaControl | None = None


@dataclass(frozen=True)
class RunEnvironment:
    """Where a run computes: Spark, the checkpoint that it continues from, and a folder for this run alone.

    ``cores`` returns the number of cores that run tasks now, and ``executors`` the executors; None where tasks run in
    this process.
    """

    spark: SparkSession
    checkpoint: Checkpoint
    workspace: Path
    cores: Callable[[], int] = lambda: 1
    executors: Callable[[], ExecutorState | None] = lambda: None
