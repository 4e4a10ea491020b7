"""A change of plan: what was expected of it, what came of it, and what is not to be tried again so soon."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..plans import Shape

HELPFUL = 0.2
"""Share of the predicted gain below which a step did not help."""

HARM = 1.03
"""Times by which batches may become longer under other tasks before that counts as harm."""

TELLING = 0.1
"""Predicted gain, as a share of the batch time, below which a step is not judged: noise would decide."""

SIMILAR, LOWER = 1.25, 0.9
"""A load is no larger than a former one up to so many times its rate, and clearly lower below so many times."""


@dataclass(frozen=True)
class Line:
    """Predicted seconds of a batch under one plan: ``fixed`` and so much ``per_row``."""

    fixed: float
    per_row: float

    @staticmethod
    def through(first: tuple[float, float], second: tuple[float, float]) -> Line:
        """The line through two points (rows, seconds)."""
        per_row = (second[1] - first[1]) / (second[0] - first[0])
        return Line(first[1] - per_row * first[0], per_row)

    def times(self, factor: float) -> Line:
        """So many times as long."""
        return Line(self.fixed * factor, self.per_row * factor)

    def at(self, rows: float) -> float:
        """Seconds of a batch of ``rows`` records."""
        return self.fixed + self.per_row * rows


@dataclass(frozen=True)
class Change:
    """A change of plan at ``time``, when ``rate`` records per second came.

    ``expected``: what was predicted of both plans; None where nothing was. ``undoes``: it takes back a step that did
    not help.
    """

    time: float
    before: Shape
    after: Shape
    rate: float
    expected: tuple[Line, Line] | None
    undoes: bool = False

    @property
    def adds(self) -> bool:
        """Whether it brings executors, and does not just take back a step."""
        return not self.undoes and self.after.executors > self.before.executors

    @staticmethod
    def from_json(saved: Mapping[str, Any]) -> Change:
        """The change that ``asdict`` made a mapping of."""
        plans = {name: Shape(**saved[name]) for name in ("before", "after")}
        before, after = saved["expected"] or (None, None)
        expected = (Line(**before), Line(**after)) if before and after else None
        return Change(**{**saved, **plans, "expected": expected})


@dataclass(frozen=True)
class ChangeOutcome:
    """What came of a change: seconds of a batch as predicted ``without`` it and with it, and as ``observed``."""

    change: Change
    without: float
    predicted: float
    observed: float

    @staticmethod
    def from_json(saved: Mapping[str, Any]) -> ChangeOutcome:
        """The outcome that ``asdict`` made a mapping of."""
        return ChangeOutcome(**{**saved, "change": Change.from_json(saved["change"])})

    @property
    def error(self) -> float:
        """Prediction less observation, as a share of the latter."""
        return self.predicted / self.observed - 1

    @property
    def helped(self) -> bool:
        """Whether the batches gained a good part of what was predicted; true where nothing much was to be gained.

        Other tasks for as many executors cost nothing: they helped if they did no harm.
        """
        change, gain = self.change, self.without - self.predicted
        if change.undoes or change.after.executors < change.before.executors or gain < TELLING * self.without:
            return True
        if change.after.executors == change.before.executors:
            return self.observed <= self.without * HARM
        return self.without - self.observed >= HELPFUL * gain


@dataclass(frozen=True)
class Failure:
    """A step that did not help at ``rate`` records per second, and until when it is not tried again."""

    before: Shape
    after: Shape
    rate: float
    until: float
    times: int

    @staticmethod
    def from_json(saved: Mapping[str, Any]) -> Failure:
        """The failure that ``asdict`` made a mapping of."""
        return Failure(**{**saved, "before": Shape(**saved["before"]), "after": Shape(**saved["after"])})

    def like(self, rate: float) -> bool:
        """Whether ``rate`` records per second are a load that the step would not help under either."""
        return rate <= self.rate * SIMILAR

    def forbids(self, plan: Shape) -> bool:
        """Whether ``plan`` is a step in the same direction.

        That is more executors than before where the step brought such, and other tasks for as many where it did not.
        """
        if self.after.executors != self.before.executors:
            return plan.executors > self.before.executors
        return plan.executors == self.before.executors and plan != self.before


@dataclass(frozen=True)
class TooFew:
    """So many ``executors`` were too few for ``rate`` records per second; that counts until ``until``."""

    executors: int
    rate: float
    until: float
    times: int

    def like(self, rate: float) -> bool:
        """Whether they may be too few for ``rate`` too: it is not clearly lower."""
        return rate > self.rate * LOWER


@dataclass(frozen=True)
class Shortage:
    """The cluster had room for no more than ``executors``; more are asked for after ``until``."""

    executors: int
    until: float
    times: int
