"""Limits on the plans to choose from, each set by a guard; guards of the whole decision are in ``decision.held``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..shape import Bounds, Shape
from .changes import ChangeMemory, Failure
from .decision import Situation
from .search import Mask
from .settings import Guard, Settings


@dataclass(frozen=True)
class Limit:
    """A lower or upper limit of ``executors``, set by ``guard``; ``why`` explains it."""

    guard: Guard
    executors: int
    why: str


@dataclass(frozen=True)
class Limits:
    """Limits on plans: ``most`` and ``least`` executors, and the ``failures`` that are not retried.

    Failures forbid no plan with fewer executors than are ``present``, because releasing was not what failed.
    """

    present: int
    most: tuple[Limit, ...]
    least: tuple[Limit, ...]
    failures: tuple[Failure, ...]

    def broken(self, shape: Shape) -> Limit | None:
        """Return the tightest limit that ``shape`` breaks; None if it is allowed."""
        above = [limit for limit in self.most if shape.executors > limit.executors]
        if above:
            return min(above, key=lambda limit: limit.executors)
        below = [limit for limit in self.least if shape.executors < limit.executors]
        if below:
            return max(below, key=lambda limit: limit.executors)
        for failure in self.failures:
            if shape.executors >= self.present and failure.forbids(shape):
                why = f"{failure.before} -> {failure.after} did not help at {failure.rate:,.0f} records/s"
                return Limit(Guard.INEFFECTIVE, failure.before.executors, why)
        return None

    def allowed(self, shapes: Sequence[Shape]) -> Mask:
        """Return which of ``shapes`` break no limit."""
        return np.array([self.broken(shape) is None for shape in shapes])


def limits(settings: Settings, bounds: Bounds, memory: ChangeMemory, situation: Situation, rate: float) -> Limits:
    """Return the limits on the next plan under ``rate`` records per second. The present plan may always stay."""
    present, on = situation.plan.executors, settings.guards
    most, least = _most(bounds, memory, situation), _least(bounds, memory, situation, rate)
    failures = memory.failures_like(rate, situation.now) if Guard.INEFFECTIVE in on else ()
    if not rate:  # nothing is needed, and so nothing can be too little
        on -= {Guard.SCALE_IN_LIMITED}
    return Limits(
        present,
        tuple(replace(one, executors=max(one.executors, present)) for one in most if one.guard in on),
        tuple(replace(one, executors=min(one.executors, present)) for one in least if one.guard in on),
        failures,
    )


def _most(bounds: Bounds, memory: ChangeMemory, situation: Situation) -> Iterator[Limit]:
    high, shortage = bounds.executors.high, memory.shortage
    yield Limit(Guard.BOUNDS, high, f"the maximum is {counted(high)}")
    if situation.executors_quota is not None:
        yield Limit(Guard.QUOTA, situation.executors_quota, quota_limit(situation))
    if shortage is not None and situation.now < shortage.until:
        wait = shortage.until - situation.now
        why = f"the cluster had room for {counted(shortage.executors)}; more are requested again in {wait:.0f} s"
        yield Limit(Guard.CLUSTER, shortage.executors, why)
    if situation.scale_out_paused:
        yield Limit(Guard.SCALE_OUT_PAUSED, situation.plan.executors, "scaling out is paused")


def _least(bounds: Bounds, memory: ChangeMemory, situation: Situation, rate: float) -> Iterator[Limit]:
    low, present = bounds.executors.low, situation.plan.executors
    yield Limit(Guard.BOUNDS, low, f"the minimum is {counted(low)}")
    fewest = min([math.ceil(present / 4), *memory.tried(situation.now)])  # none is tried before the first batch
    why = "one step releases at most three in four executors, unless batches have run on fewer"
    yield Limit(Guard.SCALE_IN_LIMITED, fewest, why)
    too_few = memory.too_few_for(rate, situation.now)
    if too_few is not None:
        why = f"{counted(too_few.count)} did not suffice at {too_few.rate:,.0f} records/s"
        yield Limit(Guard.FLAPPING, too_few.count + 1, why)
    if situation.scale_in_paused:
        yield Limit(Guard.SCALE_IN_PAUSED, present, "scaling in is paused")


def quota_limit(situation: Situation) -> str:
    """Return how many executors the quota allows, and why no more."""
    reason = f": {situation.quota_reason}" if situation.quota_reason else ""
    return f"the quota allows {counted(situation.executors_quota or 0)}{reason}"


def counted(executors: int) -> str:
    """Return a number of executors with its noun: ``1 executor``, ``2 executors``."""
    return f"{executors} executor{'' if executors == 1 else 's'}"
