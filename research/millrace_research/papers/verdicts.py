"""The papers' claims, the bounds they are judged by, and the verdicts that come of measured figures.

A bound is part of the code and so fixed before a run. It has the paper's range of one figure: the range that the paper
prints; ``about`` a single printed figure; or, where the paper only says which of two is better, the order alone. Beside
a range, it may have an order: the weaker condition that at least the same side is ahead. Each case (a stream, a number
of workers, a rival) gives one value.

- A bound *agrees* if every value is in the range.
- Otherwise it agrees *in part* if in at least half of the cases the value is in the order, or in the range if the bound
  has no order.
- Otherwise it *disagrees*.

A claim is *not testable* if on its streams no placement at all could reach the range of its first bound: even the most
that one could give is less than the low end.

A claim with several bounds agrees if all of them do, disagrees if all of them do, and otherwise agrees in part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from millrace_research.papers.figures import PaperFigures

TOLERANCE = 1.25
"""A figure that a paper prints as one number is met by values between it divided and multiplied by this."""


class Verdict(StrEnum):
    """What the measured values make of a claim."""

    AGREES = "agrees"
    IN_PART = "in part"
    DISAGREES = "disagrees"
    NOT_TESTABLE = "not testable"


@dataclass(frozen=True)
class ClaimBound:
    """The range of one figure within which a claim agrees, both ends included, and the order that is part of it."""

    figure: str
    """The figure, such as ``FLD's largest load over AM's``."""
    low: float = -math.inf
    high: float = math.inf
    order: tuple[float, float] | None = None
    """The range in which at least the paper's order holds; None if the range itself is the order."""

    def judge(self, values: Sequence[float]) -> Verdict:
        """Return the verdict on the values of all cases. Raise ValueError if there are none."""
        if not values:
            raise ValueError(f"there is no value of {self.figure!r}; measure at least one")
        if all(self.low <= value <= self.high for value in values):
            return Verdict.AGREES
        low, high = self.order or (self.low, self.high)
        ordered = sum(low <= value <= high for value in values)
        return Verdict.IN_PART if 2 * ordered >= len(values) else Verdict.DISAGREES

    def __str__(self) -> str:
        order = f" (order: {_range(*self.order)})" if self.order else ""
        return f"{self.figure} {_range(self.low, self.high)}{order}"


def about(figure: str, number: float, order: tuple[float, float] | None = None) -> ClaimBound:
    """Return the bound for a figure that the paper prints as one number."""
    return ClaimBound(figure, number / TOLERANCE, number * TOLERANCE, order)


BETTER = (1.0, math.inf)
"""The order of a ratio: the paper's winner is ahead."""


@dataclass(frozen=True)
class Outcome:
    """Our figures as text, and the values of each of the claim's bounds."""

    ours: str
    values: tuple[Sequence[float], ...]
    attainable: float = math.inf
    """The most that any placement of the same streams could give for the first bound."""


def outcome(ours: str, *values: Iterable[float], attainable: float = math.inf) -> Outcome:
    """Return an outcome with the values of each bound, in the order of the bounds."""
    return Outcome(ours, tuple(list(each) for each in values), attainable)


@dataclass(frozen=True)
class Claim:
    """A paper's claim about a partitioner, and how it is checked."""

    name: str
    """The paper and a number, such as ``000.3``."""
    place: str
    """Where the paper makes the claim."""
    says: str
    """The claim in our words, with the paper's figure where its text has one."""
    bounds: tuple[ClaimBound, ...]
    ran: str
    """What was run: streams with records of a window or in all, and numbers of workers."""
    measure: Callable[[PaperFigures], Outcome]
    because: str = ""
    """Why our figure differs, if it does, or what it cannot show."""
    replicas: tuple[int, ...] = (1,)
    """The numbers of partitioners that it is judged for, each by itself."""

    def outcomes(self, figures: PaperFigures) -> dict[int, Outcome]:
        """Return the outcome for each number of partitioners."""
        return {count: self.measure(figures.with_replicas(count)) for count in self.replicas}

    def verdicts(self, figures: PaperFigures) -> dict[int, Verdict]:
        """Return the verdict for each number of partitioners."""
        return {count: self._verdict(found) for count, found in self.outcomes(figures).items()}

    def _verdict(self, found: Outcome) -> Verdict:
        if found.attainable < self.bounds[0].low:
            return Verdict.NOT_TESTABLE
        return combined(self.bounds, found.values)


def combined(bounds: Sequence[ClaimBound], values: Sequence[Sequence[float]]) -> Verdict:
    """Return the verdict of several bounds. Raise ValueError unless there are values for each."""
    if len(bounds) != len(values):
        raise ValueError(f"there are {len(bounds)} bounds and values for {len(values)}; give values for each bound")
    verdicts = {bound.judge(each) for bound, each in zip(bounds, values, strict=True)}
    return verdicts.pop() if len(verdicts) == 1 else Verdict.IN_PART


def table(claims: Iterable[Claim], figures: PaperFigures) -> str:
    """Return the claims as a table in Markdown, with the papers' figures beside ours."""
    rows = ["| claim | the paper: figure, and where | run on | bound | ours | |", "|---|---|---|---|---|---|"]
    for claim in claims:
        says = f"{claim.says} ({claim.place})"
        cells = (claim.name, says, claim.ran, bounds_cell(claim), _ours(claim, figures), _cell(claim, figures))
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def bounds_cell(claim: Claim) -> str:
    """Return the bounds of a claim as text."""
    return "; ".join(map(str, claim.bounds))


def verdict_text(claim: Claim, figures: PaperFigures) -> str:
    """Return the verdicts of a claim as text, such as ``**agrees** for m = 1, 2; **in part** for m = 4, 8``."""
    verdicts = claim.verdicts(figures)
    if len(set(verdicts.values())) == 1:
        return f"**{next(iter(verdicts.values()))}**"
    parts = groupby(verdicts.items(), key=lambda item: item[1])
    return "; ".join(f"**{verdict}** for m = {', '.join(str(m) for m, _ in group)}" for verdict, group in parts)


def _cell(claim: Claim, figures: PaperFigures) -> str:
    return verdict_text(claim, figures) + (f". {claim.because}" if claim.because else "")


def _ours(claim: Claim, figures: PaperFigures) -> str:
    outcomes = claim.outcomes(figures)
    if len(outcomes) == 1:
        return next(iter(outcomes.values())).ours
    return "<br>".join(f"m = {count}: {found.ours}" for count, found in outcomes.items())


def _range(low: float, high: float) -> str:
    if math.isinf(low):
        return f"≤ {high:g}"
    return f"≥ {low:g}" if math.isinf(high) else f"{low:g}" if low == high else f"{low:g} to {high:g}"
