"""``ds2``: instances for each operator from its true processing rate, in one step.

Rules: Kalavri et al., *Three steps is all you need*, OSDI 2018, and the code of strymon-system/ds2. The policy is
``controller/src/policy/scaling.rs``, the manager is ``controller/src/bin/manager.rs``, and the values are those in
``controller/config/ds2.toml``.

The true rate of an operator is its records over the seconds its instances did useful work, not over elapsed seconds.
Starting from the target rate of the source, in topological order, each operator gets the instances that its input
needs, and its output is the input of the next. Here all operators share the cores of the executors, as they share
workers in Timely. There, DS2 adds up the unrounded instances to the workers of the job. The policy therefore sets
executors only; a job keeps its parallelism and replicas, which do not change the number of cores. As DS2 requires, the
rate of the source is measured outside the job, at the broker.

DS2 excludes the time an instance waits for input or output from its useful time. The stages of a batch take turns on
the same cores, which do nothing else until the batch ends. All cores therefore count as working while a batch is
processed, and that time is divided among the stages in proportion to their task seconds. With task seconds alone, DS2
would see free cores that do not exist, and the job would be overloaded all the time.

DS2 plans no spare cores unless configured to (``scaling_factor``, 0 in that file), its correction for unseen effects
(``target_rate_ratio_threshold``) is off by default, and each decision is applied at once (``activation_time`` 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from millrace_operator.scaling.decision.decision import Situation
from millrace_operator.scaling.observation import Answer
from millrace_operator.scaling.shape import Bounds, Shape
from millrace_research.arena.simulation.metrics import increase, ratio

_WARM_UP = 2
"""Policy intervals to ignore after a change."""


@dataclass(frozen=True)
class Ds2Operator:
    """Records that an operator read and emitted, and the seconds of useful work of its instances."""

    records_in: float
    records_out: float
    useful_seconds: float


class Ds2Policy:
    """A policy that sets the executors for the sum of the instances that operators need."""

    name = "ds2"
    period = 10.0

    def __init__(self, bounds: Bounds, arrived: Callable[[float], float]) -> None:
        """Read arrivals from a broker that received ``arrived(time)`` records until ``time``, seconds."""
        self._bounds = bounds
        self._arrived = arrived
        self._before: Answer | None = None
        self._epoch: int | None = None
        self._waited = 0

    def step(self, answer: Answer | None, situation: Situation) -> Shape | None:
        """Return the plan with the executors that the operators need; None during warm-up after a change."""
        before, self._before = self._before, answer
        if situation.epoch != self._epoch:
            self._epoch, self._waited = situation.epoch, 0
        self._waited += 1
        operators = _operators(before, answer, situation.executors_ready * self._bounds.executor_cores)
        if self._waited <= _WARM_UP or not operators:
            return None
        rate = (self._arrived(situation.now) - self._arrived(situation.now - self.period)) / self.period
        cores = math.ceil(sum(instances(operators, rate)))
        executors = self._bounds.executors.nearest(math.ceil(cores / self._bounds.executor_cores))
        return replace(situation.plan, executors=executors)


def instances(operators: Sequence[Ds2Operator], rate: float) -> list[float]:
    """Return the instances that each of a chain of operators needs for ``rate`` records per second at the first."""
    needed = []
    for operator in operators:
        needed.append(rate * operator.useful_seconds / operator.records_in)
        rate *= operator.records_out / operator.records_in
    return needed


def _operators(before: Answer | None, answer: Answer | None, cores: int) -> list[Ds2Operator]:
    """Return route, combine and merge on ``cores`` cores, without stages that lack metrics or had no input."""
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
