"""One query in this process: the shared core of ``millrace run``, ``millrace driver`` and ``millrace explain``."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from pyspark.sql import SparkSession
from rich.console import Console

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_api.model.deployment import ANOTHER_CHECKPOINT, Algorithm
from millrace_api.model.plan import Plan
from millrace_api.model.sources import FileFormat
from millrace_api.model.status import FailureClass
from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.loading import locate
from millrace_jobs import jvm
from millrace_jobs.checkpoint.checkpoint import Checkpoint, checkpoint_root
from millrace_jobs.disk import cache_folder
from millrace_jobs.display.display import Display, Outcome, RunTally, display_for
from millrace_jobs.pipeline.aggregation import Native
from millrace_jobs.pipeline.build import check_streaming, result_keys
from millrace_jobs.pipeline.compile import CompiledQuery, Routed, compile_query
from millrace_jobs.pipeline.explain import explain
from millrace_jobs.pipeline.progress import BatchReport
from millrace_jobs.pipeline.state_layout import as_before, layout
from millrace_jobs.plan.control import Pin
from millrace_jobs.plan.plan_source import FixedPlan, PlanSource, partitioner_problem, pin_of
from millrace_jobs.run.auto import AutoPlans, first_algorithm
from millrace_jobs.run.failures import attributed_to
from millrace_jobs.run.health import Health
from millrace_jobs.run.loop import QueryRun
from millrace_jobs.run.metrics import JobMetrics
from millrace_jobs.run.platform import OneProcess, Platform
from millrace_jobs.run.query_file import query_of
from millrace_jobs.selection.costs import Resources
from millrace_jobs.session import stop
from millrace_jobs.sinks.base import Sink
from millrace_jobs.sinks.opening import check_sink, open_sink
from millrace_jobs.sources.base import Source
from millrace_jobs.sources.opening import open_source
from millrace_support.http_server import HttpServer


@dataclass
class Observer:
    """A watcher that passes the events of a run on to display, metrics, probes, platform and ``auto``."""

    display: Display
    metrics: JobMetrics
    health: Health
    platform: Platform
    auto: AutoPlans | None = None
    tally: RunTally = field(default_factory=RunTally)

    def batch(self, report: BatchReport) -> None:
        """Report a finished batch to everyone who watches the run."""
        self.health.progressed()
        self.metrics.record(report)
        self.tally.add(report)
        self.display.batch(report)
        self.platform.batch(report)
        if self.auto is not None:
            switch = self.auto.observe(report)
            self.metrics.record_choice(self.auto.selector.outcomes, switch)

    def message(self, text: str) -> None:
        """Show the user a message."""
        self.display.message(text)

    def idle(self, pin: Pin) -> None:
        """Report an idle query: a sign of life, under this pin."""
        self.health.progressed()
        self.platform.idle(pin)


@dataclass
class Job:
    """One query to run or explain in this process; a context manager that releases Spark and files."""

    query: StreamQuery
    platform: Platform = field(default_factory=OneProcess)
    once: bool = False
    metrics_port: int = 0
    debug: bool = False
    file: Path | None = None
    console: Console = field(default_factory=Console)
    stop_requested: bool = False
    _stack: ExitStack = field(default_factory=ExitStack)
    _run: QueryRun | None = None

    @classmethod
    def of_file(
        cls,
        file: Path,
        platform: Platform | None = None,
        *,
        name: str | None = None,
        once: bool = False,
        metrics_port: int = 0,
        debug: bool = False,
    ) -> Self:
        """Load and check a query of a file; without a platform it runs on local Spark.

        Raises:
            MillraceError: the file has problems, or several queries of which ``name`` is none.
        """
        return cls(query_of(file, name), platform or OneProcess(), once, metrics_port, debug, file)

    def __enter__(self) -> Self:
        self._workspace = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="millrace-")))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)
        jvm.end_unused()
        if isinstance(error, MillraceError) and self.file is not None:
            located = MillraceError(*locate(error.problems, self.file, self.query.name))
            located.failure = error.failure
            raise located from error

    def run(self) -> None:
        """Run the query to its end.

        Raises:
            MillraceError: the query cannot run, or has failed.
        """
        given = self._given_plans()
        display = display_for(self.console, self.query.name)
        self._stack.callback(display.close)
        display.starting("opening the checkpoint and the sources")
        checkpoint = Checkpoint(checkpoint_root(self.query))
        checkpoint.open(self.query, self.platform.state_partitions(self.query.spec))
        self._close_at_end(checkpoint, checkpoint)
        if self.stop_requested:
            return
        sources = self._open_sources(checkpoint.root / "sources")
        check_sink(self.query.spec)
        display.starting("starting Spark")
        spark = self._spark(checkpoint.state_partitions)
        if self.stop_requested:
            return
        display.starting("planning the query")
        planned = compile_query(spark, self.query.spec, {name: source.schema for name, source in sources.items()})
        planned = self._as_before(planned, checkpoint, display)
        sink = self._prepared_sink(planned, checkpoint, display)
        if self.stop_requested:
            return
        plans = self._plans(given, planned, spark, checkpoint, display)
        auto = plans if isinstance(plans, AutoPlans) else None
        health = Health(_patience(self.query))
        observer = Observer(display, JobMetrics(self.query.name), health, self.platform, auto)
        server = HttpServer(
            observer.metrics.registry, health.liveness, health.readiness, self.platform.host, self.metrics_port
        )
        server.start()
        self._stack.callback(server.close)
        facts = {"metrics": f"{server.url}/metrics", "checkpoint": str(checkpoint.root), "results": sink.place}
        self._run = QueryRun(
            spark=spark,
            name=self.query.name,
            spec=self.query.spec,
            query=planned,
            sources=sources,
            sink=sink,
            checkpoint=checkpoint,
            plans=plans,
            watcher=observer,
            workspace=self._workspace,
            once=self.once,
            accepted=partial(display.started, facts),
        )
        if self.stop_requested:
            return
        health.ready()
        self.platform.started(spark, checkpoint.state_partitions)
        self._supervise(self._run, observer)

    def explain(self) -> str:
        """Describe how the query would run."""
        given = self._given_plans()
        sources = self._open_sources(self._workspace / "sources")
        spark = self._spark(self.platform.state_partitions(self.query.spec))
        planned = compile_query(spark, self.query.spec, {name: source.schema for name, source in sources.items()})
        check_streaming(planned, self.query.spec, spark, sources)
        plan = given.current() if given is not None else None
        return explain(planned, self.query.spec, sources, pin_of(plan or self._first_plan(planned)))

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

    def _supervise(self, run: QueryRun, observer: Observer) -> None:
        began = time.monotonic()
        outcome: Outcome = "failed"
        try:
            outcome = run.run()
            if outcome == "finished" and not observer.tally.batches and run.checkpoint.last_batch().begun is not None:
                observer.message(self._nothing_new(run.checkpoint))
        except BaseException as error:
            observer.health.failed(str(error))
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

    def _nothing_new(self, checkpoint: Checkpoint) -> str:
        files = self.query.spec.sink.files  # the folder belongs to this checkpoint only
        results = f" and {Path(files.path).absolute()}" if files is not None else ""
        done = "nothing new: all input was processed by an earlier run"
        return f"{done}; remove {checkpoint.root}{results} to start over"

    def _close_at_end(self, made: Checkpoint | Sink, checkpoint: Checkpoint) -> None:
        """Close ``made`` at the end of the run; remove it first if the run failed before its first batch.

        It is kept after a transient failure: the next attempt continues from what this one has settled, such as where
        a Kafka topic ended.
        """

        def end(_: object, error: BaseException | None, __: object) -> None:
            failed = isinstance(error, Exception) and not isinstance(error, TransientError)
            try:
                with suppress(OSError):  # the disk may be why the run failed; report that failure
                    if failed and checkpoint.may_be_withdrawn():
                        made.withdraw()
            finally:
                made.close()

        self._stack.push(end)

    def _open_sources(self, state: Path) -> dict[str, Source]:
        cache = (cache_folder() or self._workspace) / "recordings"
        with attributed_to(FailureClass.SOURCE):
            return {
                name: open_source(name, source, state / name, cache) for name, source in self.query.spec.sources.items()
            }

    def _spark(self, partitions: int) -> SparkSession:
        spark = self.platform.session(self.query, partitions, self._workspace, quiet=not self.debug)
        self._stack.callback(stop, spark)
        self._stack.callback(self.platform.close)
        return spark

    def _as_before(self, planned: CompiledQuery, checkpoint: Checkpoint, display: Display) -> CompiledQuery:
        """Return the query with the plan that can continue from the state in the checkpoint."""
        continued = as_before(planned, self.query.spec.query.sql, checkpoint.layout)
        if isinstance(continued.execution, Native) and continued is not planned:
            hint = f"choose {ANOTHER_CHECKPOINT} to have it routed"
            display.message(f"the query runs natively, though it can be routed: {continued.execution.reason}: {hint}")
        return continued

    def _prepared_sink(self, planned: CompiledQuery, checkpoint: Checkpoint, display: Display) -> Sink:
        """Return the sink, ready for the first batch; from then on the checkpoint is this query's."""
        self._check_sink(planned)
        checkpoint.keep_layout(layout(planned))
        sink = open_sink(self.query, result_keys(planned, self.query.spec), checkpoint.id, display.table)
        self._close_at_end(sink, checkpoint)
        checkpoint.require_lease()  # ``prepare`` fences other drivers, and one may hold the lease by now
        with attributed_to(FailureClass.SINK):
            sink.prepare(checkpoint.last_batch())
        for remark in checkpoint.adopt(self.query):
            display.message(remark)
        return sink

    def _plans(
        self,
        given: PlanSource | None,
        planned: CompiledQuery,
        spark: SparkSession,
        checkpoint: Checkpoint,
        display: Display,
    ) -> PlanSource:
        """Return the given plan source, or a fixed plan; ``auto`` wraps either one."""
        first = self._first_plan(planned, checkpoint.last_pin())
        plans = given or FixedPlan(first)
        chosen = self.query.spec.partitioner.algorithm is Algorithm.AUTO and self.platform.chooses_algorithm
        if not chosen or not isinstance(planned.execution, Routed):
            return plans

        def resources() -> Resources:
            return Resources(self.platform.cores(spark), checkpoint.state_partitions)

        return AutoPlans(plans, first.algorithm, planned.execution, resources, display.message)

    def _first_plan(self, planned: CompiledQuery, last: Pin | None = None) -> Plan:
        """Return the plan of a run without a plan source; a query that is not routed has only ``native``."""
        routed = planned.execution if isinstance(planned.execution, Routed) else None
        return Plan.initial(self.query.spec, auto=first_algorithm(routed, last) if routed else Algorithm.NATIVE)

    def _given_plans(self) -> PlanSource | None:
        """Return the platform's plan source, or None; check before Spark starts that the first plan can be followed."""
        given = self.platform.plans()
        problem = None if given is not None else partitioner_problem(self.query.spec)
        if problem is not None:
            raise MillraceError(problem)
        return given

    def _check_sink(self, planned: CompiledQuery) -> None:
        files = self.query.spec.sink.files
        if files is None or files.format is not FileFormat.CSV:
            return
        for column in planned.result:
            if column.dataType.typeName() in ("struct", "array", "map"):
                kind = column.dataType.simpleString()
                hint = "select its fields one by one, such as window.start, or write format: parquet"
                message = f"column {column.name} of type {kind} cannot be written to csv"
                raise MillraceError(Problem(message, hint, field="spec.sink.files.format"))


def _patience(query: StreamQuery) -> float:
    """Return the seconds without a batch after which a query counts as hung; the first on a backlog may take long."""
    return max(600.0, 20 * query.spec.batch_interval.seconds)
