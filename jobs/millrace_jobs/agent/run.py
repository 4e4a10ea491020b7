"""The run loop: starts the query, follows the plan, watches batches, and ends in good order."""

from __future__ import annotations

import json
import queue
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery

from millrace_api.errors import MillraceError
from millrace_api.streamquery import Emit, Spec
from millrace_jobs.agent.checkpoint import Checkpoint
from millrace_jobs.agent.failures import explain_failure
from millrace_jobs.agent.progress import BatchReport, batch_report
from millrace_jobs.partitioners.registry import is_routed
from millrace_jobs.pipeline.analysis import PlannedQuery, sql_problem
from millrace_jobs.pipeline.build import Surroundings, build
from millrace_jobs.pipeline.front_end import Native
from millrace_jobs.plan.control import Control, write_control
from millrace_jobs.plan.following import PlanSource, pin_of
from millrace_jobs.plan.pin import Pin
from millrace_jobs.plan.policies import MAX_STATE, Policies
from millrace_jobs.sinks.base import Sink
from millrace_jobs.sources.base import Source

POLL_SECONDS = 0.2
"""How often the plan source is asked, and a query that shall come to rest is looked at."""

Outcome = Literal["finished", "drained"]

Event = dict[str, Any] | QueryTerminatedEvent | None
"""Progress of a batch, the end of the query, or None: a trigger found nothing to do."""


class Watcher(Protocol):
    """Who is told what goes on."""

    def batch(self, report: BatchReport) -> None:
        """A batch has been finished."""
        ...

    def message(self, text: str) -> None:
        """Something the user should know has happened."""
        ...

    def idle(self) -> None:
        """The query is alive and has nothing to do."""
        ...


