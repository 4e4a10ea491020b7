"""The start times of services, reported at the end of a test run."""

from __future__ import annotations

from collections.abc import Sequence


def starts(service: str, to_start: Sequence[float]) -> str:
    """Return a line with the seconds of each start."""
    seconds = ", ".join(f"{each:.1f}" for each in to_start)
    return f"{service}: seconds of each start: {seconds}"
