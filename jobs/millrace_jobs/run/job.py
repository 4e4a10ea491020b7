"""One query in this process: the shared core of ``millrace run``, ``millrace driver`` and ``millrace explain``.

``Job`` opens (``opening``), prepares (``prepared_query``) and assembles; the batches are those of ``loop``.
"""

from __future__ import annotations

import atexit
import math
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession
from rich.console import Console

from millrace_api.errors import MillraceError
from millrace_api.model.streamquery import Spec, StreamQuery
from millrace_api.sql.nested_times import shown_times, with_flat_times
from millrace_jobs.display.display import display_for
from millrace_jobs.display.plain import ResultsConsole
from millrace_jobs.page.history import RunHistory
from millrace_jobs.page.live_page import SEEN_SECONDS, LivePage
from millrace_jobs.page.view import RunFacts
from millrace_jobs.pending import PendingCall, noting_in
from millrace_jobs.plan.plan_source import PlanSource, pin_of
from millrace_jobs.process import jvm
from millrace_jobs.queries.execution import CompiledQuery
from millrace_jobs.run.assembly import RunEnvironment, RunInputs, RunQuery
from millrace_jobs.run.end_notes import EndNotes
from millrace_jobs.run.endpoints import Endpoints
from millrace_jobs.run.gc_times import GarbageCollection
from millrace_jobs.run.inputs import open_sources, waiting_note
from millrace_jobs.run.job_metrics import (
    CHECKPOINT_FAILURES,
    REFRESH_FAILURES,
    RUN_RESTARTS,
    SNAPSHOT_FAILURES,
    JobMetrics,
)
from millrace_jobs.run.loop import RunLoop
from millrace_jobs.run.memory_use import MemoryUse
from millrace_jobs.run.observer import Health, Observer
from millrace_jobs.run.opening import OpenedRun, RunSetup, open_checkpoint, start_spark
from millrace_jobs.run.pending_watch import PendingWatch
from millrace_jobs.run.plans import AutoPlans, advice_on, first_plan, followed_plans, given_plans, plan_origin
from millrace_jobs.run.platform import OneProcess, Platform
from millrace_jobs.run.prepared_query import PreparedQuery, checked_query, prepare_query
from millrace_jobs.run.query_file import errors_located_in
from millrace_jobs.run.record_file import RecordFile
from millrace_jobs.run.replicas import ReplicaControl
from millrace_jobs.run.reports import without_event_log
from millrace_jobs.run.store_traffic import ObjectStoreTraffic
from millrace_jobs.selection.costs import Resources
from millrace_jobs.session import stop
from millrace_jobs.stores.requests import counting_in
from millrace_support.http_server import HttpServer, ProbeResult
from millrace_support.run_figures import Outcome
from millrace_support.run_record import RunLine

if TYPE_CHECKING:
    from millrace_jobs.display.display import Display


_EXIT_SECONDS = 1.0
"""Seconds of the grace period that are left for the exit of the process."""


