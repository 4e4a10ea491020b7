"""What a claim of a paper is here, and how claims become the table of ``docs/partitioning.md``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .figures import Figures


@dataclass(frozen=True)
class Outcome:
    """What came out here: ``ours`` as text, and in which share of the cases looked at the claim ``holds``."""

    ours: str
    holds: float

    @property
    def verdict(self) -> str:
        """In a word."""
        return "agrees" if self.holds == 1 else "disagrees" if self.holds == 0 else "in part"


@dataclass(frozen=True)
class Claim:
    """Something that a paper says of a partitioner's placement, and how to see whether it is so here."""

    name: str
    """For instance ``000.3``: the paper and a number."""
    place: str
    """Where the paper says it."""
    says: str
    """The claim in our words, with the paper's figure where its text has one."""
    check: Callable[[Figures], Outcome]
    because: str = ""
    """Why ours differs, where it does, or what the figure cannot show."""


def table(claims: Iterable[Claim], figures: Figures) -> str:
    """The claims with the papers' figures beside ours, in Markdown."""
    rows = ["| claim | the paper: figure, and where | ours | |", "|---|---|---|---|"]
    for claim in claims:
        outcome = claim.check(figures)
        verdict = f"**{outcome.verdict}**" + (f". {claim.because}" if claim.because else "")
        rows.append(f"| {claim.name} | {claim.says} ({claim.place}) | {outcome.ours} | {verdict} |")
    return "\n".join(rows)
