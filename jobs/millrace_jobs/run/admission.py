"""Admission control: limit the records of the next batch, so that it takes about one batch interval.

A batch takes a fixed time and a time per record. Its tasks report how long they worked, so one batch is enough to
bound both: time outside of tasks is fixed, and a record costs at most its share of the tasks' work. Part of that work
is fixed as well (a task starts, a state store commits). Batches of different sizes show how much; until there are any,
the tasks' own clocks do, where tasks have some.

The estimate errs on the side of small batches, so the limit may grow many times over from one batch to the next.
Admission never holds back what arrives within an interval: if a job is too slow, its batches grow with its load.

``steering`` writes the limits for ``pipeline.reader``.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass

_SIZE_FACTOR = 2.0
"""Minimum factor between the sizes of two batches that shows which part of their work is fixed."""

_MAX_DISCOUNT = 16.0
"""Largest factor by which a record may cost less than its share of the whole work, whatever the batches suggest."""

_FITTED_BATCHES = 8
"""Number of recent batches that costs are fitted to."""

_PRIOR_WEIGHT = 0.25
"""Weight of the previous estimate of the fixed part, in batches."""

_CHANGE_FACTOR, _CHANGE_BATCHES = 1.5, 2
"""Factor of misprediction, and consecutive batches with it, that show a change of costs; one outlier is no change."""

_MAX_PROBE_PERIOD = 64
"""Maximum number of batches of one size before a batch of another size is wanted."""


class TaskCosts:
    """The work of a batch: seconds that do not depend on its records (``fixed``), and seconds per record.

    Both are 0 before the first batch.
    """

    def __init__(self) -> None:
        self._batches: deque[tuple[int, float]] = deque(maxlen=_FITTED_BATCHES)
        self._besides: deque[float] = deque(maxlen=_FITTED_BATCHES)
        self.forget()

    def forget(self) -> None:
        """Discard all measurements and start over with the next batch."""
        self.fixed = self.per_record = 0.0
        self._batches.clear()
        self._besides.clear()
        self._known: float | None = None
        self._since_probe, self._probe_after = 0, 1

    def add(self, rows: int, work: float, beside: float = 0.0) -> None:
        """Learn from a batch of ``rows`` records that took ``work`` seconds, of which ``beside`` were not for records.

        Batches of different sizes say more, as soon as there are any: what tasks did not measure may still grow with
        records.
        """
        self._forget_if_changed(rows, work)
        self._batches.append((rows, work))
        self._besides.append(beside)
        self.fixed, self.per_record = _fitted(self._batches, self._fixed_so_far())
        if self._differ():
            self._known = self.fixed
            self._since_probe = 0
        else:
            self._since_probe += 1

    def wants_another_size(self) -> bool:
        """Whether the next batch should have another size, because batches of one size do not show the fixed part.

        Without such probes, a fixed part that was once mistaken for the cost of records would keep batches small
        forever. The number of batches between two probes doubles each time, up to a bound.
        """
        if self._known is None:
            return True
        if self._since_probe < self._probe_after:
            return False
        self._probe_after = min(2 * self._probe_after, _MAX_PROBE_PERIOD)
        return True

    def _fixed_so_far(self) -> float:
        """Return the fixed work that batches of different sizes have shown, or else what tasks did beside records."""
        return statistics.median(self._besides) if self._known is None else self._known

    def _differ(self) -> bool:
        sizes = [rows for rows, _ in self._batches]
        return max(sizes) >= _SIZE_FACTOR * min(sizes)

    def _forget_if_changed(self, rows: int, work: float) -> None:
        """Discard the measurements if the last batches are far off in the same direction: costs have changed."""
        last = [*self._batches, (rows, work)][-_CHANGE_BATCHES:]
        if len(self._batches) < _CHANGE_BATCHES:
            return
        off = [seconds / (self.fixed + self.per_record * records) for records, seconds in last]
        if min(off) > _CHANGE_FACTOR or max(off) < 1 / _CHANGE_FACTOR:
            beside = self._besides[-1]
            self.forget()
            self._batches.append(last[0])
            self._besides.append(beside)


def _fitted(batches: Collection[tuple[int, float]], known: float) -> tuple[float, float]:
    """Return the fixed work in seconds and the seconds per record, by least squares of relative errors.

    Errors are relative to the measured work, so a delayed batch has an error of at most 1, however long it took.

    Args:
        batches: records and seconds of work of each batch.
        known: the estimate of the fixed work so far, in seconds; batches of one size do not determine it.
    """
    usual = statistics.median(work for _, work in batches)
    ones = sum(1 / work**2 for _, work in batches) + _PRIOR_WEIGHT / usual**2
    mixed = sum(rows / work**2 for rows, work in batches)
    squares = sum((rows / work) ** 2 for rows, work in batches)
    one = sum(1 / work for _, work in batches) + _PRIOR_WEIGHT * known / usual**2
    row = sum(rows / work for rows, work in batches)
    determinant = ones * squares - mixed**2
    fixed = (one * squares - row * mixed) / determinant
    if fixed <= 0:
        return 0.0, row / squares
    per_record = (ones * row - mixed * one) / determinant
    least = row / squares / _MAX_DISCOUNT
    return (fixed, per_record) if per_record >= least else ((one - mixed * least) / ones, least)


MIN_LIMIT = 128
"""Lower bound of the limit, in records."""

MAX_GROWTH = 16.0
"""Largest factor by which a batch may outgrow the last: a hundred times the records may not fit in memory."""

MAX_OVERRUN = 2.0
"""Factor by which the tasks of a batch may overrun if the estimate of their fixed part is wrong."""

MAX_SHRINKAGE = 4.0
"""Largest factor by which the limit falls from one batch to the next."""

WARM_UP_FACTOR = 4.0
"""Factor by which a record may cost more in the first batch of a process than in later ones."""

MIN_RECORDS_SHARE = 0.5
"""Minimum share of a batch's time for its records: with less, a job with a long fixed time never catches up."""

