"""The case that a decision is made on: what is known of a job at one time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from ..batch_time.batch_model import BatchLoad
from ..batch_time.calibration import Calibration
from ..plans import Bounds, Range, Shape
from ..zones import Driver, Zone, Zones
from .changes import Change
from .decision import Decision, Inputs, Reason, Situation
from .guards import Limits
from .search import ALIKE, Need, Search, predicted
from .settings import Guard, Settings


@dataclass(frozen=True, eq=False)
class Case:
    """Everything that is known when a decision is made.

    Attributes:
        settings, bounds, situation: what the user allows, and what is known besides metrics.
        zones: the zone of W, and what drives it.
        inputs: the numbers that the decision rests on.
        target: W that plans are made for; below the setting if batches vary much.
        calibration: builds the model that predicts batch times.
        limits: limits on the plans to choose from.
        largest: the largest recent demand, records per second; None if it is not known for long enough.
        urgent: whether the plan is certainly overloaded, and not just close to it for long.
        fewest_tried, most_tried: fewest and most executors that recent batches ran on.
        last_change: the last change of plan; None before the first.
        downtime: seconds of processing that a change costs.
        underused_for: seconds for which fewer cores have been enough.
    """

    settings: Settings
    bounds: Bounds
    situation: Situation
    zones: Zones
    inputs: Inputs
    target: float
    calibration: Calibration
    limits: Limits
    largest: float | None
    urgent: bool
    fewest_tried: int
    most_tried: int
    last_change: Change | None
    downtime: float
    underused_for: float

    @cached_property
    def zone(self) -> Zone:
        """The zone that W is in."""
        return self.zones.zone

    @cached_property
    def drivers(self) -> frozenset[Driver]:
        """What drives W into its zone, including the rate if demand exceeds arrivals without any lag."""
        rising = self.inputs.demand > self.inputs.arrival and not self.inputs.lag
        return self.zones.drivers() | ({Driver.RATE} if rising else frozenset())

    @property
    def added(self) -> bool:
        """Whether the last change added executors."""
        return self.last_change is not None and self.last_change.adds

    @property
    def since_change(self) -> float:
        """Seconds since the last change; infinity before the first."""
        return math.inf if self.last_change is None else self.situation.now - self.last_change.time

    @cached_property
    def bias(self) -> float:
        """Ratio of batch times to those predicted for the present plan, at least 1.

        It is 1 while the number of ready executors differs from the plan.
        """
        plan, inputs = self.situation.plan, self.inputs
        if self.situation.executors_ready != plan.executors:
            return 1.0
        usual = predicted(self.calibration.model(), plan, inputs.arrival * inputs.interval, inputs.interval)
        return max(inputs.batches_at_arrival / usual.utilization, 1.0)

    def on(self, guard: Guard) -> bool:
        """Whether a guard is switched on."""
        return guard in self.settings.guards

    def search(self, executors: Range, rate: float, margin: float, caution: float) -> Search:
        """Search candidates under ``rate`` records per second; those fit that stay ``margin`` under the target."""
        load = BatchLoad(rate * self.inputs.interval, self.inputs.interval)
        need = Need(load, self.target * (1 - ALIKE) - margin, self.settings.target - margin, caution)
        return Search(self.calibration.model(), self.bounds, self.situation.plan, executors, need, self.bias)

    def stay(self, reason: Reason | Guard, detail: str = "") -> Decision:
        """Return a decision to change nothing."""
        return self.move(self.situation.plan, reason, detail)

    def move(self, plan: Shape, reason: Reason | Guard, detail: str = "") -> Decision:
        """Return a decision for ``plan``."""
        return Decision(
            time=self.situation.now,
            before=self.situation.plan,
            plan=plan,
            reason=reason,
            guard=reason if isinstance(reason, Guard) else None,
            detail=detail,
            zone=self.zone,
            drivers=frozenset() if self.zone is Zone.STABLE else self.drivers,
            inputs=self.inputs,
        )
