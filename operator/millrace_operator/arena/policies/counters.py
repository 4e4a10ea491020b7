"""What counters did between two answers, for policies that read their metrics as plainly as their authors do."""

from __future__ import annotations

import math

from ...scaling.observation import Answer


def increase(earlier: Answer | None, later: Answer | None, counter: str) -> float | None:
    """By how much a counter of the answers went up; None where either has no number, or it was reset between them."""
    if earlier is None or later is None:
        return None
    before, after = getattr(earlier, counter), getattr(later, counter)
    if before is None or after is None or not math.isfinite(after - before) or after < before:
        return None
    return float(after - before)


def ratio(above: float | None, below: float | None) -> float | None:
    """``above / below``; None where either is unknown or there is nothing to divide by."""
    return None if above is None or not below or below < 0 else above / below
