"""``ds2``: instances for each operator from its true processing rate, in one step.

Rules: Kalavri et al., *Three steps is all you need*, OSDI 2018, and the code of strymon-system/ds2: the policy is
``controller/src/policy/scaling.rs``, the manager ``controller/src/bin/manager.rs``, the values those that
``controller/config/ds2.toml`` shows.

The true rate of an operator is its records over the seconds its instances were at work, not over those that passed.
From the target rate of the source on, in topological order, an operator needs as many instances as its input takes,
and hands on its output. Here, all operators share the cores of the executors, as they share workers in Timely, where
DS2 adds up the instances, not rounded, to the workers of the job. So it sets executors; a job keeps its parallelism
and replicas, which have no say in how many cores there are. The rate of the source is measured outside of the job, as
DS2 asks for: at the broker.

DS2 leaves out of useful time what an instance waits for input or output. The stages of a batch take turns on the same
cores, which take nothing else until it ends: so all cores are at work while a batch is processed, and that time is
shared out to the stages by what their tasks took. With the tasks' own seconds, DS2 would take cores to be free that
never are, and be overloaded all the time.

It has no spare cores unless told to (``scaling_factor``, 0 as shown), and its correction for what it does not see
(``target_rate_ratio_threshold``) is off by default.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from ...scaling.observation import Answer
from ...scaling.plans import Bounds, Shape
from ...simulation.run import ClusterView
from .counters import increase, ratio

_WARM_UP = 2
"""Policy intervals to ignore after a change."""
_ACTIVATION = 1
"""Decisions of which the median is taken before a change."""


@dataclass(frozen=True)
class Ds2Operator:
    """Records an operator took and handed on, and the seconds that its instances worked on them."""

    records_in: float
    records_out: float
    useful_seconds: float


class Ds2:
    """Executors for the sum of the instances that operators need."""

    name = "ds2"
    period = 10.0

    def __init__(self, bounds: Bounds, arrived: Callable[[float], float]) -> None:
        """Ask a broker that got ``arrived(time)`` records until ``time``, in seconds."""
        self._bounds = bounds
        self._arrived = arrived
        self._before: Answer | None = None
        self._epoch: int | None = None
        self._waited = 0
        self._decisions: deque[float] = deque(maxlen=_ACTIVATION)

    def step(self, answer: Answer | None, now: float, plan: Shape, epoch: int, cluster: ClusterView) -> Shape | None:
        """The plan with as many executors as the operators need, once the change before has had time to show."""
        before, self._before = self._before, answer
        if epoch != self._epoch:
            self._epoch, self._waited = epoch, 0
            self._decisions.clear()
        self._waited += 1
        operators = _operators(before, answer, cluster.executors_ready * self._bounds.executor_cores)
        if self._waited <= _WARM_UP or not operators:
            return None
        rate = (self._arrived(now) - self._arrived(now - self.period)) / self.period
        self._decisions.append(sum(instances(operators, rate)))
        if len(self._decisions) < _ACTIVATION:
            return None
        cores = math.ceil(median(self._decisions))
        return replace(plan, executors=self._bounds.executors.nearest(math.ceil(cores / self._bounds.executor_cores)))


def instances(operators: Sequence[Ds2Operator], rate: float) -> list[float]:
    """Instances that each of a chain of operators needs, where ``rate`` records per second come to the first."""
    needed = []
    for operator in operators:
        needed.append(rate * operator.useful_seconds / operator.records_in)
        rate *= operator.records_out / operator.records_in
    return needed


def _operators(before: Answer | None, answer: Answer | None, cores: int) -> list[Ds2Operator]:
    """Route, combine and merge on so many ``cores``, as far as they are told of and had something to do."""
    rows, partials, updates = (
        increase(before, answer, counter) for counter in ("rows_total", "partials_total", "updates_total")
    )
    seconds = [increase(before, answer, f"{stage}_seconds_total") for stage in ("route", "combine", "merge")]
    processing = increase(before, answer, "processing_seconds_total")
    share = ratio(processing, sum(of_stage or 0.0 for of_stage in seconds))
    if share is None:
        return []
    flows = ((rows, rows), (rows, partials), (partials, updates))
    return [
        Ds2Operator(taken, handed_on, own * share * cores)
        for (taken, handed_on), own in zip(flows, seconds, strict=True)
        if taken and handed_on is not None and own is not None
    ]
