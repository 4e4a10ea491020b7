"""What the scaler has learned of a job: the zone of its load, its batch times, its demand, and its changes of plan.

Each observation is added here once; next, ``steps.Case`` is what a decision depends on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ..batch_time.calibration import Calibration
from ..observation import Observation
from ..seasons import Rise, Seasons
from ..serial_time import SerialMemory, least_fixed, serial_parts, untimed_seconds
from ..shape import Bounds
from ..zones import Zone, Zones
from .changes import ChangeMemory, ChangeOutcome
from .decision import Situation
from .demand import Demand
from .keeping_up import KeepingUp
from .settings import Settings

CONTINUES = 0.5
"""Share of the forecast growth to plan for: a trend may end at any time, and noise may look like one."""

_LEAST_JUDGED = 2
"""Fewest batches by which a change is judged: the task that takes longest may be odd in one."""


@dataclass(frozen=True)
class Expected:
    """The ``rate`` expected to arrive, and the one ``required``, which includes the backlog; records per second.

    ``rise`` is what is about to come because it has come before; None if nothing is, or if ``rate`` is more anyway.
    """

    rate: float
    required: float
    rise: Rise | None = None


class _Saved(Protocol):
    """A part of what was learned, in JSON types."""

    def save(self) -> dict[str, Any]: ...
    def restore(self, saved: Mapping[str, Any]) -> None: ...


class Learned:
    """What was learned of one job, bounded in memory.

    Attributes:
        zones: the zone of W, and what drives it.
        calibration: builds the model that predicts batch times.
        demand: the rate that arrives, and what was required of late.
        seasons: rises of the rate that repeat.
        memory: changes of plan, and how they turned out.
        keeping_up: whether the plan keeps up with arrivals.
        serial: what of batches more executors do not shorten.
        judged: batches after the grace period by which a change is judged.
    """

    def __init__(self, settings: Settings, bounds: Bounds, calibration: Calibration, seasons: Seasons) -> None:
        self._settings, self._bounds = settings, bounds
        self.judged = max(settings.window // 2, _LEAST_JUDGED)
        self.zones = Zones(settings.target, settings.step, settings.window, settings.grace)
        self.calibration = calibration
        self.demand = Demand(settings.scale_in_delay)
        self.seasons = seasons
        self.memory = ChangeMemory()
        self.keeping_up = KeepingUp(settings.drain_seconds)
        self.serial = SerialMemory(settings.target, settings.step, settings.window)
        self._parts: dict[str, _Saved] = {
            "zones": self.zones,
            "calibration": self.calibration,
            "demand": self.demand,
            "seasons": self.seasons,
            "memory": self.memory,
            "keeping_up": self.keeping_up,
            "serial": self.serial,
        }

    def add(self, seen: Observation, situation: Situation) -> ChangeOutcome | None:
        """Record an observation, and return the outcome of the last change once it is known."""
        self.zones.add(seen)
        self.calibration.add(seen)
        self.demand.add(seen)
        self.seasons.add(seen.since, seen.until, seen.arrival)
        self.keeping_up.add(seen, situation.plan, self.demand, self.calibration)
        self._learn_serial(seen)
        outcome = self.memory.observe(seen, situation.now, self._settings.grace, self.judged, self.demand.level)
        if outcome is not None and not outcome.helped:
            self.memory.failed(outcome, situation.now)
        return outcome

    def _learn_serial(self, seen: Observation) -> None:
        """Record the serial parts of batches; fits are for those alone that may have too much of them.

        What is not timed counts only once batches have run on other numbers of executors too: see ``least_fixed``.
        """
        settings, calibration = self._settings, self.calibration
        parts = serial_parts(seen, self._bounds, calibration.state_partitions, self.demand.level)
        close = seen.utilization > settings.target - settings.step and calibration.ready
        compared = close and len(calibration.executors) > 1
        untimed = untimed_seconds(seen, parts, least_fixed(calibration.model())) if compared else 0.0
        self.serial.add(seen, parts, untimed)

    def expect(self, seen: Observation, now: float) -> Expected:
        """Record what the forecast asks for, once per observation, and return it.

        A surge counts for the next decision, but not for how long executors are kept: its end shows in what arrives.
        A rise that repeats counts for both, and executors are kept if it is due before a release would pay.
        """
        settings, demand = self._settings, self.demand
        horizon = self.memory.startup + (settings.grace + settings.window) * seen.interval
        outlook = self.zones.forecast(horizon)
        coming = demand.level if outlook is None else demand.level + (outlook.value - demand.level) * CONTINUES
        required = demand.required(coming, settings.drain_seconds)
        rise, later = (
            self.seasons.coming(seen.until, demand.level, horizon, ahead)
            for ahead in (horizon, horizon + settings.scale_in_delay)
        )
        kept = max(required, later.rate if later else 0.0)
        demand.remember(now, kept, self.zones.zone is Zone.UNDERUSED)
        rate = max(coming, self.zones.surge(self.memory.startup + seen.interval) or 0.0)
        self.keeping_up.expect(rate / demand.level if demand.level else 1.0, settings.target)
        if rise is None or rise.rate <= max(rate, required):
            return Expected(rate, max(required, rate))
        return Expected(rise.rate, rise.rate, rise)

    def save(self) -> dict[str, Any]:
        """Return all of it in JSON types."""
        return {name: part.save() for name, part in self._parts.items()}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Continue from what ``save`` returned."""
        for name, part in self._parts.items():
            if name in saved or part not in (self.serial, self.seasons):  # which earlier versions have not saved
                part.restore(saved[name])
