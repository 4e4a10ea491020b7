"""Steering of the next batch: its plan, what its partitioners have learned, and its size.

What it writes, ``pipeline.reader`` reads (``plan.control``). The session settings are those of ``batch_settings``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from millrace_api.errors import MillraceError
from millrace_api.model.streamquery import Spec
from millrace_jobs.pipeline.progress import BatchReport
from millrace_jobs.places import Place
from millrace_jobs.plan.control import Control, Pin, write_control
from millrace_jobs.plan.plan_source import PlanSource, pin_of
from millrace_jobs.plan.policies import MAX_STATE, LearnedStates
from millrace_jobs.queries.execution import CompiledQuery, RoutingMode
from millrace_jobs.run.admission import Admission, FinishedBatch
from millrace_jobs.run.listener import Watcher
from millrace_jobs.session import ExecutorState
from millrace_support.batch_cost import fitted_tasks, makespan

ONCE_INTERVALS = 10
"""Batch intervals that one batch may take in a ``once`` run, in which no user waits for single batches."""

SQL_RATE, PYTHON_RATE = 100_000, 20_000
"""Records per second that an unmeasured query is expected to process on a small machine, for SQL and Python."""

FIRST_SECONDS = 3.0
"""Maximum size of the first batch, in seconds of the expected throughput.