MAX_SEARCH_SHARE = 0.2
"""Largest share of a batch's time for searching the state, which takes as long for few records as for many.

Spark looks at every key after each batch, whether the watermark has passed it. With millions of keys that can take
longer than an interval.
"""

_RECENT_BATCHES = 3
"""Number of recent batches behind the median of the time outside of tasks: a single outlier changes little."""

_SIGNIFICANT_SHARE = 0.25
"""Minimum share of the limit at which a batch shows what records cost; the work of a smaller one is mostly fixed."""

_MIN_WORK = 1e-6
"""Minimum work of a batch, in seconds: a smaller value was not measured."""

_SETTLING_BATCHES = 2
"""Batches ignored after a change of plan: new executors start their processes in them."""


@dataclass(frozen=True)
class FinishedBatch:
    """A finished batch, as admission learns from it.

    Attributes:
        rows: records of the batch.
        seconds: its processing time.
        work: seconds of that time spent waiting for tasks or for results to be written; an upper bound is enough.
        plan: a value that is equal for batches under the same plan.
        arrived: records that arrive within a batch interval; 0 if unknown.
        search: seconds of the work in which tasks searched the state, at least.
        on_records: seconds of the work that tasks may have spent on records, by their own clocks; None if they have
            none.
    """

    rows: int
    seconds: float
    work: float
    plan: object = None
    arrived: int = 0
    search: float = 0.0
    on_records: float | None = None


