"""The run loop: it starts the query, follows the plan, watches the batches, and shuts down in order."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import QueryTerminatedEvent
from pyspark.sql.streaming.query import StreamingQuery

from millrace_api.errors import MillraceError, TransientError
from millrace_api.failures import FailureClass
from millrace_api.model.streamquery import Emit, Spec
from millrace_jobs import jvm
from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.pipeline.analysis import CompiledQuery, sql_problem
from millrace_jobs.pipeline.build import RunContext, build, is_per_record
from millrace_jobs.pipeline.front_end import Native
from millrace_jobs.pipeline.progress import BatchReport, batch_report
from millrace_jobs.pipeline.streaming_check import output_mode
from millrace_jobs.plan.following import PlanSource
from millrace_jobs.run.batch_settings import BatchSettings
from millrace_jobs.run.events import Event, Listener, Watcher
from millrace_jobs.run.failures import blamed, class_of_text, explain_failure, is_about_state, jvm_gone, known_cause
from millrace_jobs.run.steering import Steering
from millrace_jobs.sinks.base import Sink
from millrace_jobs.sources.base import Source
from millrace_support.backoff import Backoff


class WallClock:
    """A detector of a wall clock that was set back; it must be polled often."""

    def __init__(self) -> None:
        self._ahead = _ahead()

    def set_back(self) -> float:
        """Return the seconds by which the clock was set back from its furthest point since this object was made."""
        ahead = _ahead()
        self._ahead = max(self._ahead, ahead)
        return self._ahead - ahead


def _ahead() -> float:
    """Return the seconds by which the wall clock is ahead of the monotonic clock."""
    return time.time() - time.monotonic()


MAX_RESTARTS = 5
"""Maximum number of consecutive restarts without a finished batch."""


class Restarts:
    """A count of the restarts since the last finished batch."""

    def __init__(self) -> None:
        self._in_a_row = 0
        self._backoff = Backoff()

    def progressed(self) -> None:
        """Reset the count after a finished batch: the earlier failure has passed."""
        self._in_a_row = 0
        self._backoff.reset()

    def pause_after(self, failure: TransientError) -> float:
        """Count a restart, and return the seconds to wait before it.

        Raises:
            MillraceError: all MAX_RESTARTS were used up.
        """
        if self._in_a_row == MAX_RESTARTS:
            first, *more = failure.problems
            message = f"after {MAX_RESTARTS} restarts without a finished batch: {first.message}"
            final = MillraceError(replace(first, message=message), *more)
            final.failure = failure.failure
            raise final from None
        self._in_a_row += 1
        return self._backoff.next()

    def __str__(self) -> str:
        return f"{self._in_a_row} of {MAX_RESTARTS}"


POLL_SECONDS = 0.2
"""Seconds between two polls of the plan source and of a query that is coming to rest."""

Outcome = Literal["finished", "drained"]


@dataclass
class QueryRun:
    """One run of a query in this process, from its checkpoint's last batch on.

    With ``once``, the run processes the available input without pacing, and ends. Else it ends when every source is
    exhausted, or when ``drain`` is called (from a signal handler or another thread). ``accepted`` is called once, when
    Spark has accepted the query.
    """

    spark: SparkSession
    name: str
    spec: Spec
    query: CompiledQuery
    sources: Mapping[str, Source]
    sink: Sink
    checkpoint: Checkpoint
    plans: PlanSource
    watcher: Watcher
    workspace: Path
    once: bool = False
    accepted: Callable[[], None] = lambda: None
    is_accepted: bool = False
    results: int = 0
    _query: StreamingQuery | None = None
    _draining: bool = False
    _latest_event: int = 0
    _events: queue.Queue[Event] = field(default_factory=queue.Queue)
    _restarts: Restarts = field(default_factory=Restarts)
    _steering: Steering = field(init=False)
    _settings: BatchSettings = field(init=False)

    def __post_init__(self) -> None:
        """Set up the session settings and the steering."""
        self._settings = BatchSettings(self.spec.spark_conf)
        self._steering = Steering(
            self.spec,
            self.sources,
            self.plans,
            self.checkpoint.policies,
            self.workspace / "control.json",
            self.watcher,
            routable=not isinstance(self.query.plan, Native),
            once=self.once,
        )

    @property
    def plan_changes(self) -> int:
        """The number of plans adopted after the first one."""
        return self._steering.plan_changes

    def run(self) -> Outcome:
        """Run until the input ends or ``drain`` is called.

        Raises:
            MillraceError: the query failed; committed batches stay.
        """
        stop_listening = Listener(self._events).register(self.spark)
        try:
            self._steering.follow_plan()
            while not self._draining and not self._stream_patiently(closing_time=None):
                pass
            if self.spec.emit is Emit.ON_WINDOW_CLOSE:
                while not self._draining and not self._close_windows():
                    pass
            return "drained" if self._draining else "finished"
        except (Py4JNetworkError, ConnectionError):
            raise jvm_gone() from None
        finally:
            if jvm.is_running():
                for end in (self._stop_query, stop_listening):
                    with suppress(PySparkException, Py4JError, ConnectionError):  # why the run ends is already reported
                        end()

    def drain(self) -> None:
        """End the run after the running batch."""
        self._draining = True

    def _stop_query(self) -> None:
        """Stop Spark's query if it is running, so that it never writes to a closed sink."""
        if self._query is not None:
            self._query.stop()

    def _stream_patiently(self, closing_time: int | None) -> bool:
        """Run the query like ``_stream``; restart it from its checkpoint after a transient failure."""
        failed = False
        while True:
            try:
                if failed:
                    self.checkpoint.require_lease()  # ``prepare`` fences other drivers, and one may hold the lease
                    with blamed(FailureClass.SINK):
                        self.sink.prepare(self.checkpoint.last_batch())
                return self._stream(closing_time)
            except TransientError as failure:
                if not self._draining:
                    self._pause_after(failure)
                if self._draining:
                    raise
                failed = True

    def _pause_after(self, failure: TransientError) -> None:
        """Wait before the next start; return early if the run is draining."""
        pause = self._restarts.pause_after(failure)
        self.watcher.message(f"starting again in {pause:.0f} s ({self._restarts}): {failure}")
        until = time.monotonic() + pause
        while not self._draining and time.monotonic() < until:
            time.sleep(POLL_SECONDS)

    def _stream(self, closing_time: int | None) -> bool:
        """Run the query in the shape of its plan, routed or not.

        A batch that was begun before a crash comes first, in the shape of its own plan.

        Returns:
            True when the input has ended; False to continue with a new query.
        """
        begun = self.checkpoint.begun_under()
        routed = self._steering.is_routed(begun or self._steering.pin)
        paced = not self.once and closing_time is None
        resting = turned_back = False
        self._tell_sources(routed, resting, closing_time)
        self._query = query = self._start(routed=routed, paced=paced)
        if not self.is_accepted:
            self.is_accepted = True
            self.accepted()
        clock = WallClock()
        while True:
            terminated = self._take_event()
            if terminated is not None:
                break
            if not jvm.is_running():
                raise jvm_gone()
            if self.checkpoint.lost is not None:
                raise self.checkpoint.lost
            if resting and not query.status["isTriggerActive"] and self.checkpoint.begun_under() is None:
                query.stop()  # the sources have been draining since the last turn, so no batch has begun
            if paced and not resting and clock.set_back() > self.spec.batch_interval.seconds:
                self.watcher.message("the clock was set back: starting again, since Spark would wait for the old time")
                resting = turned_back = True
            if not resting and self._wants_rest(routed, paced):
                resting, turned_back = True, not self._is_shaped(routed)
                if self._draining:
                    self.watcher.message("ending after the running batch; Ctrl-C again ends at once")
            if self._steering.follow_plan():
                self._settings.follow(self._steering.pin.workers)
            self._tell_sources(routed, resting, closing_time)
        if terminated.exception is not None:
            raise self._explained(terminated.exception)
        return not turned_back and self._is_shaped(routed)  # the plan may have returned to this shape by now

    def _tell_sources(self, routed: bool, resting: bool, closing_time: int | None) -> None:
        """Write the control file of the next batch; drain the sources if the plan wants another shape."""
        self._steering.tell_sources(draining=resting or not self._is_shaped(routed), closing_time=closing_time)

    def _is_shaped(self, routed: bool) -> bool:
        """Whether the plan wants the query in this shape, routed or not."""
        return self._steering.is_routed(self._steering.pin) == routed

    def _wants_rest(self, routed: bool, paced: bool) -> bool:
        """Whether the running batch is to be the last of this query."""
        return self._draining or not self._is_shaped(routed) or (paced and self._exhausted())

    def _exhausted(self) -> bool:
        offsets = self.checkpoint.committed()  # only sources that the query reads have one
        return bool(offsets) and all(
            self.sources[name].exhausted(offset["position"]) for name, offset in offsets.items()
        )

    def _start(self, *, routed: bool, paced: bool) -> StreamingQuery:
        around = RunContext(
            self.spark,
            self.sources,
            self._steering.control,
            self.checkpoint.spark,
            self.checkpoint.policies,
            everything=not paced,
        )
        interval = f"{self.spec.batch_interval.microseconds // 1000} milliseconds"
        try:
            results = self.sink.shape(build(self.query, self.spec, around, routed=routed))
            self._settings.begin(results, per_record=is_per_record(self.query, around, routed=routed))
            writer = (
                results.writeStream.queryName(self.name)
                .foreachBatch(self._write)
                .outputMode(output_mode(self.query, self.spec))
                .option("checkpointLocation", self.checkpoint.spark.as_uri())
            )
            return (writer.trigger(processingTime=interval) if paced else writer.trigger(availableNow=True)).start()
        except AnalysisException as error:  # SQL that Spark supports on tables, but not on streams
            raise MillraceError(sql_problem(error)) from None
        except (PySparkException, Py4JJavaError) as error:  # a checkpoint that Spark rejects
            raise self._explained(str(error)) from None

    def _explained(self, text: str) -> MillraceError:
        """Return why the query failed, with its failure class."""
        damage = self.checkpoint.damaged_state(text) if is_about_state(text) else None
        error = known_cause(text) or damage or explain_failure(text)
        error.failure = class_of_text(text)
        return error

    def _write(self, results: DataFrame, number: int) -> None:
        """Write the results of a batch to the sink (Spark's ``foreachBatch`` hook)."""
        self._settings.found(results.sparkSession)
        self._settings.follow(self._steering.pin.workers)
        self.checkpoint.require_lease()
        self.results += self.sink.write(results, self.checkpoint.batch(number))
        # PySpark has reset the call site; without one, Spark walks the stack for each operator of the next batch
        self.spark.sparkContext.setLocalProperty("callSite.short", self.name)

    def _take_event(self) -> QueryTerminatedEvent | None:
        """Wait briefly for an event and handle it; return it if the query has terminated, else None."""
        try:
            event = self._events.get(timeout=POLL_SECONDS)
        except queue.Empty:
            return None
        if isinstance(event, QueryTerminatedEvent):
            return event
        if event is None:
            self.watcher.idle(self._steering.pin)
            return None
        self._learn_from(batch_report(event, self.spec.batch_interval.seconds))
        return None

    def _learn_from(self, report: BatchReport) -> None:
        """Adapt to a finished batch, and report it to the watcher."""
        self._restarts.progressed()
        if report.max_event_time is not None:
            self._latest_event = max(self._latest_event, int(report.max_event_time.timestamp() * 1e6))
        self._steering.learn_from(report)
        self._settings.learn_from(report.rows, report.waiting)
        self._settings.follow(self._steering.pin.workers)
        self.watcher.batch(report)

    def _close_windows(self) -> bool:
        """Move the event time past the last window, so that all results become final; return like ``_stream``."""
        closing_time = self._closing_time()
        return closing_time is None or self._stream_patiently(closing_time)

    def _closing_time(self) -> int | None:
        """Return the event time that closes all windows, in microseconds; None if all are closed.

        The batch with this event time moves the watermark, and the windows close in the batch after it. If a process
        died between the two and no record has come since, a time 1 ms later is enough, and makes no later record late.
        """
        last, watermark = self.checkpoint.last_batch().committed, self.checkpoint.watermark_ms()
        offsets = self.checkpoint.committed().values()
        if last is None or not offsets:
            return None
        closed = [int(offset["closed"]) for offset in offsets if "closed" in offset]
        if closed and len(closed) == len(offsets):
            return None if self.checkpoint.batch(last).watermark >= watermark else max(closed) + 1000
        delays = [s.watermark.delay.microseconds for s in self.spec.sources.values() if s.watermark is not None]
        delay = max(delays, default=0)
        latest = max(self._latest_event, watermark * 1000 + delay)
        return latest + self.query.longest_window + delay + 1000