@dataclass
class QueryRun:
    """One run of a query in this process, from its checkpoint's last batch on.

    ``once``: take what is there without pacing, and end. Else the run ends when every source is exhausted, or
    when ``drain`` is called (from a signal handler or another thread).
    """

    spark: SparkSession
    name: str
    spec: Spec
    query: PlannedQuery
    sources: Mapping[str, Source]
    sink: Sink
    checkpoint: Checkpoint
    plans: PlanSource
    watcher: Watcher
    workspace: Path
    once: bool = False
    results: int = 0
    plan_changes: int = 0
    _pin: Pin | None = None
    _control: Control | None = None
    _session: SparkSession | None = None
    _draining: bool = False
    _latest_event: int = 0
    _events: queue.Queue[Event] = field(default_factory=queue.Queue)
    _policies: Policies = field(init=False)
    _forgetful: int | None = None

    def __post_init__(self) -> None:
        """Find what the partitioners of an earlier run have learned."""
        self._policies = Policies(self.checkpoint.policies)

    def run(self) -> Outcome:
        """Run until the input ends or ``drain`` is called.

        Raises:
            MillraceError: the query failed; what was committed stays.
        """
        listener = _Listener(self._events)
        self.spark.streams.addListener(listener)
        try:
            self._follow_plan()
            while not self._draining:
                if self._stream(closing_time=None):
                    break
            if self._draining:
                return "drained"
            if self.spec.emit is Emit.ON_WINDOW_CLOSE:
                self._close_windows()
            return "finished"
        finally:
            self.spark.streams.removeListener(listener)

    def drain(self) -> None:
        """Finish the batch that is running, then end."""
        self._draining = True

    def _stream(self, closing_time: int | None) -> bool:
        """Run the query in the shape of its plan; True when the input has ended, False to go on in another shape.

        A batch that was begun before a crash comes first, in the shape of the plan it was begun under.
        """
        begun = self.checkpoint.begun_under()
        routed = self._is_routed(begun or self._require_pin())
        paced = not self.once and closing_time is None
        resting = False
        self._session = None
        self._tell_sources(routed, resting, closing_time)
        try:
            query = self._start(routed=routed, paced=paced)
        except AnalysisException as error:  # what Spark can do with tables, but not with streams
            raise MillraceError(sql_problem(error)) from None
        while True:
            terminated = self._take_event()
            if terminated is not None:
                break
            if not resting and self._wants_rest(routed, paced):
                resting = True
                if self._draining:
                    self.watcher.message("ending after the running batch; Ctrl-C again ends at once")
            if resting and not query.status["isTriggerActive"] and self.checkpoint.begun_under() is None:
                query.stop()
            self._follow_plan()
            self._tell_sources(routed, resting, closing_time)
        if terminated.exception is not None:
            raise explain_failure(terminated.exception)
        return self._is_routed(self._require_pin()) == routed

    def _tell_sources(self, routed: bool, resting: bool, closing_time: int | None) -> None:
        """What the next batch shall run under; none, if that would be in another shape than the query is in now."""
        pin = self._require_pin()
        draining = resting or self._is_routed(pin) != routed
        control = Control(self._policies.attach(pin), draining, closing_time)
        if control != self._control:
            write_control(self._control_file, control)
            self._control = control

    def _wants_rest(self, routed: bool, paced: bool) -> bool:
        """Whether no batch shall follow the one that is running."""
        if self._draining or self._is_routed(self._require_pin()) != routed:
            return True
        return paced and self._exhausted()

    def _exhausted(self) -> bool:
        offsets = self.checkpoint.committed()  # only of sources that the query reads
        return bool(offsets) and all(
            self.sources[name].exhausted(offset["position"]) for name, offset in offsets.items()
        )

    def _start(self, *, routed: bool, paced: bool) -> StreamingQuery:
        around = Surroundings(
            self.spark,
            self.sources,
            self._control_file,
            self.checkpoint.spark,
            self.checkpoint.policies,
            everything=not paced,
        )
        results = build(self.query, self.spec, around, routed=routed)
        update = self.spec.emit is Emit.ON_UPDATE and self.query.aggregates
        writer = (
            results.writeStream.queryName(self.name)
            .foreachBatch(self._write)
            .outputMode("update" if update else "append")
            .option("checkpointLocation", self.checkpoint.spark.as_uri())
        )
        if paced:
            interval = f"{self.spec.batch_interval.microseconds // 1000} milliseconds"
            return writer.trigger(processingTime=interval).start()
        return writer.trigger(availableNow=True).start()

    def _write(self, results: DataFrame, batch: int) -> None:
        self._session = results.sparkSession
        self._set_width()
        self.results += self.sink.write(results, batch)

    def _set_width(self) -> None:
        """Give the shuffle to the workers as many tasks as the next batch has workers.

        The session is the query's own, which Spark shows from the first batch on; the number of state partitions
        does not follow it.
        """
        if self._session is not None and self._pin is not None:
            self._session.conf.set("spark.sql.shuffle.partitions", str(self._pin.workers))

    def _take_event(self) -> QueryTerminatedEvent | None:
        """Wait a little for what Spark has to tell; hand on what it did."""
        try:
            event = self._events.get(timeout=POLL_SECONDS)
        except queue.Empty:
            return None
        if isinstance(event, QueryTerminatedEvent):
            return event
        if event is None:
            self.watcher.idle()
            return None
        report = batch_report(event, self.spec.batch_interval.seconds)
        if report.max_event_time is not None:
            self._latest_event = max(self._latest_event, int(report.max_event_time.timestamp() * 1e6))
        if report.pin is not None and self._is_routed(report.pin):
            self._keep_policy(report.batch, report.pin, report.states)
        self.watcher.batch(report)
        return None

    def _keep_policy(self, batch: int, pin: Pin, states: Mapping[int, str | None]) -> None:
        """Let later batches begin with what the partitioners have learned; tell once per plan where they cannot."""
        self._policies.keep(batch, pin, states)
        if None in states.values() and self._forgetful != pin.epoch:
            self._forgetful = pin.epoch
            self.watcher.message(
                f"what a replica of {pin.algorithm} learns is more than {MAX_STATE // 1024} KiB, too much to be "
                "carried from batch to batch: each batch begins anew; results stay right"
            )

    def _follow_plan(self) -> None:
        """Take over a new plan; a plan that cannot be followed is told, and the last good one stays."""
        try:
            plan = self.plans.current()
            pin = pin_of(plan, self.spec) if plan is not None else None
        except MillraceError as error:
            if self._pin is None:
                raise
            self.watcher.message(f"the plan stays as it is: {error}")
            return
        if pin is None:
            return
        if self._pin is not None:
            self.plan_changes += 1
            self.watcher.message(
                f"plan {pin.epoch}: {pin.algorithm}, m={pin.replicas}, n={pin.workers}, from the next batch on"
            )
        self._pin = pin
        self._set_width()

    def _close_windows(self) -> None:
        """Let a last event time pass that lies behind the last window, so that all results become final."""
        if not self.checkpoint.committed():
            return
        watermark = self.checkpoint.watermark_ms() * 1000
        delays = [s.watermark.delay.microseconds for s in self.spec.sources.values() if s.watermark is not None]
        delay = max(delays, default=0)
        latest = max(self._latest_event, watermark + delay)
        self._stream(closing_time=latest + self.query.longest_window + delay + 1000)

    def _is_routed(self, pin: Pin) -> bool:
        return not isinstance(self.query.plan, Native) and is_routed(pin.algorithm)

    def _require_pin(self) -> Pin:
        assert self._pin is not None
        return self._pin

    @property
    def _control_file(self) -> Path:
        return self.workspace / "control.json"


class _Listener(StreamingQueryListener):
    """Hands Spark's events to the run loop's queue."""

    def __init__(self, events: queue.Queue[Event]) -> None:
        self._events = events

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Spark's hook."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Spark's hook: a batch has been committed."""
        self._events.put(json.loads(event.progress.json))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Spark's hook: a trigger found nothing to do."""
        self._events.put(None)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Spark's hook: the query has stopped or failed; no event of it comes after this one."""
        self._events.put(event)
