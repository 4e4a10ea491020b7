"""Texts as commands and logs show them: control characters escaped, and counts in a few characters."""

from __future__ import annotations

import math


def printable(text: str) -> str:
    """Return a text on one line with control characters escaped, so that no value of a user controls the terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def count_text(number: float) -> str:
    """Format a count in at most six characters: ``9,999``, ``12.3k``, ``4.56M``."""
    if round(number) < 10_000:
        return f"{round(number):,}"
    for power, suffix in ((3, "k"), (6, "M"), (9, "G"), (12, "T")):
        scaled = float(f"{number / 10**power:.3g}")
        if scaled < 1000:
            return f"{scaled:.{2 - int(math.log10(scaled))}f}{suffix}"
    return f"{number:.0e}"
