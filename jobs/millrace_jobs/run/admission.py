"""Admission control: how many records the next batch may have, so that it takes about the interval and not more.

A batch takes a fixed time and a time per record. The tasks of a batch report how long they worked, so one batch is
enough to bound both: what is no task's work is fixed, and a record costs at most its share of the tasks' work. Part of
that work is fixed as well (a task starts, a state store commits); batches of different size show how much.

The estimate errs on the side of small batches, so the limit may grow many times over from one batch to the next.
Admission never holds back what arrives within an interval: batches of a job that is too slow get as long as its load.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from millrace_jobs.run.task_costs import DIFFERENT, TaskCosts

FLOOR = 128
"""Records that every batch may have."""

GROWTH = 16.0
"""Factor by which a batch may be larger than the last one: what fits into memory once may not fit a hundred times."""

OVERSHOOT = 2.0
"""How many times too long the tasks of a batch may be where the estimate of their fixed part is wrong."""

SHRINKAGE = 4.0
"""Factor by which the limit falls at most from batch to batch."""

COLD = 4.0
"""How many times longer the tasks of a process's first batch may take for a record than those of later ones."""

RECORDS_SHARE = 0.5
"""Share of a batch's time that is for its records: with less, a job whose fixed time is long never catches up."""

_RECENT = 3
"""Batches of which the median counts for the time outside of tasks: a single odd one changes little."""

_TELLING = 0.25
"""Share of the limit from which a batch says something about records; the work of a smaller one is mostly fixed."""

_LEAST_SECONDS = 1e-6
"""Work of a batch at least: what is less was not measured."""

_NEW_PLAN = 2
"""Batches under a changed plan that say nothing: new executors start their processes in them."""


@dataclass(frozen=True)
class FinishedBatch:
    """What admission learns from.

    Attributes:
        rows: records of the batch.
        seconds: its processing time.
        work: seconds of it in which it waited for tasks, or for its results to be written; an upper bound is enough.
        plan: equal for batches under the same plan.
        arrived: records that arrive within a batch interval, as far as is known.
    """

    rows: int
    seconds: float
    work: float
    plan: object = None
    arrived: int = 0


class Admission:
    """Learns from finished batches and limits the next one.

    Args:
        goal: seconds that a batch should take while there is a backlog.
        longest: seconds that a batch may take where that is enough for all that waits. With ``goal`` for both, a load
            that the job can just carry would leave something behind in every batch.
        first: records of the first batch, of which nothing is known.
    """

    def __init__(self, goal: float, longest: float, first: int) -> None:
        self._goal = goal
        self._longest = longest
        self._limit = self._whole = first
        self._is_first = True
        self._plan: object = None
        self._passing = 0
        self._knows_records = False
        self._costs = TaskCosts()
        self._outside: deque[float] = deque(maxlen=_RECENT)
        self._arrived: deque[int] = deque(maxlen=_RECENT)

    @property
    def limit(self) -> int:
        """Records that the next batch may have, of all sources together, while there is a backlog."""
        return max([self._limit, *self._arrived])

    def finished(self, batch: FinishedBatch) -> None:
        """Learn from a batch.

        A batch without records says nothing, nor does one of no time, as after the clock was set back. The first batch
        of a process can only lower the limit, since everything in it happens for the first time.
        """
        if batch.rows <= 0 or batch.seconds <= 0:
            return
        self._arrived.append(batch.arrived)
        work = min(max(batch.work, _LEAST_SECONDS), batch.seconds)
        if self._is_first:
            self._is_first, self._plan = False, batch.plan
            self._limit = self._whole = max(FLOOR, min(self._limit, int(COLD * self._goal / work * batch.rows)))
            return
        if self._plan != batch.plan:
            self._change_plan(batch.plan)
        if self._passing:
            self._passing -= 1
            return
        tells = batch.rows >= self._limit * _TELLING or batch.seconds > self._goal
        if tells or not self._knows_records:
            self._knows_records |= tells
            self._outside.append(batch.seconds - work)
            self._costs.add(batch.rows, work)
            self._adapt(batch.rows, work)

    def shares(self, waiting: Mapping[str, int], most: int) -> dict[str, int]:
        """Share out the limit to sources by how many records wait in each, with a quarter of it evenly as the least.

        With the least every source can show what it has. Where sources with little to show fall to it, all shares
        together are up to a quarter above the limit, but never above ``most``: the others get no less for it.

        Args:
            waiting: what the batch before has left in each source.
            most: records that memory has room for.
        """
        total = sum(waiting.values())
        expected = total + max(self._arrived, default=0)
        limit = min(max(self.limit, self._whole) if expected <= self._whole else self.limit, most)
        if not total:
            return {name: max(1, limit // len(waiting)) for name in waiting}
        shares = {name: max(limit / 4 / len(waiting), limit * records / total) for name, records in waiting.items()}
        fitting = min(1.0, max(most - len(waiting), 0) / sum(shares.values()))
        return {name: max(1, int(share * fitting)) for name, share in shares.items()}

    def _change_plan(self, plan: object) -> None:
        """Forget what tasks took under the old plan, but neither the time outside of them nor the limit."""
        self._plan = plan
        self._passing = _NEW_PLAN
        self._costs.forget()

    def _adapt(self, rows: int, work: float) -> None:
        """Set the limit to what fits the goal, or more where the fixed time leaves too little of it for records."""
        fixed = statistics.median(self._outside) + self._costs.fixed
        room = max(self._goal - fixed, fixed * RECORDS_SHARE / (1 - RECORDS_SHARE))
        wanted = room / self._costs.per_record
        if work <= 2 * room and self._costs.wants_another_size():
            wanted = max(wanted, DIFFERENT * rows)
        growth = min(max(OVERSHOOT * room / work, DIFFERENT), GROWTH)
        most = max(growth * rows, self._limit if self._knows_records else FLOOR)
        self._limit = int(min(max(wanted, self._limit / SHRINKAGE, FLOOR), most))
        self._whole = int(min((self._longest - fixed) / self._costs.per_record, most))
