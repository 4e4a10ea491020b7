"""``limited``: the least core-hours with the load known, and with so many late batches, changes and reversals at most.

The oracle may change executors as often as that pays, which is hundreds of times a day. Here each late batch, change of
executors and reversal has a price. Dynamic programming over the batches finds the best executors at given prices, and
the ellipsoid method finds the prices at which the limits hold (Lagrangian relaxation). It knows what the oracle knows
and leaves out the same; parallelism and replicas change freely. The prices also prove what any run within the limits
needs at least.

Whoever knows the load does not foresee which executors are lost. Until one is replaced, a batch is late that would be
late with one executor fewer, so that each batch counts as the share of it that is expected to be late. What is proven
then holds on average.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.compiling import inlined
from millrace_research.arena.policies.oracle import Batches
from millrace_research.arena.simulation.record import REVERSED_WITHIN

_STEPS = 150
"""Steps of the search for prices; each cuts off an eighth or so of what is left of the possible ones."""
_UP, _DOWN, _NEVER = 0, 1, 2
"""Directions of the last change of executors."""


class ChangeLimits(NamedTuple):
    """The most late batches, of which shares are expected where executors are lost, changes and reversals of a run."""

    late: float
    changes: float
    reversals: float


@dataclass(frozen=True, eq=False)
class LimitedRun:
    """Executors of the batches of a run, and what they cost.

    Attributes:
        sizes: index of the executors of each batch, shape (batches,).
        counts: late batches, changes of executors, and those that reverse the one before within 15 minutes.
        core_seconds: core-seconds of executors, from the request for each until it is gone.
    """

    sizes: NDArray[np.int64]
    counts: ChangeLimits
    core_seconds: float

    def within(self, limits: ChangeLimits) -> bool:
        """Return whether the run keeps to the limits."""
        return all(found <= most for found, most in zip(self.counts, limits, strict=True))


def limited(batches: Batches, limits: ChangeLimits) -> tuple[LimitedRun, float]:
    """Return the cheapest run within the limits that was found, and the core-seconds that any such run needs at least.

    Raises:
        ValueError: more batches than that are late even on the most executors throughout.
    """
    prices = _Prices(batches)
    best = prices.constant(len(batches.executors) - 1)
    if not best.within(limits):
        raise ValueError(
            f"{best.counts.late:g} batches are late on the most executors: allow more than {limits.late:g}"
        )
    # At prices above twice these, the most executors throughout cost less than any run that breaks a limit.
    slack = np.array(limits) - np.array(best.counts)
    center = best.core_seconds / np.clip(slack, 0.5, None) / 2
    ellipsoid, proven = np.diag(len(center) * center**2), 0.0
    for _ in range(_STEPS):
        if (center < 0).any():
            uphill = np.where(np.arange(len(center)) == center.argmin(), 1.0, 0.0)
        else:
            run = prices.cheapest(center)
            uphill = np.subtract(run.counts, limits)
            proven = max(proven, run.core_seconds + float(center @ uphill))
            best = min((one for one in (best, run) if one.within(limits)), key=lambda one: one.core_seconds)
        step = ellipsoid @ uphill / max(np.sqrt(uphill @ ellipsoid @ uphill), 1e-12)
        size = len(center)
        center = center + step / (size + 1)
        ellipsoid = size**2 / (size**2 - 1) * (ellipsoid - 2 / (size + 1) * np.outer(step, step))
    return best, proven


class _Prices:
    """The cheapest runs of a job at prices for late batches, changes and reversals, in core-seconds."""

    def __init__(self, batches: Batches) -> None:
        interval = batches.interval
        self._late = np.stack(
            [_expected(batches, seconds > interval) for seconds in (batches.warming, batches.draining, batches.seconds)]
        )
        self._paid = batches.paid
        self._core_seconds = np.asarray(batches.core_seconds, dtype=np.float64)
        # Executors are requested before they are ready, and released at once.
        self._windows = np.array(
            [int((REVERSED_WITHIN + earlier) // interval) for earlier in (-batches.starting, batches.starting)]
        )
        shape = (self._late.shape[1], 2, self._late.shape[2])
        self._begun = _Begun(np.empty(shape), *(np.zeros(shape, dtype=np.int64) for _ in range(4)))

    def constant(self, size: int) -> LimitedRun:
        """Return the run that keeps the executors of this index."""
        return self._run(np.full(self._late.shape[1], size))

    def cheapest(self, prices: NDArray[np.float64]) -> LimitedRun:
        """Return the cheapest run at the prices of a late batch, a change and a reversal."""
        self._begun.cost[0] = np.inf
        stayed = _walk(self._late, self._paid, self._core_seconds, self._windows, prices, self._begun)
        return self._run(_followed(self._begun, stayed))

    def _run(self, sizes: NDArray[np.int64]) -> LimitedRun:
        moved = np.sign(np.diff(sizes, prepend=sizes[:1]))
        at = np.flatnonzero(moved)
        kinds = np.where(moved > 0, _UP, np.where(moved < 0, _DOWN, _NEVER))
        earlier, later = kinds[at][:-1], kinds[at][1:]
        reversals = (earlier != later) & (np.diff(at) <= self._windows[earlier])
        late = self._late[kinds, np.arange(len(sizes)), sizes]
        cost = self._core_seconds[sizes].sum() + self._paid[sizes[:-1], sizes[1:]].sum()
        return LimitedRun(sizes, ChangeLimits(float(late.sum()), len(at), int(reversals.sum())), float(cost))


def _expected(batches: Batches, late: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the share of each batch that is expected to be late, if it is ``late`` with all executors or not.

    Without its only executor no batch runs. What the fewest executors can do less one is not known if they are several.
    """
    alone = batches.executors[0] == 1
    fewest = (batches.rows > 0) if alone else late[:, 0]
    fewer = np.column_stack([fewest, late[:, :-1]])
    return np.where(late, 1.0, fewer * batches.missing)


