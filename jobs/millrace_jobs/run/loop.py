"""The run loop: it starts Spark's query, follows the plan, watches the batches, restarts, and ends in order.

Before a batch, ``steering`` writes what it runs under, which ``pipeline.reader`` reads in Spark's own process for
sources. Its tasks run what ``queries`` has built. Its results come back here, to ``RunLoop._write``, and go to a sink;
its progress comes through ``listener``, and goes to ``steering`` and to ``observer``.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.listener import QueryTerminatedEvent
from pyspark.sql.streaming.query import StreamingQuery

from millrace_api.errors import MillraceError, TransientError
from millrace_api.model.status import FailureClass
from millrace_jobs.pipeline.progress import BatchReport, KeptRows, batch_report
from millrace_jobs.pipeline.refreshed_tables import announce_contents
from millrace_jobs.plan.plan_source import PlanSource
from millrace_jobs.process import jvm
from millrace_jobs.queries.execution import RoutingMode
from millrace_jobs.queries.reading import RunContext
from millrace_jobs.queries.results import ClosingWindows
from millrace_jobs.queries.sql_scope import sql_problem
from millrace_jobs.queries.tables.stages import announce
from millrace_jobs.run.assembly import RunEnvironment, RunInputs, RunQuery
from millrace_jobs.run.batch_settings import BatchSettings
from millrace_jobs.run.end_of_input import EndOfInput
from millrace_jobs.run.failures import Restarts, attributed_to, failed_query, jvm_gone
from millrace_jobs.run.listener import Event, Listener, Watcher
from millrace_jobs.run.spark_run import INTERRUPTIONS, SparkRun, StopReason
from millrace_jobs.run.state_switch import StateSwitch
from millrace_jobs.run.steering import Steering
from millrace_jobs.session import COUNTS_ROWS
from millrace_jobs.sinks.sink_clock import SINK_CLOCK
from millrace_jobs.sources.base import Position, Source

POLL_SECONDS = 0.2
"""Seconds between two polls of the plan source and of a query that is about to stop."""


@dataclass
class RunLoop:
    """One run of a query in this process, from its checkpoint's last batch on.

    With ``once``, the run processes the available input without pacing, and ends. Else it ends when every source is
    exhausted, or when ``drain`` is called (from a signal handler or another thread). When the input has ended, event
    time goes on until all results are final, unless ``leaves_open``. A transient failure ends the run only if it does
    not start again (``starts_again``). ``accepted`` is called once, when Spark has accepted the query, and ``began`` at
    the start of each batch, with its number.

    The states of a run, each with the method that leaves it:

    - streaming: Spark's query runs batch after batch, in one mode, routed or native (``_reason_to_stop``).
    - stopping: the sources offer no more records, so the running batch is the last; when it is finished, the query is
      stopped (``_can_stop``). A query that is not paced ends by itself.
    - stopped: a new query streams in the plan's mode, unless the input has ended or the run drains (``run``).
    - pausing: after a transient failure, until the query streams from its checkpoint (``_stream_with_restarts``).
    - closing: the input has ended, and a query streams whose event time releases the results that operators still
      hold back (``_release_results``).
    - ended: ``run`` returns whether the run finished or was drained, or raises why it failed.
    """

    query: RunQuery
    inputs: RunInputs
    environment: RunEnvironment
    plans: PlanSource
    watcher: Watcher
    once: bool = False
    leaves_open: bool = False
    starts_again: bool = True
    accepted: Callable[[], None] = lambda: None
    began: Callable[[int], None] = lambda _: None
    is_accepted: bool = False
    results: int = 0
    _written: dict[int, tuple[int, float]] = field(default_factory=dict)
    _streaming_query: StreamingQuery | None = None
    _draining: bool = False
    _why_drained: str = ""
    _hands_over: bool = False
    _consumed: Mapping[str, Position] = field(default_factory=dict)
    _committed: Sequence[Mapping[str, Any]] = ()
    _latest_event: int = 0
    _kept: KeptRows = field(default_factory=KeptRows)
    _gave_up: MillraceError | None = None
    _events: queue.Queue[Event] = field(default_factory=queue.Queue)
    _restarts: Restarts = field(default_factory=Restarts)
    _steering: Steering = field(init=False)
    _settings: BatchSettings = field(init=False)
    _closing: ClosingWindows = field(init=False)
    _switch: StateSwitch = field(init=False)

    def __post_init__(self) -> None:
        """Set up the session settings and the steering."""
        query, inputs, checkpoint = self.query, self.inputs, self.environment.checkpoint
        self._settings = BatchSettings(query.spec.spark_conf)
        self._closing = ClosingWindows(query.compiled, query.spec)
        self._switch = StateSwitch(checkpoint)
        self._steering = Steering(
            query.spec,
            inputs.sources,
            self.plans,
            checkpoint.policies,
            self.environment.workspace / "control.json",
            self.watcher,
            query=query.compiled,
            require=inputs.replicas.require if inputs.replicas is not None else lambda _: None,
            once=self.once,
            replayed=checkpoint.last_batch().unfinished,
            contents=inputs.tables.newest if inputs.tables is not None else dict,
            cores=self.environment.cores,
            executors=self.environment.executors,
        )

    @property
    def restarts(self) -> int:
        """The number of times that the query was started again after a transient failure."""
        return self._restarts.total

    @property
    def failing(self) -> TransientError | None:
        """Why the query was started again, until it computes; None if it has not failed since."""
        return self._restarts.failure

    @property
    def positions(self) -> Mapping[str, Position]:
        """Where the sources are after the last batch of this run; empty before the first."""
        return self._consumed

    @property
    def plan_changes(self) -> int:
        """The number of plans adopted after the first one."""
        return self._steering.plan_changes

    def run(self) -> Literal["finished", "drained"]:
        """Run until the input ends or ``drain`` is called.

        Raises:
            MillraceError: the query failed; committed batches stay.
        """
        stop_listening = Listener(self._events).register(self.environment.spark)
        try:
            self._steering.follow_plan()
            while not self._draining and not self._stream_with_restarts(closing_time=None):
                pass
            if not self.leaves_open:
                self._release_results()
            return "drained" if self._draining else "finished"
        except (Py4JNetworkError, ConnectionError):
            raise jvm_gone() from None
        finally:
            if jvm.is_running():
                for end in (self._stop_query, stop_listening):
                    with suppress(PySparkException, Py4JError, ConnectionError):  # why the run ends is already reported
                        end()

    def drain(
        self, why: str = "ending after the running batch; Ctrl-C again ends at once", *, hands_over: bool = False
    ) -> None:
        """End the run after the running batch; ``why`` is for its users.

        One that hands over to another version also ends after a transient failure, which is no failure of that.
        """
        self._why_drained, self._hands_over, self._draining = why, hands_over, True

    def give_up(self, error: MillraceError | None) -> None:
        """End the run with an error, without waiting for the running batch; do nothing if it is None."""
        self._gave_up = self._gave_up or error

    def _stream_with_restarts(self, closing_time: int | None) -> bool:
        """Stream like ``_stream``; start again from its checkpoint after a transient failure."""
        failed = False
        while True:
            try:
                if failed:
                    self.environment.checkpoint.restore_log()  # needs the lease: ``prepare`` fences other drivers
                    with attributed_to(FailureClass.SINK):
                        self.query.sink.prepare(self.environment.checkpoint.last_batch())
                return self._stream(closing_time)
            except TransientError as failure:
                if not self.starts_again:
                    raise
                self._stop_query()  # it goes on if this loop is what failed
                if not self._draining:
                    self._pause_after(failure)
                if self._draining and self._hands_over:  # the start of the next version repeats the batch, as any does
                    self.watcher.message(f"handing over after a failure: {failure}")
                    return True
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
        """Run one Spark query from its start to its end, in the mode of its plan.

        A batch that was begun before a crash comes first, in the mode of its own plan.

        Returns:
            True when the input has ended; False to continue with a new query.
        """
        mode = self.query.compiled.mode(self.environment.checkpoint.unfinished_pin() or self._steering.pin)
        stream = SparkRun(mode, paced=not self.once and closing_time is None, closing_time=closing_time)
        query = self._begin(stream)
        while (terminated := self._take_event()) is None:
            self._require_alive()
            if stream.stop_reason is not None and self._can_stop(query):
                query.stop()
            if stream.stop_reason is None:
                stream.stop_reason = self._reason_to_stop(stream)
            if self._steering.follow_plan():
                self._settings.follow(self._steering.pin.workers)
            self._instruct_sources(stream)
        if terminated.exception is not None:
            raise self._explained(terminated.exception)
        if stream.stop_reason is None and self._steering.loading.ended():
            return False
        if stream.stop_reason is StopReason.STATE_SWITCHED:
            self._switch_state()
        # the plan may have returned to this mode by now, or left it
        ended = stream.stop_reason not in INTERRUPTIONS
        return ended and self._matches_plan(mode)

    def _switch_state(self) -> None:
        """Go on with a copy of the state, if there is one; its last batch has another number than that of the sink."""
        message = self._switch.switch(lambda: self._draining)
        with attributed_to(FailureClass.SINK):
            self.query.sink.prepare(self.environment.checkpoint.last_batch())
        self.watcher.message(message)

    def _begin(self, stream: SparkRun) -> StreamingQuery:
        """Start Spark's query, whose sources know their instructions before the first batch."""
        self._committed = self.environment.checkpoint.committed_offsets()
        self._streaming_query = None
        self._instruct_sources(stream)
        self._streaming_query = self._start(self._sources_of(stream.mode), mode=stream.mode, paced=stream.paced)
        if not self.is_accepted:
            self.is_accepted = True
            self.accepted()
        return self._streaming_query

    def _instruct_sources(self, stream: SparkRun) -> None:
        """Write what the next batch runs under; drain the sources if this query is to begin no other batch."""
        for message in self.inputs.tables.messages() if self.inputs.tables is not None else ():
            self.watcher.message(message)
        draining = stream.stop_reason is not None or not self._matches_plan(stream.mode)
        self._steering.instruct_sources(draining=draining, closing_time=stream.closing_time)
        if stream.mode is RoutingMode.DEDICATED and self.inputs.replicas is not None:
            self.inputs.replicas.instruct(self._steering.pin, self._consumed, self._steering.most)

    def _sources_of(self, mode: RoutingMode) -> Mapping[str, Source]:
        """Return the sources of a query in this mode: those that were opened, or what replicas make of them."""
        sources, replicas = self.inputs.sources, self.inputs.replicas
        if replicas is None:
            return sources
        if mode is not RoutingMode.DEDICATED:
            replicas.release()
            return sources
        if not self._matches_plan(mode):
            return replicas.finish()
        return replicas.begin(_positions(self.environment.checkpoint.begun()), self._steering.pin)

    def _start(self, sources: Mapping[str, Source], *, mode: RoutingMode, paced: bool) -> StreamingQuery:
        query, checkpoint = self.query, self.environment.checkpoint
        routed = mode is not RoutingMode.NATIVE
        context = RunContext(
            self.environment.spark,
            sources,
            self._steering.control,
            checkpoint.spark,
            checkpoint.policies,
            everything=not paced,
        )
        interval = f"{query.spec.batch_interval.microseconds // 1000} milliseconds"
        try:
            results = query.sink.shape(query.compiled.build(query.spec, context, routed=routed))
            per_record = query.compiled.execution.is_per_record(sources, routed=routed)
            self._settings.begin(results, per_record=per_record)
            writer = (
                results.writeStream.queryName(query.name)
                .foreachBatch(self._write)
                .outputMode(query.compiled.output_mode(query.spec))
                .option("checkpointLocation", str(checkpoint.spark))
            )
            return (writer.trigger(processingTime=interval) if paced else writer.trigger(availableNow=True)).start()
        except AnalysisException as error:  # SQL that Spark supports on tables, but not on streams
            raise MillraceError(sql_problem(error)) from None
        except (PySparkException, Py4JJavaError) as error:  # a checkpoint that Spark rejects
            raise self._explained(str(error)) from None

    def _write(self, results: DataFrame, number: int) -> None:
        """Write the results of a batch to the sink (Spark's ``foreachBatch`` hook), after which Spark commits it.

        Nothing of the batch is computed before the sink acts on ``results``. Until then, the lease is checked, and what
        the tasks have to know of the batch is announced.
        """
        self.began(number)
        checkpoint, tables = self.environment.checkpoint, self.inputs.tables
        context = self.environment.spark.sparkContext
        self._settings.found(results.sparkSession)
        self._settings.follow(self._steering.pin.workers)
        checkpoint.begin(number, self._planned)
        batch = self._closing.marked(checkpoint.batch(number))
        announce(checkpoint.pin(number), batch.watermark, context)
        if tables is not None:
            checkpoint.require_logged(number)
            announce_contents(
                number,
                tables.for_batch(checkpoint.contents(number)),
                context,
            )
        clock = SINK_CLOCK.seconds
        rows = self.query.sink.write(results, batch)
        self._written[number] = rows, SINK_CLOCK.seconds - clock
        self.results += rows
        # PySpark has reset the call site; without one, Spark walks the stack for each operator of the next batch
        context.setLocalProperty("callSite.short", self.query.name)

    def _planned(self, batch: int) -> str:
        """Return a batch's entry in Spark's offset log as Spark has it in memory, where it keeps the last two."""
        while self._streaming_query is None:  # the first batch may begin before its query is known here
            time.sleep(0.01)
        log = self._streaming_query._jsq.streamingQuery().offsetLog()
        text = self.environment.spark._jvm.java.io.ByteArrayOutputStream()  # type: ignore[union-attr]
        log.serialize(log.get(batch).get(), text)
        return str(text.toString("UTF-8"))

    def _take_event(self) -> QueryTerminatedEvent | None:
        """Wait briefly for an event and handle it; return it if the query has terminated, else None."""
        try:
            event = self._events.get(timeout=POLL_SECONDS)
        except queue.Empty:
            return None
        match event:
            case QueryTerminatedEvent():
                query = self._streaming_query
                return event if query is None or str(event.runId) == str(query.runId) else None
            case None:
                self._restarts.recovered()
                self._steering.loading.idle()
                self.watcher.idle(self._steering.pin)
            case progress:
                counted = self.query.spec.spark_conf.get(COUNTS_ROWS) == "true"
                self._learn_from(
                    batch_report(progress, self.query.spec.batch_interval.seconds, self._kept, counted=counted)
                )
        return None

    def _learn_from(self, report: BatchReport) -> None:
        """Adapt to a finished batch, and report it to the watcher."""
        self._restarts.progressed()
        self._switch.clean_up()
        rows, seconds = self._written.pop(report.batch, (None, 0.0))
        report = replace(report, results=rows, sink_seconds=seconds)
        if report.latest_event is not None:
            self._latest_event = max(self._latest_event, report.latest_event)
        self._steering.learn_from(report)
        self._committed = self.environment.checkpoint.committed_offsets()
        self._consumed = {offset["source"]: offset["position"] for offset in self._committed}
        self._settings.learn_from(report.rows, report.waiting)
        self._settings.follow(self._steering.pin.workers)
        self.watcher.batch(report)

    def _require_alive(self) -> None:
        """Raise MillraceError if Spark's JVM, the lease or the replicas' processes are gone, or the run is given up."""
        if self._gave_up is not None:
            raise self._gave_up
        if not jvm.is_running():
            raise jvm_gone()
        if self.environment.checkpoint.lost is not None:
            raise self.environment.checkpoint.lost
        if self.inputs.replicas is not None:
            self.inputs.replicas.require_running()

    def _can_stop(self, query: StreamingQuery) -> bool:
        """Whether the last batch is finished; the loop has already drained the sources, so no other batch can begin."""
        return not query.status["isTriggerActive"] and self.environment.checkpoint.unfinished_pin() is None

    def _reason_to_stop(self, stream: SparkRun) -> StopReason | None:
        """Return why the running batch is to be the last of this query, or None."""
        if stream.paced and stream.clock.set_back() > self.query.spec.batch_interval.seconds:
            self.watcher.message("the clock was set back: starting again, since Spark would wait for the old time")
            return StopReason.CLOCK_SET_BACK
        reason = None
        if not self._matches_plan(stream.mode):
            reason = StopReason.MODE_CHANGED
        elif self._draining:
            reason = StopReason.DRAINING
        elif stream.paced and self._switch.is_requested():
            reason = StopReason.STATE_SWITCHED
        elif stream.paced and self._is_exhausted():
            reason = StopReason.EXHAUSTED
        if reason is not None and self._draining:
            self.watcher.message(self._why_drained)
        return reason

    def _is_exhausted(self) -> bool:
        """Whether the sources that the query reads have no more records; only these have an offset."""
        offsets = self._committed
        return bool(offsets) and all(
            self.inputs.sources[offset["source"]].exhausted(offset["position"]) for offset in offsets
        )

    def _matches_plan(self, mode: RoutingMode) -> bool:
        """Whether the plan wants the query in this mode."""
        return self.query.compiled.mode(self._steering.pin) is mode

    def _explained(self, text: str) -> MillraceError:
        """Return why the query failed, with its failure class."""
        damage = self.environment.checkpoint.damaged_state(text) if "CANNOT_LOAD_STATE_STORE" in text else None
        return failed_query(text, damage)

    def _release_results(self) -> None:
        """Move event time on until Spark's operators hold no result back."""
        end = EndOfInput(self.environment.spark, self.query.spec, self.query.compiled, self.environment.checkpoint)
        while not self._draining and (time := end.closing_time(self._streaming_query, self._latest_event)) is not None:
            self._stream_with_restarts(time)

    def _stop_query(self) -> None:
        """Stop Spark's query if it is running, so that it never writes to a closed sink."""
        if self._streaming_query is not None:
            self._streaming_query.stop()


def _positions(offsets: Mapping[str, Mapping[str, Any]]) -> dict[str, Position]:
    """Return the position in each source's offset."""
    return {name: offset["position"] for name, offset in offsets.items()}
