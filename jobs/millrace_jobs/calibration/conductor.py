"""The conductor of a calibration run: it reads each finished batch, and decides the plan and the records of the next.

First, batches grow until one takes about the time of a large batch of the design; that also warms up the
JVM, which compiles for many batches. Then the points of the design run, one after the other, until time is up.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field, replace
from statistics import mean

from millrace_api.model.plan import Plan
from millrace_jobs.calibration.design import BATCHES_OF_POINT, DesignedPlan, DesignedPoint, designed_points
from millrace_jobs.calibration.turns import BatchTurn
from millrace_jobs.pipeline.progress import BatchReport, placement_of
from millrace_support.plan_measurements import PlanBatch, TimedTasks

_FIRST_ROWS, _MOST_GROWTH, _LEAST_GROWTH = 100, 8.0, 0.25
"""Records of the first batch, few in case the user's own code is slow, and by how much the next one may differ."""

_WARM_UP, _LONGEST_WARM_UP = 0.35, 0.6
"""Share of the time that is for warming up, and for finding the size of batches as long as it is far from found."""

_QUIET_SECONDS, _LEAST_EMPTY = 20.0, 5
"""Seconds without a record after which a run ends, since nothing else would end it, and how often nothing was found by
then: on a busy machine one batch may take as long."""

LEAST_BATCHES = 6
"""Batches without which nothing can be reported."""

_LEAST_WARM_UP = 6
"""Batches that warm up at least."""

_PATIENCE, _MOST_PATIENCE = 2.0, 10.0
"""Multiples of its time after which the run ends, although a plan was not measured, or hardly any batch was."""

_NEAR = 2.0
"""Growth by which a batch is near its size."""

_SHORT = 0.7
"""Share of the records that were asked for, below which the source has no more, or a batch is none of that size."""

_LARGE_BATCHES, _LARGEST_BATCHES = 36.0, 12.0
"""A large batch takes the time of the run over the first number, or up to that over the second on a slow machine."""

_SHORTEST, _RECORDS_SHARE, _FIXED = 0.5, 2.5, 0.8
"""Seconds that a large batch takes at least, how many times as long as the shortest one, and the part of this one that
is taken for fixed."""

_TRIED, _LONGER = 2.0, 1.5
"""Growth that is tried where even the shortest batch takes long, and the ratio of times from which one is longer."""

_SLOW = 8.0
"""Seconds of the first batch from which the next one has no more records."""

_MOST_ROWS = 1 << 20
"""Records that one replica reads at most, as in any run: some partitioners hold them in memory."""

_PAUSE = 1.0
"""Seconds that records read again are later than the last ones before."""


@dataclass(frozen=True)
class RunPoint:
    """A point that runs, with the epoch of its plan, and the batches of it that have ended."""

    point: DesignedPoint
    epoch: int
    batches: int = 0


