"""A switch from one algorithm to another, with its reason in numbers and as a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .costs import BatchTime

REASONS = ("imbalance", "aggregation cost", "routing", "measured", "draw")
"""Every reason that a switch can have."""


@dataclass(frozen=True)
class Candidate:
    """Prediction for one algorithm.

    ``imbalance`` is the largest load over the mean, less 1; ``aggregation_cost`` is Γ in partial results.
    ``by_rule`` is whether the selection rule of paper 000 chooses the algorithm. ``scatter`` is the standard deviation
    of the algorithm's own batch times in seconds, or None if they are too few or too old. What has loads is a
    ``bearer``, and what Γ counts are ``parts``.
    """

    bearer: ClassVar[str] = "task"
    parts: ClassVar[str] = "partial results"

    algorithm: str
    time: BatchTime
    imbalance: float
    aggregation_cost: float
    by_rule: bool
    scatter: float | None = None


@dataclass(frozen=True)
class Switch:
    """Change of algorithm after ``batch``, with the predictions for both algorithms."""

    batch: int
    before: Candidate
    after: Candidate

    @property
    def gain(self) -> float:
        """Predicted share of the batch time that is saved."""
        return 1 - self.after.time.total / self.before.time.total

    @property
    def reason(self) -> str:
        """Main saving: ``imbalance``, ``aggregation cost``, ``routing`` or ``measured``; or ``draw`` without one.

        ``measured`` is what batches really took beyond the predicted stages. ``draw`` is a return to ``native``, which
        uses the least processor time: it is predicted to take longer by no more than the measurements leave open.
        """
        if self.gain <= 0:
            return "draw"
        old, new = self.before.time, self.after.time
        savings = {
            "routing": old.route - new.route,
            "combine": old.combine - new.combine,
            "aggregation cost": old.merge - new.merge,
            "measured": old.rest - new.rest,
        }
        most = max(savings, key=lambda stage: savings[stage])
        if most != "combine":
            return most
        return "imbalance" if self.before.imbalance > self.after.imbalance else "aggregation cost"

    def __str__(self) -> str:
        """Return one sentence with the numbers."""
        old, new = self.before, self.after
        if self.reason == "draw":
            return (
                f"auto: from {old.algorithm} to {new.algorithm}, because {old.algorithm} is not clearly faster: a "
                f"batch takes {_shown(old.time.total)} instead of {_shown(new.time.total)} as predicted, and batch "
                f"times scatter by {_shown((old.scatter or 0.0) + (new.scatter or 0.0))}"
            )
        because = {
            "imbalance": f"the busiest {old.bearer} has {old.imbalance:.0%} more than the mean, with "
            f"{new.algorithm} {new.imbalance:.0%}",
            "aggregation cost": f"{old.aggregation_cost:,.0f} {old.parts} become {new.aggregation_cost:,.0f}",
            "routing": f"routing takes {_shown(old.time.route)}, with {new.algorithm} {_shown(new.time.route)}",
            "measured": f"batches with {old.algorithm} took {_shown(old.time.rest - new.time.rest)} longer than their "
            "stages account for",
        }[self.reason]
        return (
            f"auto: from {old.algorithm} to {new.algorithm}, for {_shown(new.time.total)} a batch instead of "
            f"{_shown(old.time.total)} as predicted, because {because}"
        )


def _shown(seconds: float) -> str:
    """Format a time so that a difference of a fiftieth is visible, the smallest gain of a switch."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.0f} ms"
