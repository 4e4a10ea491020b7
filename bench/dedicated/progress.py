"""The progress of a process that moves records, and its speed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Progress(NamedTuple):
    """What a process has done at one time.

    Attributes:
        at: seconds, of any clock.
        records: records that it has moved so far.
        processor: its processor time so far, in seconds.
    """

    at: float
    records: int
    processor: float


class Speed(NamedTuple):
    """Records per second of wall time, and microseconds of processor time per record."""

    rate: float
    cost: float


def speed(points: Sequence[Progress]) -> Speed:
    """Return the speed between the first point and the last but one: while the process neither starts nor waits.

    Raises:
        ValueError: fewer than three points, or no record between the two.
    """
    if len(points) < 3 or points[-2].records <= points[0].records:
        raise ValueError(f"{len(points)} points are too few for a speed: give the benchmark more records")
    first, last = points[0], points[-2]
    records = last.records - first.records
    return Speed(records / (last.at - first.at), (last.processor - first.processor) / records * 1e6)