@dataclass
class Conductor:
    """What a calibration run does next.

    Args:
        plans: the designed plans, the usual one first.
        base: the plan of the query, whose algorithm, parameters and placement stay.
        seconds: the time of all batches.
        leave: leaves so many cores for the next batch.
        give: gives the next turn to the sources.
        say: takes a line on what happens.
        end: ends the run after its last batch.
        clock: seconds of a monotonic clock.
        first_time: earliest event time of the records, in microseconds; None without a watermark.
        delay: delay of the watermark in microseconds.
        streams: names of the sources that have turns; batches of others alone, which are tables, do not count.
    """

    plans: Sequence[DesignedPlan]
    base: Plan
    seconds: float
    leave: Callable[[int], None]
    give: Callable[[BatchTurn], None]
    say: Callable[[str], None]
    end: Callable[[], None]
    clock: Callable[[], float]
    first_time: int | None = None
    delay: int = 0
    streams: Set[str] = frozenset()
    finished: list[PlanBatch] = field(default_factory=list)
    algorithms: list[str] = field(default_factory=list)
    warm_up: int = 0
    rejected: int = 0
    events: list[tuple[int, int]] = field(default_factory=list)
    """Records so far and the latest event time, after each batch that had one."""

    _turn: BatchTurn = field(default_factory=lambda: BatchTurn(0, _FIRST_ROWS))
    _waits: bool = False
    _points: list[DesignedPoint] = field(default_factory=list)
    _running: RunPoint | None = None
    _epoch: int = 1
    _plan: Plan | None = None
    _began: float | None = None
    _read: float | None = None
    """When a record was read last; before the first one, when the run began to ask for them."""

    _empty: int = 0
    """How often nothing was found since."""

    _unit_rows: float = 0.0
    _most_rows: int = 0
    _large: int = _FIRST_ROWS
    _known: int = 0
    _shortest: float = math.inf

    def __post_init__(self) -> None:
        self._plan = self._of(self.plans[0])

    def current(self) -> Plan | None:
        """Return the plan, if it has changed since the last call.

        The turn of a new plan is given one call later, when the sources know the plan.
        """
        plan, self._plan = self._plan, None
        if plan is None and self._waits:
            self._waits = False
            self.give(self._turn)
        return plan

    def begin(self) -> None:
        """Give the first turn, before the sources are asked for it."""
        self._give(_FIRST_ROWS)

    @property
    def is_up(self) -> bool:
        """Whether the time is over, and every plan was measured, if that is possible in some more time."""
        seen = {(batch.cores, batch.parallelism, batch.replicas) for batch in self.finished}
        patience = 1.0 if len(seen) == len(self.plans) else _PATIENCE
        if len(self.finished) < LEAST_BATCHES:
            patience = _MOST_PATIENCE
        return self.spent >= patience * self.seconds

    @property
    def is_warming_up(self) -> bool:
        """Whether the plans of the design are still to come."""
        return self._running is None

    @property
    def spent(self) -> float:
        """Seconds since the end of the first batch."""
        return 0.0 if self._began is None else self.clock() - self._began

    def batch(self, report: BatchReport) -> None:
        """Take a finished batch, and decide what follows."""
        self.rejected += report.rejected
        if not report.rows:
            self.idle()
            if report.taken or report.rejected:  # units without a record
                self._give(self._turn.rows)
            return
        self._read, self._empty = self.clock(), 0
        if self.streams and self.streams.isdisjoint(report.taken_from):
            self.say(f"reading tables: {report.rows:,} records take {report.seconds:.1f} s")
            return
        if self._began is None:  # the first batch, which loads code, does not count
            self._began = self.clock()
        self._note(report)
        if self._running is None:
            self._warm(report)
        else:
            self._measure(report, self._running)

    def idle(self) -> None:
        """Note that nothing was read; end the run if that lasts, as where a source has no more that can be read."""
        now = self.clock()
        self._read = now if self._read is None else self._read
        self._empty += 1
        if now - self._read >= _QUIET_SECONDS and self._empty >= _LEAST_EMPTY:
            self.end()

    def _warm(self, report: BatchReport) -> None:
        self.warm_up += 1
        self.say(f"warming up: {report.rows:,} records take {report.seconds:.1f} s")
        asked, is_short = max(_taken(report), self._turn.rows), _taken(report) < _SHORT * self._turn.rows
        growth = self._growth(report.seconds)
        if self.warm_up == 1:  # which is slow whatever its size
            growth = _MOST_GROWTH if report.seconds < _SLOW else 1.0
        elif self.warm_up < _LEAST_WARM_UP and report.seconds < _SLOW:  # it still gets faster
            growth = max(growth, 1.0)
        if is_short:  # the source has no more, or ends here
            growth = min(growth, 1.0)
        if (
            self.warm_up >= _LEAST_WARM_UP
            and self.spent >= (_WARM_UP if growth <= _NEAR else _LONGEST_WARM_UP) * self.seconds
        ):
            self._large = self._most_rows if is_short else round(asked * growth)
            self._next_point()
            return
        self._give(round(min(asked * growth, _MOST_ROWS * self.plans[0].replicas)))

    def _growth(self, seconds: float) -> float:
        """Return how many times the records a batch should have that takes the time of a large one.

        Most of the shortest batch so far is taken for what batches need whatever they have.
        """
        fixed = _FIXED * self._shortest
        wanted = max(self.seconds / _LARGE_BATCHES, _SHORTEST, _RECORDS_SHARE * self._shortest)
        wanted = min(wanted, self.seconds / _LARGEST_BATCHES)
        if wanted <= _LONGER * fixed:  # on a busy machine, more records need not take longer
            return _TRIED if seconds < _LONGER * self._shortest else 1 / _TRIED
        return min(max((wanted - fixed) / max(seconds - fixed, 1e-3), _LEAST_GROWTH), _MOST_GROWTH)

    def _next_point(self) -> None:
        if not self._points:  # another round, while there is time
            self._points = designed_points(self.plans, self._resized())
        point = self._points.pop(0)
        self._epoch += 1
        self._running = RunPoint(point, self._epoch)
        self._plan = self._of(point.plan)
        self.leave(point.plan.cores)
        self._give(point.rows)

    def _resized(self) -> int:
        """Return the records of the next round's large batches, by how long those of the last round took."""
        large = [b for b in self.finished if b.rows >= _SHORT * self._large]
        times = [b.seconds for b in large if b.cores == self.plans[0].cores]
        if times:
            growth = self._growth(times[-1])
            if not 1 / _NEAR <= growth <= _NEAR:
                self._large = min(round(self._large * growth), _MOST_ROWS * self.plans[0].replicas)
        return self._large

    def _measure(self, report: BatchReport, running: RunPoint) -> None:
        if report.pin is None or report.pin.epoch != running.epoch:  # planned before the plan was known
            self._give(running.point.rows)
            return
        plan = running.point.plan
        self.finished.append(plan_batch(report, plan, running.epoch))
        self.algorithms.append(report.pin.algorithm)
        self._running = running = replace(running, batches=running.batches + 1)
        if self.is_up:
            self.end()
        elif running.batches < BATCHES_OF_POINT:
            self._give(running.point.rows)
        else:
            times = [batch.seconds for batch in self.finished[-BATCHES_OF_POINT + 1 :]]
            self.say(f"{plan}: {report.rows:,} records take {mean(times):.2f} s")
            self._next_point()

    def _note(self, report: BatchReport) -> None:
        self._known += report.rows
        self._shortest = min(self._shortest, report.seconds)
        self._most_rows = max(self._most_rows, _taken(report))
        if report.rows >= _SHORT * self._turn.rows or not self._unit_rows:
            self._unit_rows = report.rows / self._turn.units
        if report.latest_event is not None:
            self.events.append((self._known, report.latest_event))

    def _give(self, rows: int) -> None:
        units = max(round(rows / self._unit_rows), 1) if self._unit_rows else 1
        self._turn = BatchTurn(self._turn.number + 1, max(rows, 1), units, self._shift())
        if self._plan is None or self._turn.number == 1:
            self.give(self._turn)
        else:
            self._waits = True

    def _shift(self) -> int:
        if self.first_time is None or not self.events:
            return 0
        latest = max(time for _, time in self.events)
        return latest - self.first_time + self.delay + round(_PAUSE * 1e6)

    def _of(self, plan: DesignedPlan) -> Plan:
        changed = {"epoch": self._epoch, "parallelism": plan.parallelism, "replicas": plan.replicas}
        return self.base.model_copy(update=changed)

    @property
    def algorithm(self) -> str:
        """The algorithm of most batches."""
        return Counter(self.algorithms).most_common(1)[0][0]

    @property
    def counted(self) -> list[PlanBatch]:
        """The batches under that algorithm."""
        return [batch for batch, name in zip(self.finished, self.algorithms, strict=True) if name == self.algorithm]