The warm-up makes that batch take seconds at any size. With many more records, a badly wrong expectation could cost
minutes.
"""

REPLICA_RECORDS, REPLICA_BYTES = 1 << 20, 256 << 20
"""Maximum that one replica reads in a batch, in records and in bytes: some partitioners hold all of it in memory."""

RESULT_SECONDS = 50e-6
"""Seconds that a result takes at most to be finished, encoded and written, of which no task has a clock."""

RECORD_BYTES = 256
"""Expected size of a record in memory, in bytes, before one was read."""


class Steering:
    """A controller that follows a plan source, learns from finished batches, and writes the sources' control file.

    Args:
        spec: the spec of the query.
        sources: the names of its sources.
        plans: the source of plans.
        policies: folder of the partitioners' learned states; those of an earlier run are loaded from it.
        control: the file that the sources read before each batch.
        watcher: receives messages about new plans and problems.
        query: the compiled query, whose form depends on the plan.
        require: raises MillraceError if a plan cannot be followed.
        once: whether the run processes the available input and ends.
        replayed: the batch that an earlier run began and did not finish.
        contents: returns the newest content of each static table that is read in the background.
        cores: returns the number of cores that run tasks now.
        executors: returns the executors; None where tasks run in this process.
    """

    def __init__(
        self,
        spec: Spec,
        sources: Iterable[str],
        plans: PlanSource,
        policies: Place,
        control: Path,
        watcher: Watcher,
        *,
        query: CompiledQuery,
        require: Callable[[Pin], None],
        once: bool,
        replayed: int | None = None,
        contents: Callable[[], Mapping[str, str]] = dict,
        cores: Callable[[], int] = lambda: 1,
        executors: Callable[[], ExecutorState | None] = lambda: None,
    ) -> None:
        self.control = control
        self.loading = TableLoading(spec, once=once, replayed=replayed)
        self.plan_changes = 0
        self._plans = plans
        self._watcher = watcher
        self._query = query
        self._require = require
        self._contents = contents
        self._cores = cores
        self._executors = executors
        self._slots = spec.executors.cores.slots
        self._plan: tuple[Pin, int] | None = None  # with its executors
        self._were_complete = False  # the executors of a plan, since the start
        self._unread = 0  # records that the last batch has read or left
        self._pin: Pin | None = None
        self._learned = LearnedStates(policies)
        self._interval = spec.batch_interval.seconds
        longest = (ONCE_INTERVALS if once else 1) * self._interval
        rate = SQL_RATE if spec.query.sql is not None else PYTHON_RATE
        self._admission = Admission(spec.scaling.target * longest, longest, first=int(rate * FIRST_SECONDS))
        self._last: BatchReport | None = None
        self._record_bytes: float = RECORD_BYTES
        self._waiting: Mapping[str, int] = dict.fromkeys(sources, 0)
        streams = {name for name in self._waiting if spec.sources[name].table is None}
        self._streams = streams or set(self._waiting)  # tables alone are read like streams
        self._written: Control | None = None
        self._news = ""
        self._reported_epoch: int | None = None
        self._reported_loading = False
        self._saves_learned = True

    @property
    def pin(self) -> Pin:
        """The plan that was adopted last, with the tasks that fit the executors that are there."""
        assert self._pin is not None
        return self._pin

    def most(self, source: str) -> int:
        """Return the maximum number of records of a source in the next batch, as the sources know it."""
        assert self._written is not None
        return self._written.most[source]

    def follow_plan(self) -> bool:
        """Adopt a new plan, to be reported with the next instructions; keep the last one if it cannot be followed.

        While executors of the plan are missing, as after a loss, batches have fewer tasks, so that they need no other
        wave.

        Returns:
            Whether the next batch runs under a new plan, or with other tasks.

        Raises:
            MillraceError: the first plan cannot be followed.
        """
        try:
            plan = self._plans.current()
            pin = pin_of(plan) if plan is not None else None
            if pin is not None:
                self._require(pin)
        except MillraceError as error:
            if self._pin is None:
                raise
            self._watcher.message(f"the plan stays as it is: {error}")
            return False
        if plan is None or pin is None:
            return self._fit_tasks()
        if self._pin is not None:
            self.plan_changes += 1
            where = ", in processes of their own" if pin.is_dedicated else ""
            plan_text = f"plan {pin.epoch}: {pin.algorithm}, m={pin.replicas}{where}, n={pin.workers}"
            self._news = f"{plan_text}, from the next batch on"
        self._plan = pin, plan.executors
        self._fit_tasks()
        return True

    def _fit_tasks(self) -> bool:
        """Fit the tasks of the plan to the executors that are there; return whether they are others than before.

        Until all executors have come after a start, tasks are as planned: those that come within a batch take some. As
        many replicas stay as are needed to read what waits. Replicas in processes of their own place records ahead of
        batches, and so keep to the plan.
        """
        if self._plan is None:
            return False
        pin, wanted = self._plan
        executors = None if pin.is_dedicated else self._executors()
        if executors is not None:
            self._were_complete |= executors.ready >= wanted
        if executors is not None and self._were_complete:
            planned, ready = wanted * self._slots, executors.ready * self._slots
            workers, replicas = (fitted_tasks(tasks, planned, ready) for tasks in (pin.workers, pin.replicas))
            needed = min(math.ceil(self._unread / self._most_of_replica), pin.replicas)
            pin = replace(pin, workers=workers, replicas=max(replicas, needed))
        before, self._pin = self._pin, pin
        return pin != before

    def instruct_sources(self, *, draining: bool, closing_time: int | None) -> None:
        """Write what the next batch runs under to the control file; with ``draining``, no batch follows."""
        held = self.loading.waiting
        tables = self._contents()
        control = Control(self._learned.attach(self.pin), draining, closing_time, self._limits(), held, tables)
        if control != self._written:
            write_control(self.control, control)
            self._written = control
        if self._news:  # not before the sources know it
            self._watcher.message(self._news)
            self._news = ""

    def _limits(self) -> Mapping[str, int]:
        """Return the maximum number of records in the next batch, by source.

        Tables are read before streams, as far as memory allows. A stream that is ahead of a table would move the
        watermark, behind which the table's upserts no longer correct results.
        """
        fitting = self._most_of_replica * self.pin.replicas
        limits = self._admission.shares({name: self._waiting[name] for name in self._streams}, fitting)
        tables = self._waiting.keys() - self._streams
        if any(self._waiting[name] for name in tables):
            limits = dict.fromkeys(self._streams, 1)
        return limits | dict.fromkeys(sorted(tables), fitting)

    @property
    def _most_of_replica(self) -> int:
        """The maximum number of records that a replica reads in a batch."""
        return max(1, min(REPLICA_RECORDS, int(REPLICA_BYTES / self._record_bytes)))

    def learn_from(self, report: BatchReport) -> None:
        """Learn from a finished batch: limits, sizes, and what its partitioners have learned."""
        if self.loading.waiting and not self._reported_loading:
            self._reported_loading = True
            self._watcher.message(f"the streams wait until the tables are read: {', '.join(self.loading.tables)}")
        self.loading.learn_from(report)
        self._waiting = {name: report.waiting_in.get(name, 0) for name in self._waiting}
        if report.pin is None:
            return
        if report.rows:
            self._record_bytes = max(report.bytes / report.rows, 1.0)
        self._unread = _admitted(report) + report.waiting
        tasks = self._planned(report.pin)
        plan = (report.pin.algorithm, tasks.replicas, tasks.workers)
        arrived = self._arrivals_per_interval(report)
        at_once = max(min(report.state_partitions or 1, self._cores()), 1)
        search, on_records = report.search_seconds / at_once, self._on_records(report, at_once)
        self._admission.finished(
            FinishedBatch(_admitted(report), report.seconds, report.work, plan, arrived, search, on_records)
        )
        if self._query.mode(report.pin) is not RoutingMode.NATIVE:
            self._save_learned(report.batch, report.pin, report.states)

    def _planned(self, pin: Pin) -> Pin:
        """Return the pin of a batch with all tasks of its plan: costs stay known while executors are missing."""
        return self._plan[0] if self._plan is not None and self._plan[0].epoch == pin.epoch else pin

    def _on_records(self, report: BatchReport, at_once: int) -> float | None:
        """Return the seconds of a batch that may have been spent on records; None unless its tasks have clocks.

        ``at_once`` is the number of tasks that merge at the same time. Under ``native`` the tasks that combine also
        read and route.
        """
        if not report.combine or report.results is None:
            return None
        cores = max(self._cores(), 1)
        routing = makespan(report.route, cores) if report.worker_rows else 0.0
        stages = routing + makespan(report.combine, cores) + report.merge_seconds / at_once
        return stages + RESULT_SECONDS * report.results

    def _arrivals_per_interval(self, report: BatchReport) -> int:
        """Return the records that arrive per batch interval, averaged since the previous batch; 0 for the first one."""
        before, self._last = self._last, report
        seconds = (report.began - before.began).total_seconds() if before is not None else 0.0
        if before is None or seconds <= 0:
            return 0
        records = _admitted(report) + report.waiting - before.waiting
        return max(0, int(records * self._interval / max(seconds, self._interval)))

    def _save_learned(self, batch: int, pin: Pin, states: Mapping[int, str | None]) -> None:
        """Save what the partitioners have learned for later batches; report it if that fails."""
        try:
            self._learned.store(batch, pin, states)
        except OSError as error:
            if self._saves_learned:
                why = error.strerror or error
                self._watcher.message(f"what the partitioners learn cannot be saved: {why}; results stay correct")
            self._saves_learned = False
            return
        self._saves_learned = True
        if None in states.values() and self._reported_epoch != pin.epoch:
            self._reported_epoch = pin.epoch
            self._watcher.message(
                f"what a replica of {pin.algorithm} learns is more than {MAX_STATE // 1024} KiB, too much to be "
                "carried from batch to batch: each batch starts without it; results stay correct"
            )


def _admitted(report: BatchReport) -> int:
    """Return the size of a batch as its limit counts it.

    Kafka counts offsets, and some have no record: because of transactions, compaction, or records that cannot be read.
    """
    return max(report.rows, report.taken)


class TableLoading:
    """The streams that wait at a start until the query's tables have been read to their ends.

    A record of a stream is joined with the version of a table at its own event time, and its result is not corrected
    once the watermark has passed it. Only streams move the watermark. If both were read at once, a stream's backlog
    could be finished before the table's, and its results would miss the rows that were still to come.

    Args:
        spec: the spec of the query.
        once: whether the run processes the available input and ends. A Spark query then reads the tables and ends, and
            the next one reads the streams.
        replayed: the batch that an earlier run began and did not finish; the backlogs in its report are that run's.
    """

    def __init__(self, spec: Spec, *, once: bool, replayed: int | None) -> None:
        self._once = once
        self._replayed = replayed
        self.tables = tuple(name for name, source in spec.sources.items() if source.is_evolving)
        streams = tuple(name for name, source in spec.sources.items() if source.table is None)
        self.waiting = streams if self.tables else ()
        """The streams that offer no records yet."""

    def learn_from(self, report: BatchReport) -> None:
        """Learn from a finished batch: the streams begin if it has left nothing in the tables."""
        if report.batch != self._replayed and not any(report.waiting_in.get(table) for table in self.tables):
            self.idle()

    def idle(self) -> None:
        """Learn that the sources that do not wait had nothing to offer."""
        if not self._once:
            self.waiting = ()

    def ended(self) -> bool:
        """Learn that Spark's query has ended by itself; return whether streams are still to be read, by another one."""
        were_waiting, self.waiting = bool(self.waiting), ()
        return were_waiting
