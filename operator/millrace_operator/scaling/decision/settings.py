"""Settings of scaling: when to scale, how far, and which guards hold it back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum


class Mode(StrEnum):
    """Whether decisions are carried out, only reported, or not made."""

    ACTIVE = "Active"
    ADVISE = "Advise"
    OFF = "Off"


class Guard(StrEnum):
    """A rule that can hold a decision back or limit it; its value is the reason that is reported."""

    BOUNDS = "AtBounds"
    """Executors stay within what the user allows."""
    QUOTA = "AtQuota"
    """Executors stay within what ResourceQuotas and LimitRanges of the namespace leave room for."""
    CLUSTER = "AtClusterCapacity"
    """Executors that stayed pending for too long are not requested again for a while."""
    COOLDOWN = "Cooldown"
    """No decision until the last change is complete, ``grace`` batches are over, and later ones show its effect."""
    PAUSED = "Paused"
    """Nothing is changed at all."""
    SCALE_IN_PAUSED = "ScaleInPaused"
    """Cores are not released."""
    SCALE_OUT_PAUSED = "ScaleOutPaused"
    """No cores are added."""
    ADVISE = "AdviseOnly"
    """In mode Advise a change is reported and not made."""
    CALIBRATING = "Calibrating"
    """Before the model can predict, scaling out is proportional, at most a doubling, and nothing is released."""
    UNCERTAIN = "Uncertain"
    """Nothing is released while the prediction is too wide."""
    INEFFECTIVE = "Ineffective"
    """A step that did not help is undone, and not tried again under a similar load for a while."""
    SCALE_IN_DELAYED = "ScaleInDelayed"
    """Cores are released only as the largest demand within ``scale_in_delay`` allows."""
    SCALE_IN_LIMITED = "ScaleInLimited"
    """At most three in four executors are released in one step."""
    FLAPPING = "Flapping"
    """Executors are not released if they would be needed again before that pays, or were too few at such a load."""


@dataclass(frozen=True)
class Costs:
    """What a release of executors is weighed against, in hours of one executor.

    The defaults were chosen on the arena's tuning loads.

    Attributes:
        rescale: a change of the plan that adds or releases executors.
        late_minute: a minute of batches that take longer than their interval.
    """

    rescale: float = 0.2
    late_minute: float = 1.2

    def __post_init__(self) -> None:
        if not (0 <= self.rescale < math.inf and 0 <= self.late_minute < math.inf):
            raise ValueError(f"costs are 0 or more, not {self.rescale} and {self.late_minute}")


@dataclass(frozen=True)
class Settings:
    """The settings of scaling; W is processing time over batch interval.

    The first six are those of ``spec.scaling``.

    Attributes:
        mode: whether decisions are carried out.
        target: W above which to scale out, and below which every chosen plan is predicted to be.
        step: scale in at ``target - step`` or below; nothing happens between the two.
        window: batches that must agree.
        grace: batches after a change during which nothing is decided.
        costs: what a release is weighed against.
        drain_seconds: time in which a plan has to drain the backlog at the source.
        scale_in_delay: seconds for which fewer cores must have been enough before any are released.
        patience: seconds that executors may be pending before the cluster is taken to be full.
        guards: the guards that are switched on.
    """

    mode: Mode = Mode.ACTIVE
    target: float = 0.9
    step: float = 0.1
    window: int = 6
    grace: int = 6
    costs: Costs = Costs()
    drain_seconds: float = 120.0
    scale_in_delay: float = 120.0
    patience: float = 180.0
    guards: frozenset[Guard] = frozenset(Guard)

    def __post_init__(self) -> None:
        if not 0 < self.step < self.target <= 1:
            raise ValueError(f"target {self.target} and step {self.step} must be 0 < step < target <= 1")
        if self.window < 1 or self.grace < 0:
            raise ValueError(f"window is 1 or more and grace 0 or more, not {self.window} and {self.grace}")
        if not (self.drain_seconds > 0 and self.scale_in_delay >= 0 and self.patience > 0):
            raise ValueError("drain_seconds and patience are above 0, and scale_in_delay is 0 or more")
