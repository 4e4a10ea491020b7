"""Verdicts over the figures of all cases: where ``millrace`` is ahead of other policies, and where it is behind."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from bench.arena.cases import CaseResult
from millrace_research.arena.comparison import OURS
from millrace_research.arena.figures import RunFigures

_SAME_COST = 1.005
"""Ratio up to which two figures of core-hours count as equal."""
_MOST_OVER_ORACLE, _MOST_BATCHES = 1.25, 0.01


class Standing(StrEnum):
    """How Millrace's policy compares with another one in violations and core-hours."""

    AHEAD = "ahead"
    """No more violations and no more core-hours."""
    SAFER = "safer, for more"
    """Fewer violations, more core-hours."""
    CHEAPER = "cheaper, for less"
    """Fewer core-hours, more violations."""
    BEHIND = "behind"
    """More of both, or more of one and as many of the other."""


def standing(ours: RunFigures, other: RunFigures) -> Standing:
    """Compare Millrace's figures with another policy's in the same case."""
    dearer = ours.core_hours > other.core_hours * _SAME_COST
    cheaper = other.core_hours > ours.core_hours * _SAME_COST
    worse = ours.violations > other.violations
    better = other.violations > ours.violations
    if not worse and not dearer:
        return Standing.AHEAD
    if better:
        return Standing.SAFER
    return Standing.CHEAPER if cheaper else Standing.BEHIND


def against(results: Sequence[CaseResult], policy: str) -> dict[Standing, list[str]]:
    """Group the cases by Millrace's standing against ``policy``."""
    found: dict[Standing, list[str]] = {kind: [] for kind in Standing}
    for result in results:
        found[standing(result.of(OURS), result.of(policy))].append(result.case)
    return found


def cheapest(results: Sequence[CaseResult], policies: Sequence[str]) -> tuple[list[str], list[str]]:
    """Find the cases in which Millrace is the cheapest policy with at most 1 % violations.

    Returns:
        The cases in which at least one of ``policies`` has at most 1 % violations, and those of them in which
        Millrace is one of these policies and none of the others costs less.
    """
    met = {
        result: [found for policy in policies if (found := result.of(policy)).violations <= _MOST_BATCHES]
        for result in results
    }
    ours = [
        result.case
        for result, found in met.items()
        if any(figure.policy == OURS for figure in found)
        and result.of(OURS).core_hours <= min(figure.core_hours for figure in found) * _SAME_COST
    ]
    return [result.case for result, found in met.items() if found], ours


def settled(results: Sequence[CaseResult], policy: str) -> tuple[int, int, int, int]:
    """Count how a policy settled after step changes of the load.

    Returns:
        The number of step changes, and the numbers of those after which the policy settled with at most one rescale,
        rescaled more than twice, and never settled.
    """
    steps = [step for result in results for step in result.of(policy).settling]
    return (
        len(steps),
        sum(step.rescales <= 1 and step.seconds is not None for step in steps),
        sum(step.rescales > 2 for step in steps),
        sum(step.seconds is None for step in steps),
    )


def oscillations(results: Sequence[CaseResult], policy: str) -> int:
    """Count the oscillations on constant loads, with and without noise."""
    return sum(result.of(policy).oscillations for result in results if result.case.startswith(("noise", "constant")))


def frugal(found: RunFigures, bad_batches: float) -> bool:
    """Whether core-hours are at most 1.25 times the oracle's and the share ``bad_batches`` is at most 1 %."""
    cost = found.over_oracle
    return cost is not None and cost <= _MOST_OVER_ORACLE and bad_batches <= _MOST_BATCHES
