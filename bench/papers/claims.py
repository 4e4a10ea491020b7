"""Claims of the papers, and the table of ``docs/partitioning.md`` that compares them with our figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bench.papers.figures import Figures


@dataclass(frozen=True)
class Outcome:
    """The outcome of a check: our figures as text, and the share of the checked cases in which the claim holds."""

    ours: str
    holds: float

    @property
    def verdict(self) -> str:
        """The verdict on the claim: "agrees", "disagrees" or "in part"."""
        return "agrees" if self.holds == 1 else "disagrees" if self.holds == 0 else "in part"


@dataclass(frozen=True)
class Claim:
    """A paper's claim about a partitioner's placement, and the check of whether it holds here."""

    name: str
    """The paper and a number, such as ``000.3``."""
    place: str
    """Where the paper makes the claim."""
    says: str
    """The claim in our words, with the paper's figure where its text has one."""
    check: Callable[[Figures], Outcome]
    because: str = ""
    """Why our figure differs, if it does, or what it cannot show."""


def table(claims: Iterable[Claim], figures: Figures) -> str:
    """Return the claims as a table in Markdown, with the papers' figures beside ours."""
    rows = ["| claim | the paper: figure, and where | ours | |", "|---|---|---|---|"]
    for claim in claims:
        outcome = claim.check(figures)
        verdict = f"**{outcome.verdict}**" + (f". {claim.because}" if claim.because else "")
        rows.append(f"| {claim.name} | {claim.says} ({claim.place}) | {outcome.ours} | {verdict} |")
    return "\n".join(rows)
