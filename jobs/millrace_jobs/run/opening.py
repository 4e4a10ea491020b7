"""The first phases of a run: this process becomes the driver, opens the sources, and starts Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import SparkSession

from millrace_api.errors import TransientError
from millrace_api.model.deployment import PlacementSetting
from millrace_api.model.streamquery import Spec, StreamQuery
from millrace_jobs.checkpoint.checkpoint import Checkpoint, checkpoint_root
from millrace_jobs.dedicated.processes import ReplicaProcesses
from millrace_jobs.lookups.check import StoreCheck
from millrace_jobs.plan.plan_source import PlanSource
from millrace_jobs.run.automatic_snapshots import AutomaticSnapshots
from millrace_jobs.run.endpoints import Endpoints
from millrace_jobs.run.inputs import read_static_tables, require_other_places, require_outside
from millrace_jobs.run.platform import Platform
from millrace_jobs.run.reports import RunReports
from millrace_jobs.run.server_checks import PATIENCE, ServerChecks
from millrace_jobs.run.table_refresh import RefreshedTables
from millrace_jobs.sinks.base import Sink
from millrace_jobs.sinks.connector import TABLE
from millrace_jobs.sources.base import Source

if TYPE_CHECKING:
    from millrace_jobs.display.display import Display


@dataclass(frozen=True)
class RunSetup:
    """The settings and callbacks that all phases of a start share.

    Args:
        query: the query as its file has it.
        spec: the query's spec with event times as columns; code that runs on the sources' records uses this one.
        platform: this process alone, or a driver's pod with executors.
        workspace: a folder for this run alone.
        display: shows the user which phase is running.
        given: the plans that the platform provides; None if the run makes its own.
        at_end: closes what the phases have opened, in reverse order.
        stop_requested: returns whether the run should end before its next phase.
        session: starts Spark with a number of state partitions, for the query that Spark's settings are taken from.
        step: is called with what the start does next, for its users to see.
        lookups_port: port on this machine for look-ups; 0 for any free one.
        service_port: port for look-ups by other pods; None outside a cluster.
        endpoints: what opens the sources and sinks.
    """

    query: StreamQuery
    spec: Spec
    platform: Platform
    workspace: Path
    display: Display
    given: PlanSource | None
    at_end: ExitStack
    stop_requested: Callable[[], bool]
    session: Callable[[int, StreamQuery], SparkSession]
    step: Callable[[str], None] = lambda _: None
    lookups_port: int = 0
    service_port: int | None = None
    endpoints: Endpoints = field(default_factory=Endpoints)


@dataclass(frozen=True)
class OpenedRun:
    """A run whose checkpoint is held, whose sources are open, and for which Spark has started."""

    checkpoint: Checkpoint
    snapshots: AutomaticSnapshots
    sources: Mapping[str, Source]
    tables: RefreshedTables
    static_tables: Mapping[str, pa.Table]
    processes: ReplicaProcesses
    copies: Path | None
    store_check: StoreCheck | None
    reports: RunReports
    spark: SparkSession


def open_checkpoint(setup: RunSetup) -> Checkpoint:
    """Make this process the driver of the query, by lock and lease, which it gives up at the end."""
    setup.step("opening the checkpoint and the sources")
    checkpoint = Checkpoint(checkpoint_root(setup.query))
    checkpoint.open(setup.query, setup.platform.state_partitions(setup.query.spec))
    close_at_end(setup, checkpoint, checkpoint)
    return checkpoint


def start_spark(setup: RunSetup, checkpoint: Checkpoint) -> OpenedRun:
    """Start Spark, for sources and a sink that can be used."""
    spec = setup.query.spec
    snapshots = _automatic_snapshots(setup, checkpoint)
    sources = setup.endpoints.sources(spec, checkpoint, setup.workspace)
    tables = RefreshedTables(
        spec,
        checkpoint.root / "tables",
        setup.workspace,
        checkpoint.oldest_contents,
        setup.endpoints.table_patience,
    )
    setup.at_end.callback(tables.close)
    tables.begin()
    static_tables = read_static_tables(spec, setup.workspace, setup.display.message)
    require_outside(spec, checkpoint.root)
    require_other_places(spec, sources)
    setup.endpoints.check_sinks(spec)
    servers = ServerChecks(sources, setup.endpoints.server_checks(spec))
    processes = _replica_processes(setup)
    copies = setup.platform.copies(checkpoint)
    store_check = _store_check(setup, copies)
    servers.wait(setup.stop_requested, PATIENCE)
    setup.step("starting Spark")
    reports = RunReports(setup.query, str(checkpoint.root), setup.display.message)
    setup.at_end.callback(reports.close)
    spark = setup.session(checkpoint.state_partitions, reports.query)
    reports.spark_started(spark)
    servers.require_accepted()
    return OpenedRun(
        checkpoint, snapshots, sources, tables, static_tables, processes, copies, store_check, reports, spark
    )


def _automatic_snapshots(setup: RunSetup, checkpoint: Checkpoint) -> AutomaticSnapshots:
    """Return the snapshots of the run; the one before a change is taken while Spark starts."""
    wanted, message, requests = setup.query.spec.snapshots, setup.display.message, setup.platform.snapshot_requests()
    snapshots = AutomaticSnapshots(checkpoint.root, wanted, message, lambda: checkpoint.lost is not None, requests)
    setup.at_end.callback(snapshots.close)
    if wanted is not None and checkpoint.last_batch().committed is not None:
        snapshots.before(setup.query)
    return snapshots


def _replica_processes(setup: RunSetup) -> ReplicaProcesses:
    """Return the processes of the partitioner's replicas; those of the first plan start beside Spark."""
    processes = setup.platform.replicas(setup.query, setup.workspace)
    setup.at_end.callback(processes.close)
    wanted = setup.query.spec.partitioner
    if setup.given is None and wanted.placement is PlacementSetting.DEDICATED:
        processes.scale(wanted.replicas.at_start)
    return processes


def _store_check(setup: RunSetup, copies: Path | None) -> StoreCheck | None:
    """Return the check of an earlier run's copy of the result table, which runs while Spark starts."""
    table = setup.query.spec.sink.table
    has_rows = table is not None and table.history is None and not table.by_partition
    if copies is None or not has_rows:  # with a history, no run continues the rows
        return None
    check = StoreCheck(copies / TABLE)
    setup.at_end.callback(check.close)
    return check


def close_at_end(setup: RunSetup, opened: Checkpoint | Sink, checkpoint: Checkpoint) -> None:
    """Close ``opened`` at the end of the run; remove it first if the run failed before its first batch.

    It stays after a transient failure: the next attempt continues from what this one has settled, such as where a
    Kafka topic ended.
    """

    def end(_: object, error: BaseException | None, __: object) -> None:
        failed = isinstance(error, Exception) and not isinstance(error, TransientError)
        try:
            with suppress(OSError):  # the disk may be why the run failed; report that failure
                if failed and checkpoint.may_be_withdrawn():
                    opened.withdraw()
        finally:
            opened.close()

    setup.at_end.push(end)
