"""How long services took, for the end of a test run."""

from __future__ import annotations

from collections.abc import Sequence


def starts(service: str, program: str, to_get: Sequence[float], to_start: Sequence[float]) -> str:
    """A line: seconds until the program was there, which is built or fetched once, and of each start."""
    seconds = ", ".join(f"{each:.1f}" for each in to_start)
    return f"{service}: {program} there after {max(to_get):.1f} s; seconds of each start: {seconds}"
