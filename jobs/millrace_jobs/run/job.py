"""One query in this process: the shared core of ``millrace run``, ``millrace driver`` and ``millrace explain``.

``Job`` opens, compiles and assembles; the batches are those of ``loop``.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from pyspark.sql import SparkSession
from rich.console import Console

from millrace_api.errors import MillraceError, TransientError
from millrace_api.model.deployment import ANOTHER_CHECKPOINT, PlacementSetting
from millrace_api.model.status import FailureClass
from millrace_api.model.streamquery import Spec, StreamQuery
from millrace_api.sql.nested_times import shown_times, with_flat_times
from millrace_jobs import jvm
from millrace_jobs.checkpoint.checkpoint import Checkpoint, checkpoint_root
from millrace_jobs.dedicated.processes import ReplicaProcesses
from millrace_jobs.display.display import Outcome, display_for
from millrace_jobs.lookups.check import StoreCheck
from millrace_jobs.pipeline.incomplete import why_incomplete
from millrace_jobs.pipeline.refreshed_tables import refreshed_table
from millrace_jobs.plan.plan_source import PlanSource, pin_of
from millrace_jobs.queries.compile import compile_query
from millrace_jobs.queries.execution import CompiledQuery
from millrace_jobs.queries.results import lookup_columns, require_partitions, result_keys
from millrace_jobs.queries.state_layout import continue_from, spec_to_continue
from millrace_jobs.run.assembly import Engine, RunInputs, RunQuery
from millrace_jobs.run.failures import attributed_to
from millrace_jobs.run.gc_times import GarbageCollection
from millrace_jobs.run.inputs import (
    open_sources,
    read_static_tables,
    require_other_places,
    require_outside,
    unread_note,
    user_schemas,
    waiting_note,
)
from millrace_jobs.run.late_records import closed_until, why_late
from millrace_jobs.run.lookups import TableLookups, service_settings
from millrace_jobs.run.loop import QueryRun
from millrace_jobs.run.metrics import CHECKPOINT_FAILURES, REFRESH_FAILURES, RUN_RESTARTS, JobMetrics
from millrace_jobs.run.observer import Health, Observer
from millrace_jobs.run.plans import AUTO_IS_INLINE, AutoPlans, first_plan, followed_plans, given_plans, unused_algorithm
from millrace_jobs.run.platform import OneProcess, Platform
from millrace_jobs.run.query_file import errors_located_in
from millrace_jobs.run.replicas import ReplicaControl
from millrace_jobs.run.reports import RunReports, without_event_log
from millrace_jobs.run.store_traffic import ObjectStoreTraffic
from millrace_jobs.run.table_refresh import RefreshedTables
from millrace_jobs.selection.costs import Resources
from millrace_jobs.session import stop
from millrace_jobs.sinks.base import ResultKeys, Sink
from millrace_jobs.sinks.connector import TABLE
from millrace_jobs.sinks.outputs import check_sinks, errors_of, open_sinks, remove_unused
from millrace_jobs.sources.base import Source
from millrace_jobs.stores.requests import counting_in
from millrace_support.http_server import HttpServer


@dataclass(frozen=True)
class OpenedRun:
    """A run whose checkpoint is held, whose sources are open, and for which Spark has started."""

    checkpoint: Checkpoint
    sources: Mapping[str, Source]
    tables: RefreshedTables
    static_tables: Mapping[str, pa.Table]
    processes: ReplicaProcesses
    copies: Path | None
    store_check: StoreCheck | None
    reports: RunReports
    spark: SparkSession


@dataclass(frozen=True)
class PreparedQuery:
    """A query in the form that continues from its checkpoint, with its sink ready for the first batch."""

    compiled: CompiledQuery
    sink: Sink
    lookups: TableLookups | None


@dataclass
class Job:
    """One query to run or explain in this process; a context manager that releases Spark and files.

    With ``once``, the run ends when the available records are processed. At the end of its input, a run closes all
    windows, unless ``leaves_open``.

    A run passes through these phases, each of which hands its result to the next. ``stop`` ends it before the next
    phase, or after the running batch:

    1. ``_open_checkpoint``: this process becomes the driver, by lock and lease.
    2. ``_start_spark``, once the sources are open and the sink can be used.
    3. ``_compile``: the query in the form that fits the checkpoint's state, and the sink ready for its first batch.
    4. ``_assemble``: the plan source, the run loop and its observer; metrics and probes are served.
    5. ``_supervise``: batches, until the run is finished, drained or failed (``loop.QueryRun``).

    What a phase has opened is closed in reverse order at the end. A checkpoint or sink that the run has created is
    removed if the run failed before its first batch.
    """

    query: StreamQuery
    platform: Platform = field(default_factory=OneProcess)
    once: bool = False
    metrics_port: int = 0
    lookups_port: int = 0
    debug: bool = False
    file: Path | None = None
    leaves_open: bool = False
    service_port: int | None = None
    """Port for look-ups by other pods, where the query asks for them; None where there are no other pods."""

    console: Console = field(default_factory=Console)
    stop_requested: bool = False
    _stack: ExitStack = field(default_factory=ExitStack)
    _run: QueryRun | None = None
    _spec: Spec = field(init=False)
    """The spec with event times as columns, which everything goes by that runs on the records of sources."""

    def __enter__(self) -> Self:
        if self.file is not None:
            self._stack.enter_context(errors_located_in(self.file, self.query.name))
        self._stack.callback(jvm.end_unused)
        self._spec = with_flat_times(self.query.spec)
        self._workspace = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="millrace-")))
        self._store_requests = self._stack.enter_context(counting_in(self._workspace / "store-requests"))
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def run(self) -> None:
        """Run the query to its end.

        Raises:
            MillraceError: the query cannot run, or has failed.
        """
        self._given = given_plans(self.platform, self.query.spec)
        self._display = display_for(self.console, self.query.name)
        self._stack.callback(self._display.close)
        checkpoint = self._open_checkpoint()
        if self.stop_requested:
            return
        opened = self._start_spark(checkpoint)
        if self.stop_requested:
            return
        prepared = self._compile(opened)
        if prepared is None or self.stop_requested:
            return
        run, observer = self._assemble(opened, prepared)
        if not self.stop_requested:
            self._supervise(opened, run, observer)

    def _open_checkpoint(self) -> Checkpoint:
        self._display.starting("opening the checkpoint and the sources")
        checkpoint = Checkpoint(checkpoint_root(self.query))
        checkpoint.open(self.query, self.platform.state_partitions(self.query.spec))
        self._close_at_end(checkpoint, checkpoint)
        return checkpoint

    def _start_spark(self, checkpoint: Checkpoint) -> OpenedRun:
        """Start Spark, for sources and a sink that can be used."""
        spec = self.query.spec
        sources = open_sources(spec, checkpoint.root / "sources", self._workspace)
        tables = RefreshedTables(spec, checkpoint.root / "tables", self._workspace, checkpoint.oldest_contents)
        self._stack.callback(tables.close)
        tables.begin()
        static_tables = read_static_tables(spec, self._workspace, self._display.message)
        require_outside(spec, checkpoint.root)
        require_other_places(spec, sources)
        check_sinks(spec)
        processes = self._replica_processes()
        copies = self.platform.copies(checkpoint)
        store_check = self._store_check(copies)
        self._display.starting("starting Spark")
        reports = RunReports(self.query, str(checkpoint.root), self._display.message)
        self._stack.callback(reports.close)
        spark = self._session(checkpoint.state_partitions, reports.query)
        reports.spark_started(spark)
        return OpenedRun(checkpoint, sources, tables, static_tables, processes, copies, store_check, reports, spark)

    def _replica_processes(self) -> ReplicaProcesses:
        """Return the processes of the partitioner's replicas; those of the first plan start beside Spark."""
        processes = self.platform.replicas(self.query, self._workspace)
        self._stack.callback(processes.close)
        wanted = self.query.spec.partitioner
        if self._given is None and wanted.placement is PlacementSetting.DEDICATED:
            processes.scale(wanted.replicas.at_start)
        return processes

    def _store_check(self, copies: Path | None) -> StoreCheck | None:
        """Return the check of an earlier run's copy of the result table, which runs while Spark starts."""
        table = self.query.spec.sink.table
        has_rows = table is not None and table.history is None and not table.by_partition
        if copies is None or not has_rows:  # with a history, no run continues the rows
            return None
        check = StoreCheck(copies / TABLE)
        self._stack.callback(check.close)
        return check

    def _session(self, partitions: int, query: StreamQuery) -> SparkSession:
        spark = self.platform.session(query, partitions, self._workspace, quiet=not self.debug)
        self._stack.callback(stop, spark)
        self._stack.callback(self.platform.close)
        return spark

    def _compile(self, opened: OpenedRun) -> PreparedQuery | None:
        """Compile the query in the form that can continue from the state in the checkpoint, and prepare its sink.

        Return None if the run is to end before that.
        """
        self._display.starting("compiling the query")
        spark, checkpoint, tables = opened.spark, opened.checkpoint, opened.tables
        spec = spec_to_continue(self._spec, checkpoint.layout)
        compiled = compile_query(spark, spec, user_schemas(self._spec, opened.sources))
        for name, rows in opened.static_tables.items():
            spark.createDataFrame(rows).persist().createOrReplaceTempView(name)
        tables.wait(lambda: self.stop_requested)
        if self.stop_requested:
            return None
        for message in tables.messages():
            self._display.message(message)
        for name, (columns, place, size) in tables.tables().items():
            table = refreshed_table(spark, name, columns, place, checkpoint.spark, size)
            table.createOrReplaceTempView(name)
        compiled, native = continue_from(compiled, spec.query.sql, checkpoint.layout)
        require_partitions(compiled.execution, spec)
        if native is not None:
            self._display.message(native)
        elif spec is not self._spec:
            why = "the query does not run natively: the state in its checkpoint was built by operators on tables"
            self._display.message(f"{why}: choose {ANOTHER_CHECKPOINT} to have it run by Spark's own plan")
        if note := unused_algorithm(self.query.spec, compiled):
            self._display.message(note)
        if self._given is None and self.query.spec.partitioner.placement is PlacementSetting.AUTO:
            self._display.message(AUTO_IS_INLINE)
        if opened.store_check is not None:
            opened.store_check.wait(lambda: self.stop_requested)
            if self.stop_requested:
                return None
        return self._prepare_sink(opened, compiled)

    def _prepare_sink(self, opened: OpenedRun, compiled: CompiledQuery) -> PreparedQuery:
        """Prepare the sink for the first batch; from then on the checkpoint is this query's."""
        checkpoint, keys = opened.checkpoint, self._result_keys(compiled)
        checkpoint.record_layout(compiled.execution.layout())
        if opened.copies is not None:
            remove_unused(opened.copies, self._spec, keys, has_rows=opened.store_check is not None)
        lookups, table = None, self.query.spec.sink.table
        if table is not None and not table.by_partition:
            columns = lookup_columns(compiled, keys["spec"], self._spec)
            has_history, name = keys["spec"].versioned, self.query.name
            rows = None if opened.store_check is None else opened.copies
            asked, service = self.query.spec.lookups, None
            if asked is not None and self.service_port is not None:
                service = service_settings(asked, self.platform.host, self.service_port, self._workspace)
            elif asked is not None:
                self._display.message("spec.lookups is for a cluster: this machine alone can look rows up in this run")
            lookups = TableLookups(
                self._workspace, name, columns, self.lookups_port, has_history=has_history, service=service, copies=rows
            )
            self._stack.callback(lookups.close)
        view, show = None if lookups is None else lookups.view, self._display.table
        partitions = compiled.execution.result_partitions(checkpoint.state_partitions)
        sink = open_sinks(
            self.query, keys, checkpoint.id, show, view, compiled.result, opened.copies, partitions=partitions
        )
        self._close_at_end(sink, checkpoint)
        checkpoint.require_lease()  # ``prepare`` fences other drivers, and one may hold the lease by now
        with attributed_to(FailureClass.SINK):
            sink.prepare(checkpoint.last_batch())
        for remark in checkpoint.adopt(self.query):
            self._display.message(remark)
        return PreparedQuery(compiled, sink, lookups)

    def _assemble(self, opened: OpenedRun, prepared: PreparedQuery) -> tuple[QueryRun, Observer]:
        """Put together the run loop and what watches it, and serve metrics and probes."""
        checkpoint, tables, spark, reports = opened.checkpoint, opened.tables, opened.spark, opened.reports
        plans = self._plans(opened, prepared.compiled)
        auto = plans if isinstance(plans, AutoPlans) else None
        # the first batch of a backlog takes long
        health = Health(max(600.0, 20 * self.query.spec.batch_interval.seconds), self.platform.executors)
        counts = {
            CHECKPOINT_FAILURES: lambda: checkpoint.failed_writes,
            RUN_RESTARTS: lambda: 0 if self._run is None else self._run.restarts,
            **reports.counts,
            REFRESH_FAILURES: lambda: sum(each.failures for each in tables.states().values()),
        }
        root = checkpoint.root
        metrics = JobMetrics(self.query.name, counts, root if isinstance(root, Path) else None, tables.states)
        waits = isinstance(self.platform, OneProcess) and not self.once
        note = waiting_note(opened.sources) if waits else ""
        garbage, traffic = GarbageCollection(spark), ObjectStoreTraffic(spark, self._store_requests)
        shown = (self._display, metrics, health, self.platform, auto, note)
        observer = Observer(*shown, garbage=garbage, traffic=traffic, reports=reports)
        registry = metrics.registry
        server = HttpServer(registry, health.liveness, health.readiness, self.platform.host, self.metrics_port)
        server.start()
        self._stack.callback(server.close)
        facts = {"metrics": f"{server.url}/metrics", "checkpoint": str(root), "results": prepared.sink.place}
        if prepared.lookups is not None:
            facts["lookups"] = prepared.lookups.listen(self.query)
        replicas = ReplicaControl(self.query, prepared.compiled, opened.sources, opened.processes)
        self._stack.callback(replicas.close)
        self._run = QueryRun(
            RunQuery(self.query.name, self._spec, prepared.compiled, prepared.sink),
            RunInputs(opened.sources, tables or None, replicas),
            Engine(spark, checkpoint, self._workspace, lambda: self.platform.cores(spark)),
            plans=plans,
            watcher=observer,
            once=self.once,
            leaves_open=self.leaves_open,
            accepted=partial(self._display.started, facts),
        )
        return self._run, observer

    def _plans(self, opened: OpenedRun, compiled: CompiledQuery) -> PlanSource:
        """Return the plan source that the run follows."""

        def resources() -> Resources:
            return Resources(self.platform.cores(opened.spark), opened.checkpoint.state_partitions)

        spec = self.query.spec
        first = first_plan(spec, compiled, opened.checkpoint.last_pin())
        chooser = resources if self.platform.chooses_algorithm else None
        return followed_plans(spec, compiled, first, self._given, chooser, self._display.message)

    def _supervise(self, opened: OpenedRun, run: QueryRun, observer: Observer) -> None:
        """Run the loop to its end, and show the summary of the run."""
        reports = opened.reports
        observer.health.running()
        self.platform.started(opened.spark, opened.checkpoint.state_partitions)
        reports.started(self._spec, opened.sources, run.query.compiled.result, run)
        began = time.monotonic()
        before, closed = run.engine.checkpoint.committed(), closed_until(run.engine.checkpoint)
        outcome: Outcome = "failed"
        try:
            outcome = run.run()
            unread = outcome == "finished" and not observer.tally.rows and not observer.tally.rejected
            if unread and (note := unread_note(self.query.spec, opened.sources, run.engine.checkpoint, before)):
                observer.message(note)
            if observer.tally.late:
                tally, spec = observer.tally, self.query.spec
                observer.message(why_late(tally.late, spec, before_1970=tally.before_1970, closed=closed))
            if observer.tally.incomplete:
                why = why_incomplete(observer.tally.incomplete, self._spec)
                observer.message(shown_times(why, self.query.spec))
            reports.ended(outcome)
        except BaseException as error:
            observer.health.failed(str(error))
            reports.ended("failed", error if isinstance(error, Exception) else None)
            raise
        finally:
            observer.health.closing()
            seconds = time.monotonic() - began
            if run.is_accepted or self.stop_requested:  # a query that Spark rejected has an error, no summary
                observer.display.finished(
                    observer.tally.summary(
                        outcome,
                        results=run.results,
                        seconds=seconds,
                        plan_changes=run.plan_changes,
                        output=run.query.sink.place,
                    )
                )

    def _close_at_end(self, opened: Checkpoint | Sink, checkpoint: Checkpoint) -> None:
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

        self._stack.push(end)

    def explain(self) -> str:
        """Describe how the query would run."""
        given = given_plans(self.platform, self.query.spec)
        sources = open_sources(self.query.spec, self._workspace / "sources", self._workspace)
        partitions = self.platform.state_partitions(self.query.spec)
        spark = self._session(partitions, without_event_log(self.query))
        compiled = compile_query(spark, self._spec, user_schemas(self._spec, sources))
        require_partitions(compiled.execution, self._spec)
        self._result_keys(compiled)
        compiled.check_streaming(self._spec, spark, sources)
        plan = given.current() if given is not None else None
        pin = pin_of(plan or first_plan(self.query.spec, compiled))
        schemas = {name: source.schema for name, source in sources.items()}
        problem = compiled.execution.dedicated_problem(self._spec, schemas) if pin.is_dedicated else None
        if problem is not None:
            raise MillraceError(problem)
        return shown_times(compiled.explain(self._spec, sources, pin, partitions), self.query.spec)

    def _result_keys(self, compiled: CompiledQuery) -> dict[str, ResultKeys]:
        """Return the keys of each output, by its field in the spec."""
        keys = {}
        for name, output in self._spec.outputs.items():
            with errors_of(name):
                keys[name] = result_keys(compiled, output)
        return keys

    def stop(self) -> None:
        """Request an end after the running batch; safe in a signal handler."""
        self.stop_requested = True
        if self._run is not None:
            self._run.drain()

    @property
    def is_starting(self) -> bool:
        """Whether no batch can be running yet."""
        return self._run is None

    def abandon(self) -> None:
        """Restore the terminal and remove the workspace before the process exits at once; safe in a signal handler."""
        if os.isatty(1):
            os.write(1, b"\x1b[?25h\n")  # shows the cursor, which a live display hides
        shutil.rmtree(self._workspace, ignore_errors=True)
        jvm.abandon()
