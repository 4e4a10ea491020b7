"""What the figures of all cases come to: where ``millrace`` is ahead, and where it is not."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from millrace_operator.arena.figures import Figures
from millrace_operator.arena.registry import OURS

from .cases import Result

_SAME_COST = 1.005
"""Core-hours that differ by less are the same."""
_MOST_OVER_ORACLE, _MOST_BATCHES = 1.25, 0.01


class Standing(StrEnum):
    """How ours does against another policy: in violations, and in core-hours."""

    AHEAD = "ahead"
    """No more of either."""
    SAFER = "safer, for more"
    """Fewer violations, more core-hours."""
    CHEAPER = "cheaper, for less"
    """Fewer core-hours, more violations."""
    BEHIND = "behind"
    """More of both, or as many of one of them."""


def standing(ours: Figures, other: Figures) -> Standing:
    """How ours does against another policy in the same case."""
    dearer = ours.core_hours > other.core_hours * _SAME_COST
    cheaper = other.core_hours > ours.core_hours * _SAME_COST
    worse = ours.violations > other.violations
    better = other.violations > ours.violations
    if not worse and not dearer:
        return Standing.AHEAD
    if better:
        return Standing.SAFER
    return Standing.CHEAPER if cheaper else Standing.BEHIND


def against(results: Sequence[Result], policy: str) -> dict[Standing, list[str]]:
    """The cases of each standing of ours against ``policy``."""
    found: dict[Standing, list[str]] = {kind: [] for kind in Standing}
    for result in results:
        found[standing(result.of(OURS), result.of(policy))].append(result.case)
    return found


def cheapest(results: Sequence[Result], policies: Sequence[str]) -> tuple[list[str], list[str]]:
    """Cases where some of ``policies`` have at most 1 % violations: all, and where ours is one of them and none of
    the others costs less.
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


def settled(results: Sequence[Result], policy: str) -> tuple[int, int, int, int]:
    """Step changes of the load; after how many a policy settled with one rescale at most, rescaled more than twice, and
    never settled.
    """
    steps = [step for result in results for step in result.of(policy).settling]
    return (
        len(steps),
        sum(step.rescales <= 1 and step.seconds is not None for step in steps),
        sum(step.rescales > 2 for step in steps),
        sum(step.seconds is None for step in steps),
    )


def oscillations(results: Sequence[Result], policy: str) -> int:
    """Oscillations on constant loads, with noise and without."""
    return sum(result.of(policy).oscillations for result in results if result.case.startswith(("noise", "constant")))


def frugal(found: Figures, bad_batches: float) -> bool:
    """Whether core-hours are at most 1.25 of the oracle's, where ``bad_batches`` is a share of 1 % at most."""
    cost = found.over_oracle
    return cost is not None and cost <= _MOST_OVER_ORACLE and bad_batches <= _MOST_BATCHES