class Admission:
    """A limit on the records of the next batch, learned from finished batches.

    Args:
        goal: seconds that a batch should take while there is a backlog.
        longest: seconds that a batch may take if it then clears the backlog. With ``goal`` for both, a load that the
            job can just carry would leave some records behind in every batch.
        first: limit of the first batch, in records, before any batch was measured.
    """

    def __init__(self, goal: float, longest: float, first: int) -> None:
        self._goal = goal
        self._longest = longest
        self._limit = self._clearing_limit = first
        self._is_first = True
        self._plan: object = None
        self._settling = 0
        self._knows_record_cost = False
        self._costs = TaskCosts()
        self._outside: deque[float] = deque(maxlen=_RECENT_BATCHES)
        self._arrived: deque[int] = deque(maxlen=_RECENT_BATCHES)
        self._searches: deque[float] = deque(maxlen=_RECENT_BATCHES)

    @property
    def limit(self) -> int:
        """The maximum number of records in the next batch, over all sources, while there is a backlog."""
        return max([self._limit, *self._arrived])

    def finished(self, batch: FinishedBatch) -> None:
        """Learn from a batch.

        Batches without records are ignored, and so are batches of zero or negative time, which occur after the clock
        was set back. The first batch of a process only lowers the limit, because its costs include every warm-up.
        """
        if batch.rows <= 0 or batch.seconds <= 0:
            return
        self._arrived.append(batch.arrived)
        work = min(max(batch.work, _MIN_WORK), batch.seconds)
        on_records = work if batch.on_records is None else min(max(batch.on_records, _MIN_WORK), work)
        if self._is_first:
            self._is_first, self._plan = False, batch.plan
            fitting = int(WARM_UP_FACTOR * self._goal / on_records * batch.rows)
            self._limit = self._clearing_limit = max(MIN_LIMIT, min(self._limit, fitting))
            return
        if self._plan != batch.plan:
            self._change_plan(batch.plan)
        if self._settling:
            self._settling -= 1
            return
        is_significant = batch.rows >= self._limit * _SIGNIFICANT_SHARE or batch.seconds > self._goal
        if is_significant or not self._knows_record_cost:
            self._knows_record_cost |= is_significant
            self._outside.append(batch.seconds - work)
            self._searches.append(batch.search)
            self._costs.add(batch.rows, work, work - on_records)
            self._adapt(batch.rows, work)

    def shares(self, waiting: Mapping[str, int], most: int) -> dict[str, int]:
        """Divide the limit among the sources in proportion to their backlogs.

        Every source gets at least an even share of a quarter of the limit, so that it can show its backlog. This
        minimum is not taken from the other sources: all shares together may exceed the limit by a quarter, but never
        exceed ``most``.

        Args:
            waiting: records that the last batch left in each source.
            most: records that fit in memory.

        Returns:
            The limit of each source, at least 1.
        """
        total = sum(waiting.values())
        expected = total + max(self._arrived, default=0)
        limit = min(max(self.limit, self._clearing_limit) if expected <= self._clearing_limit else self.limit, most)
        if not total:
            return {name: max(1, limit // len(waiting)) for name in waiting}
        shares = {name: max(limit / 4 / len(waiting), limit * records / total) for name, records in waiting.items()}
        fitting = min(1.0, max(most - len(waiting), 0) / sum(shares.values()))
        return {name: max(1, int(share * fitting)) for name, share in shares.items()}

    def _change_plan(self, plan: object) -> None:
        """Forget the task costs under the old plan; keep the time outside of tasks and the limit."""
        self._plan = plan
        self._settling = _SETTLING_BATCHES
        self._costs.forget()

    def _adapt(self, rows: int, work: float) -> None:
        """Set the limit to what fits the goal, or higher if the fixed time leaves too little of it for records."""
        fixed = statistics.median(self._outside) + self._costs.fixed
        room = max(self._goal - fixed, fixed * MIN_RECORDS_SHARE / (1 - MIN_RECORDS_SHARE))
        # stricter than for other fixed time, which is a guess, where the time of the search was measured
        room = max(room, min(self._searches) * (1 - MAX_SEARCH_SHARE) / MAX_SEARCH_SHARE)
        wanted = room / self._costs.per_record
        if work <= 2 * room and self._costs.wants_another_size():
            wanted = max(wanted, _SIZE_FACTOR * rows)
        growth = min(max(MAX_OVERRUN * room / work, _SIZE_FACTOR), MAX_GROWTH)
        most = max(growth * rows, self._limit if self._knows_record_cost else MIN_LIMIT)
        self._limit = int(min(max(wanted, self._limit / MAX_SHRINKAGE, MIN_LIMIT), most))
        self._clearing_limit = int(min((self._longest - fixed) / self._costs.per_record, most))
