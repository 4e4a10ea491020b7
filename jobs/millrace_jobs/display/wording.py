"""Human-readable forms of the numbers and texts of a batch."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from millrace_jobs.plan.pin import Pin


def count(number: float) -> str:
    """Format a count in at most six characters: ``9,999``, ``12.3k``, ``4.56M``."""
    if round(number) < 10_000:
        return f"{round(number):,}"
    for power, suffix in ((3, "k"), (6, "M"), (9, "G"), (12, "T")):
        scaled = float(f"{number / 10**power:.3g}")
        if scaled < 1000:
            return f"{scaled:.{2 - int(math.log10(scaled))}f}{suffix}"
    return f"{number:.0e}"


def duration(seconds: float) -> str:
    """Format a duration: tenths of a second below a minute, then ``h:mm:ss``."""
    return f"{seconds:.1f} s" if seconds < 59.95 else str(timedelta(seconds=round(seconds)))


def moment(time: datetime | None) -> str:
    """Format a point in event time, in UTC to the second; ``-`` for None."""
    return "-" if time is None else f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def plan(pin: Pin | None) -> str:
    """Format a plan as algorithm, replicas (m) and workers (n); ``-`` for None."""
    return "-" if pin is None else f"{pin.algorithm} m={pin.replicas} n={pin.workers}"


def value(cell: object) -> str:
    """Format a value of a result on one line; control characters become escapes."""
    text = "NULL" if cell is None else str(cell)
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
