"""The cores that a job needs with its replicas in tasks of the batch, and in pods of their own, by measurement.

What is compared is core-seconds per record. A batch takes ``fixed + work * records / cores`` seconds, so that its work
follows from its time on the cores that it had. This holds for other numbers of cores too, if its tasks fill them. The
model of batch time (``batch_time``) says more, but cannot separate work from contention before a job has run on several
numbers of cores, and both placements have to be judged alike.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace

from ..batch_time.batch_model import BatchLoad, BatchModel
from ..batch_time.stage_work import ROUTE
from ..observation import Observation
from ..shape import Bounds, Shape
from .limits import counted

POD_COST = 1.0
"""Seconds that a pod works on a record, over those that route tasks do, before either has been measured.

This is the least that can be expected, since a pod also writes to Kafka: it decides only whether a try can pay.
"""

READ_AGAIN = 0.2
"""Share of the route stage's work that combine takes over with Dedicated, before that was measured: it reads packs."""

SAMPLES, ENOUGH = 12, 3
"""Observations whose median is the cost of a placement, and how many it takes at least."""


@dataclass(frozen=True)
class BatchCost:
    """What batches cost under one placement.

    Attributes:
        work: core-seconds of executors for a record, in all stages.
        route: those of them that the route stage takes, idle cores included; 0 without one.
        placing: seconds that route tasks work on a record; 0 without a route stage.
        share: share of a batch's time that the route stage takes.
        fixed: seconds of a batch in no stage.
        pod: seconds that a partitioner pod works on a record; 0 without such pods.
    """

    work: float
    route: float
    placing: float
    share: float
    fixed: float
    pod: float

    def dedicated(self) -> BatchCost:
        """Return what Dedicated is expected to cost, from the cost of Inline."""
        work = self.work - (1 - READ_AGAIN) * self.route
        return BatchCost(work, 0.0, 0.0, 0.0, self.fixed, POD_COST * self.placing)

    def inline(self) -> BatchCost:
        """Return what Inline is expected to cost, from the cost of Dedicated."""
        route = self.pod / POD_COST
        return BatchCost(self.work + (1 - READ_AGAIN) * route, route, route, 0.0, self.fixed, 0.0)


class CostMeter:
    """The cost of batches under one placement: the median over its last observations."""

    def __init__(self) -> None:
        self._samples: deque[BatchCost] = deque(maxlen=SAMPLES)

    def add(self, seen: Observation, model: BatchModel) -> None:
        """Record batches with what the model of batch time says of their stages; batches without records say nothing.

        Time that waits for Kafka counts as work of a pod, as it does for its load.
        """
        if seen.rows < 1:
            return
        prediction = model.predict([seen.plan], BatchLoad(seen.rows, seen.interval, seen.keys))
        cores = seen.plan.executors * model.executor_cores
        fixed = min(float(prediction.fixed[0]), seen.seconds)
        share = placing = 0.0
        if seen.route is not None and ROUTE in model.stages:
            placing = seen.route.seconds / seen.rows
            share = float(prediction.stages[0, model.stages.index(ROUTE)] / prediction.seconds[0])
        pod = 0.0 if seen.dedicated_busy is None else seen.dedicated_busy * seen.plan.replicas * seen.cycle / seen.rows
        work, route = cores * (seen.seconds - fixed) / seen.rows, cores * share * seen.seconds / seen.rows
        self._samples.append(BatchCost(work, min(route, work), placing, share, fixed, pod))

    @property
    def cost(self) -> BatchCost | None:
        """What batches cost; None before there are enough observations."""
        if len(self._samples) < ENOUGH:
            return None
        return BatchCost(*map(statistics.median, zip(*map(astuple, self._samples), strict=True)))

    def save(self) -> list[list[float]]:
        """Return the state in JSON types."""
        return [list(astuple(one)) for one in self._samples]

    def restore(self, saved: list[list[float]]) -> None:
        """Continue from what ``save`` returned."""
        self._samples.extend(BatchCost(*one) for one in saved)


@dataclass(frozen=True)
class Needed:
    """What a load needs under one placement: executors, pods, and the cores of both; infinite if nothing is enough.

    ``measured`` is whether batches have run under this placement.
    """

    executors: float
    pods: float
    cores: float
    measured: bool

    def __str__(self) -> str:
        if math.isinf(self.cores):
            return "more than there may be"
        pods = f" and {self.pods:g} pod{'' if self.pods == 1 else 's'}" if self.pods else ""
        how = "" if self.measured else ", by prediction"
        return f"{self.cores:g} cores ({counted(int(self.executors))}{pods}{how})"


@dataclass(frozen=True)
class Weighed:
    """What both placements need at ``rate`` records per second; ``route_share`` is the route stage's share of time."""

    rate: float
    inline: Needed
    dedicated: Needed
    route_share: float

    def at_least(self, shape: Shape, cores: float) -> Weighed:
        """Return the same with Dedicated at ``shape``, which has ``cores``, unless it needs more than that."""
        if self.dedicated.cores >= cores:
            return self
        return replace(self, dedicated=Needed(shape.executors, shape.replicas, cores, measured=True))

    @property
    def saving(self) -> float:
        """Share of Inline's cores that Dedicated saves; negative if it needs more, and 0 if neither is enough."""
        if math.isinf(self.inline.cores):
            return 0.0 if math.isinf(self.dedicated.cores) else 1.0
        return (self.inline.cores - self.dedicated.cores) / self.inline.cores

    def __str__(self) -> str:
        return f"at {self.rate:,.0f} records/s Inline needs {self.inline}, and Dedicated {self.dedicated}"


def weigh(
    meters: Mapping[bool, CostMeter], bounds: Mapping[bool, Bounds], rate: float, interval: float, target: float
) -> Weighed | None:
    """Weigh both placements at a rate; None if neither has been measured.

    Args:
        meters: the costs with replicas in tasks (False) and in pods (True).
        bounds: bounds of shapes, and what they cost, likewise.
        rate: records per second.
        interval: the batch interval, seconds.
        target: W, and the busy share of pods, to stay under.
    """
    inline, dedicated = meters[False].cost, meters[True].cost
    known = inline is not None, dedicated is not None
    inline = inline or (dedicated and dedicated.inline())
    dedicated = dedicated or (inline and inline.dedicated())
    if inline is None or dedicated is None:
        return None
    needed = [
        _needed(cost, bounds[cost is dedicated], rate, interval, target, measured)
        for cost, measured in zip((inline, dedicated), known, strict=True)
    ]
    return Weighed(rate, needed[0], needed[1], inline.share)


def _needed(cost: BatchCost, bounds: Bounds, rate: float, interval: float, target: float, measured: bool) -> Needed:
    """Return what a load needs. Executors may exceed their maximum: a job that has all of them still needs more."""
    left = target * interval - cost.fixed
    pods = max(math.ceil(cost.pod * rate / target), bounds.replicas.low) if bounds.dedicated else 0
    if left <= 0 or pods > bounds.replicas.high:
        return Needed(math.inf, math.inf, math.inf, measured)
    executors = max(math.ceil(cost.work * rate * interval / left / bounds.executor_cores), bounds.executors.low)
    cores = executors * bounds.executor_cores + pods * bounds.replica_cores
    return Needed(executors, pods, cores, measured)
