"""Increases of counters between two answers, for policies that read their metrics without further checks."""

from __future__ import annotations

import math

from millrace_operator.scaling.observation import Answer


def increase(earlier: Answer | None, later: Answer | None, counter: str) -> float | None:
    """Return the increase of a counter between two answers; None if a value is missing or the counter was reset."""
    if earlier is None or later is None:
        return None
    before, after = getattr(earlier, counter), getattr(later, counter)
    if before is None or after is None or not math.isfinite(after - before) or after < before:
        return None
    return float(after - before)


def ratio(above: float | None, below: float | None) -> float | None:
    """Return ``above / below``; None if either is unknown or ``below`` is not positive."""
    return None if above is None or not below or below < 0 else above / below
