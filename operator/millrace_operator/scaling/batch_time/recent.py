"""Observations of a job in bounded memory: the newest of each of the plans that ran last."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..observation import Observation, Stage
from ..plans import Shape

PLANS = 32
"""Number of plans that are remembered; the one that ran least recently is forgotten first."""

PER_PLAN = 16
"""Number of observations that are remembered of each plan."""


@dataclass(frozen=True)
class NumberedObservation:
    """An observation, the number of observations before it, and whether it is the first after a change of plan."""

    number: int
    first: bool
    seen: Observation


class Recent:
    """The remembered observations, at most ``PLANS`` times ``PER_PLAN``."""

    def __init__(self) -> None:
        self._plans: OrderedDict[Shape, deque[NumberedObservation]] = OrderedDict()
        self._newest: Observation | None = None
        self.count = 0

    def add(self, seen: Observation) -> None:
        """Remember an observation; this may drop the plan that ran least recently."""
        before = self._newest
        first = before is not None and (seen.epoch, seen.plan) != (before.epoch, before.plan)
        self._keep(NumberedObservation(self.count, first, seen))

    def _keep(self, one: NumberedObservation) -> None:
        self._plans.setdefault(one.seen.plan, deque(maxlen=PER_PLAN)).append(one)
        self._plans.move_to_end(one.seen.plan)
        if len(self._plans) > PLANS:
            self._plans.popitem(last=False)
        self._newest = one.seen
        self.count = one.number + 1

    def all(self) -> list[NumberedObservation]:
        """Return all remembered observations, oldest first."""
        return sorted((one for plan in self._plans.values() for one in plan), key=lambda one: one.number)

    def to_json(self) -> list[dict[str, Any]]:
        """Return all remembered observations for ``from_json``, oldest first."""
        return [asdict(one) for one in self.all()]

    @classmethod
    def from_json(cls, stored: list[Mapping[str, Any]]) -> Recent:
        """Return the memory that ``to_json`` wrote.

        Raises:
            KeyError, TypeError: ``stored`` was not written by ``to_json``.
        """
        recent = cls()
        for one in stored:
            recent._keep(NumberedObservation(one["number"], one["first"], _observation(one["seen"])))
        return recent


def _observation(stored: Mapping[str, Any]) -> Observation:
    stages = {name: None if stored[name] is None else Stage(**stored[name]) for name in ("route", "combine")}
    return Observation(**{**stored, **stages, "plan": Shape(**stored["plan"])})