@dataclass
class Job:
    """One query to run or explain in this process; a context manager that releases Spark and files.

    With ``once``, the run ends when the available records are processed. At the end of its input, a run closes all
    windows, unless ``leaves_open``.

    A run passes through these phases, each of which hands its result to the next. ``stop`` ends it before the next
    phase, or after the running batch:

    1. ``opening.open_checkpoint``: this process becomes the driver, by lock and lease.
    2. ``opening.start_spark``, once the sources are open and the sink can be used.
    3. ``prepared_query.prepare_query``: the query in the form that fits the state, with its sink ready for a batch.
    4. ``_assemble``: the plan source, the run loop and its observer.
    5. ``_supervise``: batches, until the run is finished, drained or failed (``loop.RunLoop``).

    The live page and probes are served from before the first phase until after the last one.
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
    starts_again: bool = True
    """Whether the query is started again after a transient failure; without it, the run ends."""

    service_port: int | None = None
    """Port for look-ups by other pods, where the query asks for them; None where there are no other pods."""

    began: float = field(default_factory=time.monotonic)
    """When the run was asked for, by the monotonic clock: the summary says how long its start took."""

    console: Console = field(default_factory=partial(Console, stderr=True))
    """Where progress and messages go."""

    results: Console = field(default_factory=ResultsConsole)
    """Where the rows of the sink ``console`` go."""

    display: Display | None = None
    """What shows the run; None for a display that suits the console."""

    record: Path | None = None
    """File for the record of the run; None for none."""

    endpoints: Endpoints = field(default_factory=Endpoints)
    """What opens the sources and sinks."""

    grace: float = math.inf
    """Seconds that the run may take to end after ``stop``."""

    starts_within: float = 0.0
    """Seconds for which the run counts as alive before it streams; without any, a pod's startup probe waits for it."""

    notes: Path | None = None
    """Folder for what Spark's Python processes note; None for one of the run's own."""

    stop_requested: bool = False
    _gives_way: bool = False
    _has_ended: bool = False
    _follows: bool = False
    _ending: threading.Lock = field(default_factory=threading.Lock)
    _deadline: float = math.inf
    _stack: ExitStack = field(default_factory=ExitStack)
    _run: RunLoop | None = None
    _spec: Spec = field(init=False)
    """The spec with event times as columns, which everything goes by that runs on the records of sources."""

    def __enter__(self) -> Self:
        if self.file is not None:
            self._stack.enter_context(errors_located_in(self.file, self.query.name))
        self._stack.callback(jvm.end_unused)
        self._spec = with_flat_times(self.query.spec)
        self._workspace = Path(tempfile.mkdtemp(prefix="millrace-"))
        self._stack.callback(self._remove_workspace)
        self.notes = self.notes or self._workspace
        self._store_requests = self._stack.enter_context(counting_in(self.notes / "store-requests"))
        self._pending = self._stack.enter_context(noting_in(self.notes / "pending"))
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def run(self) -> None:
        """Run the query to its end.

        Raises:
            MillraceError: the query cannot run, or has failed.
        """
        setup = self._setup()
        try:
            self._serve(setup.display)
            self._run_phases(setup)
            if not self._history.snapshot().outcome:  # it was stopped before its first batch
                self._history.ended("drained")
            with self._ending:
                self._has_ended = True
        except BaseException as error:
            with self._ending:
                self._has_ended, self._gives_way = True, False
            self._health.failed(str(error))
            self._history.failed(error)
            self._history.ended("failed")  # after the reason, which the page and the record show with it
            raise

    def _run_phases(self, setup: RunSetup) -> None:
        checkpoint = open_checkpoint(setup)
        if self.stop_requested:
            return
        opened = start_spark(setup, checkpoint)
        if self.stop_requested:
            return
        prepared = prepare_query(setup, opened)
        if prepared is None or self.stop_requested:
            return
        run, observer = self._assemble(setup, opened, prepared)
        if not self.stop_requested:
            self._supervise(opened, run, observer)

    def _setup(self) -> RunSetup:
        given = given_plans(self.platform, self.query.spec)
        display = self.display or display_for(self.console, self.query.name, self.results)
        self._stack.callback(display.close)
        self._display = display
        return RunSetup(
            query=self.query,
            spec=self._spec,
            platform=self.platform,
            workspace=self._workspace,
            display=display,
            given=given,
            at_end=self._stack,
            stop_requested=lambda: self.stop_requested,
            session=self._session,
            step=self._step,
            lookups_port=self.lookups_port,
            service_port=self.service_port,
            endpoints=self.endpoints,
        )

    def _serve(self, display: Display) -> None:
        """Serve page and probes, and begin the record, before anything that takes long."""
        silence = max(600.0, 20 * self.query.spec.batch_interval.seconds)  # the first batch of a backlog takes long
        self._health = Health(silence, self.platform.executors, pending=self._pending)
        self._history = RunHistory()
        document = self.query.model_dump(mode="json", by_alias=True, exclude_unset=True)
        if self.record is not None:
            record = RecordFile(self.record, self.query.name, display.message)
            self._stack.callback(record.close)
            self._history = RunHistory(record=record.write)
        self._history.add(RunLine(time.time(), document, version("millrace"), timed=not self.once))
        self._page = LivePage(self._history, RunFacts(self.query, self._health.liveness, timed=not self.once))
        # not alive yet for the probes of a pod, so that one whose start takes too long is started again
        probes, address = (self._starting, self._health.readiness), (self.platform.host, self.metrics_port)
        self._server = HttpServer(CollectorRegistry(), *probes, *address, self._page.paths)
        self._server.start()
        self._stack.callback(self._server.close)
        self._stack.callback(self._wait_until_seen)  # once Spark, the sink and the lease are closed

    def _starting(self) -> ProbeResult:
        return ProbeResult(time.monotonic() - self.began < self.starts_within, "starting")

    def _wait_until_seen(self) -> None:
        """Leave an open page the time to show the end, as far as the grace period lasts."""
        # another version that takes over serves its own page
        left = 0.0 if self.gives_way else self._deadline - time.monotonic() - _EXIT_SECONDS
        self._page.wait_until_seen(min(SEEN_SECONDS, max(left, 0.0)))

    def _step(self, text: str) -> None:
        self._display.starting(text)
        self._history.step(text)

    def _session(self, partitions: int, query: StreamQuery) -> SparkSession:
        spark = self.platform.session(query, partitions, self._workspace, quiet=not self.debug)
        self._stack.callback(self._end_spark, spark)
        return spark

    def _end_spark(self, spark: SparkSession) -> None:
        if not self.gives_way:
            try:
                self.platform.close()
            finally:
                stop(spark)

    def _assemble(self, setup: RunSetup, opened: OpenedRun, prepared: PreparedQuery) -> tuple[RunLoop, Observer]:
        """Put together the run loop and what watches it, and serve metrics, probes and the page."""
        checkpoint, tables, spark, reports = opened.checkpoint, opened.tables, opened.spark, opened.reports
        plans = self._plans(setup, opened, prepared.compiled)
        auto = plans if isinstance(plans, AutoPlans) else None
        counts = {
            CHECKPOINT_FAILURES: lambda: checkpoint.failed_writes,
            RUN_RESTARTS: lambda: 0 if self._run is None else self._run.restarts,
            **reports.counts,
            REFRESH_FAILURES: lambda: sum(each.failures for each in tables.states().values()),
            SNAPSHOT_FAILURES: lambda: opened.snapshots.state.failures,
        }
        root, interval = checkpoint.root, self.query.spec.batch_interval.seconds
        volume = root if isinstance(root, Path) else None
        metrics = JobMetrics(
            self.query.name, counts, volume, tables.states, lambda: opened.snapshots.state, interval=interval
        )
        note = waiting_note(opened.sources) if isinstance(self.platform, OneProcess) and not self.once else ""
        garbage, traffic = GarbageCollection(spark), ObjectStoreTraffic(spark, self._store_requests)
        shown = (setup.display, metrics, self._health, self.platform, auto, note)
        observer = Observer(*shown, garbage=garbage, traffic=traffic, reports=reports, history=self._history)
        observer.failing, observer.memory = self._failing, MemoryUse(spark)
        observer.advice = advice_on(self.query.spec, prepared.compiled, self._resources(opened))
        lookups = "" if prepared.lookups is None else prepared.lookups.listen(self.query)
        self._page.show(self._page_facts(prepared, lookups))
        server = self._server
        server.registry = metrics.registry
        server.probes = {**server.probes, "/healthz": self._health.liveness}
        urls = {"page": f"{server.url}/", "metrics": f"{server.url}/metrics"}
        facts = urls | {"checkpoint": str(root), "results": prepared.sink.place}
        if lookups:
            facts["lookups"] = lookups
        replicas = ReplicaControl(self.query, prepared.compiled, opened.sources, opened.processes)
        self._stack.callback(replicas.close)
        cores = partial(self.platform.cores, spark)
        self._run = RunLoop(
            RunQuery(self.query.name, self._spec, prepared.compiled, prepared.sink),
            RunInputs(opened.sources, tables or None, replicas),
            RunEnvironment(spark, checkpoint, self._workspace, cores, self.platform.executors),
            plans=plans,
            watcher=observer,
            once=self.once,
            leaves_open=self.leaves_open,
            starts_again=self.starts_again,
            accepted=partial(setup.display.started, facts),
            began=setup.display.began,
        )
        origin, output = plan_origin(setup.given, self.platform, self.query.name), prepared.sink.place
        self._history.started(chooses=auto is not None, plan_origin=origin, output=output)
        return self._run, observer

    def _failing(self) -> MillraceError | None:
        return None if self._run is None else self._run.failing

    def _page_facts(self, prepared: PreparedQuery, lookups: str) -> RunFacts:
        """Return what the page shows of this run beside its history."""
        is_local = isinstance(self.platform, OneProcess)
        return RunFacts(
            query=self.query,
            alive=self._health.liveness,
            failing=self._failing,
            pending=self._pending,
            timed=not self.once,
            key=() if prepared.lookups is None else prepared.lookups.key,
            lookups=lookups if is_local else "",  # in a pod, whoever reaches the page need not be allowed to read rows
        )

    def _plans(self, setup: RunSetup, opened: OpenedRun, compiled: CompiledQuery) -> PlanSource:
        """Return the plan source that the run follows."""
        spec, say = self.query.spec, setup.display.message
        first = first_plan(spec, compiled, self.platform.cores(opened.spark), opened.checkpoint.last_pin())
        chooser = self._resources(opened) if self.platform.chooses_algorithm else None
        return followed_plans(spec, compiled, first, setup.given, chooser, say, lambda: self.platform.chooses_algorithm)

    def _resources(self, opened: OpenedRun) -> Callable[[], Resources]:
        return lambda: Resources(self.platform.cores(opened.spark), opened.checkpoint.state_partitions)

    def _supervise(self, opened: OpenedRun, run: RunLoop, observer: Observer) -> None:
        """Run the loop to its end, and show the summary of the run."""
        reports = opened.reports
        observer.health.running()
        opened.snapshots.message = observer.note
        opened.snapshots.begin()
        self.platform.started(opened.spark, opened.checkpoint.state_partitions)
        self.platform.when_replaced(self.give_way)
        reports.started(self._spec, opened.sources, run.query.compiled.result, run)

        def handle_waits(calls: Sequence[PendingCall]) -> None:
            run.give_up(self.platform.waits(calls))

        began = time.monotonic()
        notes = EndNotes(self.query, opened.sources, run.environment.checkpoint)
        outcome: Outcome = "failed"
        try:
            with PendingWatch(self._pending, observer.display.waits, observer.note, handle_waits, self._failing):
                outcome = run.run()
            for note in notes.of(outcome, observer.tally):
                observer.message(note)
            reports.ended(outcome)
        except BaseException as error:
            outcome = "failed"
            reports.ended("failed", error if isinstance(error, Exception) else None)
            raise
        finally:
            observer.health.closing()
            if outcome != "failed":  # ``run`` adds the reason first
                self._history.ended(outcome)
            seconds = time.monotonic() - began
            if run.is_accepted or self.stop_requested:  # a query that Spark rejected has an error, no summary
                observer.display.finished(
                    observer.tally.summary(
                        outcome,
                        results=run.results,
                        start_seconds=began - self.began,
                        seconds=seconds,
                        plan_changes=run.plan_changes,
                        output=run.query.sink.place,
                    )
                )

    def explain(self) -> str:
        """Describe how the query would run."""
        given = given_plans(self.platform, self.query.spec)
        sources = open_sources(self.query.spec, self._workspace / "sources", self._workspace)
        partitions = self.platform.state_partitions(self.query.spec)
        spark = self._session(partitions, without_event_log(self.query))
        compiled = checked_query(spark, self._spec, sources)
        plan = given.current() if given is not None else None
        pin = pin_of(plan or first_plan(self.query.spec, compiled, self.platform.cores(spark)))
        schemas = {name: source.schema for name, source in sources.items()}
        problem = compiled.execution.dedicated_problem(self._spec, schemas) if pin.is_dedicated else None
        if problem is not None:
            raise MillraceError(problem)
        return shown_times(compiled.explain(self._spec, sources, pin, partitions), self.query.spec)

    def stop(self) -> None:
        """Request an end after the running batch; safe in a signal handler."""
        self.stop_requested = True
        self._deadline = time.monotonic() + self.grace
        if self._run is not None:
            self._run.drain()

    def follow(self, before: Job) -> None:
        """Take over from a job that has given way, with its Spark and the folder of its notes."""
        # with another folder in their environment, Spark would start other processes beside those that executors have
        self.grace, self.notes = before.grace, before.notes
        self._follows = True
        self.starts_within = 300.0  # as long as a pod's startup probe gives a driver

    @property
    def gives_way(self) -> bool:
        """Whether the run ends for another version of the query, which takes over Spark and the platform."""
        return self._gives_way and not self.stop_requested

    def give_way(self) -> None:
        """Request an end after the running batch, after which another version takes over; nothing once the run ends."""
        assert self._run is not None
        with self._ending:
            self._gives_way |= not self._has_ended and not self.stop_requested
        if self.gives_way:
            self._run.drain("ending after the running batch: another version of the query takes over", hands_over=True)

    def _remove_workspace(self) -> None:
        """Remove the workspace; that of the first job has Spark's files, and notes, if another version takes over."""
        if self.gives_way and not self._follows:
            atexit.register(shutil.rmtree, self._workspace, ignore_errors=True)
        else:
            shutil.rmtree(self._workspace, ignore_errors=True)

    @property
    def is_starting(self) -> bool:
        """Whether no batch can be running yet."""
        return self._run is None

    def abandon(self) -> None:
        """Restore the terminal and remove the workspace before the process exits at once; safe in a signal handler."""
        if os.isatty(2):
            os.write(2, b"\x1b[?25h\n")  # shows the cursor, which a live display hides
        shutil.rmtree(self._workspace, ignore_errors=True)
        jvm.abandon()
