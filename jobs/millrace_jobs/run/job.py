"""One query in this process: the shared core of ``millrace run``, ``millrace driver`` and ``millrace explain``."""

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
from millrace_jobs.run.failures import attributed_to
from millrace_jobs.run.gc_times import GarbageCollection
from millrace_jobs.run.inputs import (
    no_record_note,
    nothing_new_note,
    open_sources,
    read_static_tables,
    require_other_places,
    require_outside,
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
from millrace_jobs.stores.requests import counting_in
from millrace_support.http_server import HttpServer


@dataclass
class Job:
    """One query to run or explain in this process; a context manager that releases Spark and files.

    With ``once``, the run ends when the available records are processed. At the end of its input, a run closes all
    windows, unless ``leaves_open``.

    A run passes through these phases. ``stop`` ends it before the next phase, or after the running batch:

    1. ``_open_checkpoint``: this process becomes the driver, by lock and lease.
    2. ``_start_spark``, once the sources are open and the sink can be used.
    3. ``_compile``: the query in the form that fits the checkpoint's state, and the sink ready for its first batch.
    4. ``_assemble``: the plan source, the run loop and its observer; metrics and probes are served.
    5. ``_supervise``: batches, until the run is finished, drained or failed (``QueryRun``).

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
    _lookups: TableLookups | None = None
    _store_check: StoreCheck | None = None
    _copies: Path | None = None
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
        phases = (self._open_checkpoint, self._start_spark, self._compile, self._assemble, self._supervise)
        for phase in phases:
            if self.stop_requested:
                return
            phase()

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

    def _open_checkpoint(self) -> None:
        self._display.starting("opening the checkpoint and the sources")
        self._checkpoint = Checkpoint(checkpoint_root(self.query))
        self._checkpoint.open(self.query, self.platform.state_partitions(self.query.spec))
        self._close_at_end(self._checkpoint)

    def _start_spark(self) -> None:
        """Start Spark, for sources and a sink that can be used."""
        self._sources = open_sources(self.query.spec, self._checkpoint.root / "sources", self._workspace)
        self._tables = RefreshedTables(
            self.query.spec, self._checkpoint.root / "tables", self._workspace, self._checkpoint.oldest_contents
        )
        self._stack.callback(self._tables.close)
        self._tables.begin()
        self._static_tables = read_static_tables(self.query.spec, self._workspace, self._display.message)
        require_outside(self.query.spec, self._checkpoint.root)
        require_other_places(self.query.spec, self._sources)
        check_sinks(self.query.spec)
        self._processes = self._replica_processes()
        self._copies = self._checked_copies()
        self._display.starting("starting Spark")
        self._reports = RunReports(self.query, str(self._checkpoint.root), self._display.message)
        self._stack.callback(self._reports.close)
        self._spark = self._session(self._checkpoint.state_partitions, self._reports.query)
        self._reports.spark_started(self._spark)

    def _compile(self) -> None:
        """Compile the query in the form that can continue from the state in the checkpoint, and prepare its sink."""
        self._display.starting("compiling the query")
        spec = spec_to_continue(self._spec, self._checkpoint.layout)
        compiled = compile_query(self._spark, spec, user_schemas(self._spec, self._sources))
        for name, rows in self._static_tables.items():
            self._spark.createDataFrame(rows).persist().createOrReplaceTempView(name)
        self._tables.wait(lambda: self.stop_requested)
        if self.stop_requested:
            return
        for message in self._tables.messages():
            self._display.message(message)
        for name, (columns, place, size) in self._tables.tables().items():
            table = refreshed_table(self._spark, name, columns, place, self._checkpoint.spark, size)
            table.createOrReplaceTempView(name)
        self._compiled, native = continue_from(compiled, spec.query.sql, self._checkpoint.layout)
        require_partitions(self._compiled.execution, spec)
        if native is not None:
            self._display.message(native)
        elif spec is not self._spec:
            why = "the query does not run natively: the state in its checkpoint was built by operators on tables"
            self._display.message(f"{why}: choose {ANOTHER_CHECKPOINT} to have it run by Spark's own plan")
        if note := unused_algorithm(self.query.spec, self._compiled):
            self._display.message(note)
        if self._given is None and self.query.spec.partitioner.placement is PlacementSetting.AUTO:
            self._display.message(AUTO_IS_INLINE)
        if self._store_check is not None:
            self._store_check.wait(lambda: self.stop_requested)
            if self.stop_requested:
                return
        self._sink = self._prepared_sink()

    def _assemble(self) -> None:
        """Put together the run loop and what watches it, and serve metrics and probes."""
        plans = self._plans()
        auto = plans if isinstance(plans, AutoPlans) else None
        # the first batch of a backlog takes long
        health = Health(max(600.0, 20 * self.query.spec.batch_interval.seconds), self.platform.executors)
        counts = {
            CHECKPOINT_FAILURES: lambda: self._checkpoint.failed_writes,
            RUN_RESTARTS: lambda: 0 if self._run is None else self._run.restarts,
            **self._reports.counts,
            REFRESH_FAILURES: lambda: sum(each.failures for each in self._tables.states().values()),
        }
        root = self._checkpoint.root
        metrics = JobMetrics(self.query.name, counts, root if isinstance(root, Path) else None, self._tables.states)
        waits = isinstance(self.platform, OneProcess) and not self.once
        note = waiting_note(self._sources) if waits else ""
        garbage, reports = GarbageCollection(self._spark), self._reports
        traffic = ObjectStoreTraffic(self._spark, self._store_requests)
        shown = (self._display, metrics, health, self.platform, auto, note)
        self._observer = Observer(*shown, garbage=garbage, traffic=traffic, reports=reports)
        registry = self._observer.metrics.registry
        server = HttpServer(registry, health.liveness, health.readiness, self.platform.host, self.metrics_port)
        server.start()
        self._stack.callback(server.close)
        facts = {"metrics": f"{server.url}/metrics", "checkpoint": str(root), "results": self._sink.place}
        if self._lookups is not None:
            facts["lookups"] = self._lookups.listen(self.query)
        replicas = ReplicaControl(self.query, self._compiled, self._sources, self._processes)
        self._stack.callback(replicas.close)
        self._run = QueryRun(
            spark=self._spark,
            name=self.query.name,
            spec=self._spec,
            query=self._compiled,
            sources=self._sources,
            sink=self._sink,
            checkpoint=self._checkpoint,
            plans=plans,
            replicas=replicas,
            watcher=self._observer,
            workspace=self._workspace,
            once=self.once,
            leaves_open=self.leaves_open,
            tables=self._tables or None,
            cores=lambda: self.platform.cores(self._spark),
            accepted=partial(self._display.started, facts),
        )

    def _supervise(self) -> None:
        """Run the loop to its end, and show the summary of the run."""
        run, observer = self._run, self._observer
        assert run is not None
        observer.health.running()
        self.platform.started(self._spark, self._checkpoint.state_partitions)
        self._reports.started(self._spec, self._sources, self._compiled.result, run)
        began = time.monotonic()
        before, closed = run.checkpoint.committed(), closed_until(run.checkpoint)
        outcome: Outcome = "failed"
        try:
            outcome = run.run()
            if outcome == "finished":
                self._explain_nothing(before, observer)
            if observer.tally.late:
                tally, spec = observer.tally, self.query.spec
                observer.message(why_late(tally.late, spec, before_1970=tally.before_1970, closed=closed))
            if observer.tally.incomplete:
                why = why_incomplete(observer.tally.incomplete, self._spec)
                observer.message(shown_times(why, self.query.spec))
            self._reports.ended(outcome)
        except BaseException as error:
            observer.health.failed(str(error))
            self._reports.ended("failed", error if isinstance(error, Exception) else None)
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
                        output=run.sink.place,
                    )
                )

    def _explain_nothing(self, before: Mapping[str, Mapping[str, Any]], observer: Observer) -> None:
        """Say why a run that has ended has read nothing; ``before`` are the offsets that it began with."""
        note, after = "", self._checkpoint.committed()
        if observer.tally.rows or observer.tally.rejected:
            return
        if before and all(offset["position"] == before[name]["position"] for name, offset in after.items()):
            note = nothing_new_note(self.query.spec, self._checkpoint.root)
        else:
            note = no_record_note(self._sources, after)
        if note:
            observer.message(note)

    def _close_at_end(self, opened: Checkpoint | Sink) -> None:
        """Close ``opened`` at the end of the run; remove it first if the run failed before its first batch.

        It stays after a transient failure: the next attempt continues from what this one has settled, such as where a
        Kafka topic ended.
        """

        def end(_: object, error: BaseException | None, __: object) -> None:
            failed = isinstance(error, Exception) and not isinstance(error, TransientError)
            try:
                with suppress(OSError):  # the disk may be why the run failed; report that failure
                    if failed and self._checkpoint.may_be_withdrawn():
                        opened.withdraw()
            finally:
                opened.close()

        self._stack.push(end)

    def _session(self, partitions: int, query: StreamQuery) -> SparkSession:
        spark = self.platform.session(query, partitions, self._workspace, quiet=not self.debug)
        self._stack.callback(stop, spark)
        self._stack.callback(self.platform.close)
        return spark

    def _prepared_sink(self) -> Sink:
        """Return the sink, ready for the first batch; from then on the checkpoint is this query's."""
        keys = self._result_keys(self._compiled)
        self._checkpoint.record_layout(self._compiled.execution.layout())
        if self._copies is not None:
            remove_unused(self._copies, self._spec, keys, has_rows=self._store_check is not None)
        table = self.query.spec.sink.table
        if table is not None and not table.by_partition:
            columns = lookup_columns(self._compiled, keys["spec"], self._spec)
            has_history = keys["spec"].versioned
            asked, service = self.query.spec.lookups, None
            if asked is not None and self.service_port is not None:
                service = service_settings(asked, self.platform.host, self.service_port, self._workspace)
            elif asked is not None:
                self._display.message("spec.lookups is for a cluster: this machine alone can look rows up in this run")
            self._lookups = TableLookups(
                self._workspace,
                self.query.name,
                columns,
                self.lookups_port,
                has_history=has_history,
                service=service,
                copies=None if self._store_check is None else self._copies,
            )
            self._stack.callback(self._lookups.close)
        view = None if self._lookups is None else self._lookups.view
        compiled, show = self._compiled, self._display.table
        partitions = compiled.execution.result_partitions(self._checkpoint.state_partitions)
        sink = open_sinks(
            self.query, keys, self._checkpoint.id, show, view, compiled.result, self._copies, partitions=partitions
        )
        self._close_at_end(sink)
        self._checkpoint.require_lease()  # ``prepare`` fences other drivers, and one may hold the lease by now
        with attributed_to(FailureClass.SINK):
            sink.prepare(self._checkpoint.last_batch())
        for remark in self._checkpoint.adopt(self.query):
            self._display.message(remark)
        return sink

    def _checked_copies(self) -> Path | None:
        """Return the folder of local copies of the query's tables; the check of an earlier run's runs beside Spark."""
        copies = self.platform.copies(self._checkpoint)
        table = self.query.spec.sink.table
        has_rows = table is not None and table.history is None and not table.by_partition
        if copies is not None and has_rows:  # with a history, no run continues the rows
            self._store_check = StoreCheck(copies / TABLE)
            self._stack.callback(self._store_check.close)
        return copies

    def _replica_processes(self) -> ReplicaProcesses:
        """Return the processes of the partitioner's replicas; those of the first plan start beside Spark."""
        processes = self.platform.replicas(self.query, self._workspace)
        self._stack.callback(processes.close)
        wanted = self.query.spec.partitioner
        if self._given is None and wanted.placement is PlacementSetting.DEDICATED:
            processes.scale(wanted.replicas.at_start)
        return processes

    def _result_keys(self, compiled: CompiledQuery) -> dict[str, ResultKeys]:
        """Return the keys of each output, by its field in the spec."""
        keys = {}
        for name, output in self._spec.outputs.items():
            with errors_of(name):
                keys[name] = result_keys(compiled, output)
        return keys

    def _plans(self) -> PlanSource:
        """Return the plan source that the run follows."""

        def resources() -> Resources:
            return Resources(self.platform.cores(self._spark), self._checkpoint.state_partitions)

        spec, compiled = self.query.spec, self._compiled
        first = first_plan(spec, compiled, self._checkpoint.last_pin())
        chooser = resources if self.platform.chooses_algorithm else None
        return followed_plans(spec, compiled, first, self._given, chooser, self._display.message)