class _Begun(NamedTuple):
    """The best runs at given prices that a change ends; all have the shape (batches, directions, sizes).

    Attributes:
        cost: cost of the best run whose last change so far was in this direction and to this size, less what it would
            have cost to have this size from the beginning.
        since: number of the batch of that change.
        size, direction, number: where the run with a change at this batch comes from: the size before, and direction
            and batch of the change to that.
    """

    cost: NDArray[np.float64]
    since: NDArray[np.int64]
    size: NDArray[np.int64]
    direction: NDArray[np.int64]
    number: NDArray[np.int64]


def _followed(begun: _Begun, stayed: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the sizes of the cheapest run, from its end; ``stayed`` is what each size costs from the beginning."""
    batches = len(begun.cost)
    sizes = np.empty(batches, dtype=np.int64)
    ends = np.append(begun.cost[-1], np.zeros((1, len(stayed))), axis=0) + stayed
    direction, size = (int(index) for index in np.unravel_index(ends.argmin(), ends.shape))
    until, at = batches, int(begun.since[-1, direction, size]) if direction < _NEVER else 0
    while direction < _NEVER:
        sizes[at:until] = size
        came = at, direction, size
        until, at = at, int(begun.number[came])
        direction, size = int(begun.direction[came]), int(begun.size[came])
    sizes[:until] = size
    return sizes


@inlined
def _walk(
    late: NDArray[np.float64],
    paid: NDArray[np.float64],
    core_seconds: NDArray[np.float64],
    windows: NDArray[np.int64],
    prices: NDArray[np.float64],
    begun: _Begun,
) -> NDArray[np.float64]:
    """Fill in the runs that changes end, and return what each size costs from the beginning.

    ``late`` is the share of batches that is late after a change in each direction, and without one. ``windows`` are the
    batches within which a change in the other direction is a reversal.
    """
    _, batches, sizes = late.shape
    stayed: NDArray[np.float64] = core_seconds + prices[0] * late[_NEVER, 0]
    cost, since, last = np.empty(sizes), np.empty(sizes, dtype=np.int64), np.empty(sizes, dtype=np.int64)
    for number in range(1, batches):
        before = number - 1
        for direction in range(2):
            other = 1 - direction
            old = before - windows[other]  # changes until then cannot be reversed any more
            for size in range(sizes):
                cost[size], last[size], since[size] = 0.0, _NEVER, 0
                if begun.cost[before, direction, size] < 0.0:
                    cost[size], last[size] = begun.cost[before, direction, size], direction
                    since[size] = begun.since[before, direction, size]
                if begun.cost[before, other, size] + prices[2] < cost[size]:
                    cost[size], last[size] = begun.cost[before, other, size] + prices[2], other
                    since[size] = begun.since[before, other, size]
                if old >= 0 and begun.cost[old, other, size] < cost[size]:
                    cost[size], last[size] = begun.cost[old, other, size], other
                    since[size] = begun.since[old, other, size]
                cost[size] += stayed[size]
            for size in range(sizes):
                came = 0 if direction == _UP else sizes - 1
                for one in range(size) if direction == _UP else range(size + 1, sizes):
                    if cost[one] + paid[one, size] < cost[came] + paid[came, size]:
                        came = one
                least = cost[came] + paid[came, size] + prices[1]
                least += prices[0] * (late[direction, number, size] - late[_NEVER, number, size]) - stayed[size]
                begun.cost[number, direction, size] = begun.cost[before, direction, size]
                begun.since[number, direction, size] = begun.since[before, direction, size]
                if came != size and least < begun.cost[number, direction, size]:
                    begun.cost[number, direction, size], begun.since[number, direction, size] = least, number
                    begun.size[number, direction, size] = came
                    begun.direction[number, direction, size] = last[came]
                    begun.number[number, direction, size] = since[came]
        stayed += core_seconds + prices[0] * late[_NEVER, number]
    return stayed