def _taken(report: BatchReport) -> int:
    """Return the size of a batch as its turn counts it: not all offsets of Kafka have a record that can be read."""
    return max(report.rows, report.taken)


def plan_batch(report: BatchReport, plan: DesignedPlan, epoch: int) -> PlanBatch:
    """Return what the model has to know of a batch."""
    steps, cost = report.steps, placement_of(report)
    return PlanBatch(
        number=report.batch,
        epoch=epoch,
        cores=plan.cores,
        parallelism=plan.parallelism,
        replicas=plan.replicas,
        rows=report.rows,
        seconds=report.seconds,
        keys=report.distinct_keys,
        hottest_key=report.hottest_key_share,
        imbalance=None if cost is None else cost.load_imbalance_ratio,
        partials=sum(task.groups for task in report.combined),
        updates=report.state_updates,
        route=TimedTasks(len(report.route), sum(report.route)) if report.route else None,
        combine=TimedTasks(len(report.combine), sum(report.combine)) if report.combine else None,
        merge_seconds=report.merge_seconds,
        routed=report.routed,
        input_bytes=report.bytes,
        route_bytes=report.routed_bytes,
        combine_bytes=report.partial_bytes,
        source_seconds=steps.get("latestOffset", 0.0) + steps.get("getBatch", 0.0),
        log_seconds=steps.get("walCommit", 0.0) + steps.get("commitOffsets", 0.0),
        planning_seconds=steps.get("queryPlanning", 0.0),
        longest_slice=max(report.slice_seconds, default=0.0),
        largest_slice=report.largest_slice_share,
    )
