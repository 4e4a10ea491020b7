"""What a run is assembled from: its query, the inputs of it, and the engine that computes it."""

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
from millrace_jobs.sinks.base import Sink
from millrace_jobs.sources.base import Source


@dataclass(frozen=True)
class RunQuery:
    """A query in the form that it runs in, and the sink of its results, which is ready for the next batch.

    ``spec`` has event times as columns.
    """

    name: str
    spec: Spec
    compiled: CompiledQuery
    sink: Sink


@dataclass(frozen=True)
class RunInputs:
    """What a query reads: its sources, as they were opened, and static tables that are read again.

    ``replicas`` place the records of a source, under plans that have them in processes of their own.
    """

    sources: Mapping[str, Source]
    tables: RefreshedTables | None = None
    replicas: ReplicaControl | None = None


@dataclass(frozen=True)
class Engine:
    """Spark, with the checkpoint that a run continues, and a folder for this run alone.

    ``cores`` returns the number of cores that run tasks now.
    """

    spark: SparkSession
    checkpoint: Checkpoint
    workspace: Path
    cores: Callable[[], int] = lambda: 1
