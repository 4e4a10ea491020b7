"""Changes of plan: what was expected of them, how they turned out, and what not to retry too soon."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..plans import Shape

HELPFUL = 0.2
"""Share of the predicted gain below which a step counts as not having helped."""

HARM = 1.03
"""Factor by which batches may become longer with other tasks before that counts as harm."""

TELLING = 0.1
"""Predicted gain, as a share of the batch time, below which a step is not judged, because noise would decide."""

SIMILAR, LOWER = 1.25, 0.9
"""Ratios of a load's rate to an earlier one up to which it is no larger, and below which it is clearly lower."""


@dataclass(frozen=True)
class Line:
    """Predicted seconds of a batch under one plan: ``fixed``, plus ``per_row`` for each record."""

    fixed: float
    per_row: float

    @staticmethod
    def through(first: tuple[float, float], second: tuple[float, float]) -> Line:
        """Return the line through two points (rows, seconds)."""
        per_row = (second[1] - first[1]) / (second[0] - first[0])
        return Line(first[1] - per_row * first[0], per_row)

    def times(self, factor: float) -> Line:
        """Return the line for batches that take ``factor`` times as long."""
        return Line(self.fixed * factor, self.per_row * factor)

    def at(self, rows: float) -> float:
        """Return the seconds of a batch of ``rows`` records."""
        return self.fixed + self.per_row * rows


@dataclass(frozen=True)
class Change:
    """A change of plan at ``time``, when ``rate`` records per second arrived.

    ``expected`` holds the predictions for both plans; None if nothing was predicted. ``undoes`` marks a change that
    takes back a step that did not help.
    """

    time: float
    before: Shape
    after: Shape
    rate: float
    expected: tuple[Line, Line] | None
    undoes: bool = False

    @property
    def adds(self) -> bool:
        """Whether the change adds executors, and does not just undo a step."""
        return not self.undoes and self.after.executors > self.before.executors

    @staticmethod
    def from_json(saved: Mapping[str, Any]) -> Change:
        """Return the change that ``asdict`` turned into a mapping."""
        plans = {name: Shape(**saved[name]) for name in ("before", "after")}
        before, after = saved["expected"] or (None, None)
        expected = (Line(**before), Line(**after)) if before and after else None
        return Change(**{**saved, **plans, "expected": expected})


@dataclass(frozen=True)
class ChangeOutcome:
    """The outcome of a change: batch seconds predicted ``without`` it, ``predicted`` with it, and ``observed``."""

    change: Change
    without: float
    predicted: float
    observed: float

    @staticmethod
    def from_json(saved: Mapping[str, Any]) -> ChangeOutcome:
        """Return the outcome that ``asdict`` turned into a mapping."""
        return ChangeOutcome(**{**saved, "change": Change.from_json(saved["change"])})

    @property
    def error(self) -> float:
        """Predicted minus observed batch time, as a share of the observed."""
        return self.predicted / self.observed - 1

    @property
    def helped(self) -> bool:
        """Whether batches gained a good part of what was predicted; true if there was little to gain.

        Other tasks on as many executors cost nothing, so they helped if they did no harm.
        """
        change, gain = self.change, self.without - self.predicted
        if change.undoes or change.after.executors < change.before.executors or gain < TELLING * self.without:
            return True
        if change.after.executors == change.before.executors:
            return self.observed <= self.without * HARM
        return self.without - self.observed >= HELPFUL * gain


@dataclass(frozen=True)
class Failure:
    """A step that did not help at ``rate`` records per second, and the time ``until`` which it is not retried."""

    before: Shape
    after: Shape
    rate: float
    until: float
    times: int

    @staticmethod
    def from_json(saved: Mapping[str, Any]) -> Failure:
        """Return the failure that ``asdict`` turned into a mapping."""
        return Failure(**{**saved, "before": Shape(**saved["before"]), "after": Shape(**saved["after"])})

    def like(self, rate: float) -> bool:
        """Return whether ``rate`` records per second are a load at which the step would not help either."""
        return rate <= self.rate * SIMILAR

    def forbids(self, plan: Shape) -> bool:
        """Return whether ``plan`` is a step in the same direction.

        If the step changed the number of executors, that is any plan with more executors than before it. Otherwise it
        is any plan with other tasks on as many executors.
        """
        if self.after.executors != self.before.executors:
            return plan.executors > self.before.executors
        return plan.executors == self.before.executors and plan != self.before


@dataclass(frozen=True)
class TooFew:
    """A number of ``executors`` that was too few for ``rate`` records per second; remembered until ``until``."""

    executors: int
    rate: float
    until: float
    times: int

    def like(self, rate: float) -> bool:
        """Return whether they may be too few for ``rate`` too, because it is not clearly lower."""
        return rate > self.rate * LOWER


@dataclass(frozen=True)
class Shortage:
    """A cluster that had room for no more than ``executors``; more are requested after ``until``."""

    executors: int
    until: float
    times: int
