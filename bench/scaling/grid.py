"""The grid of measured points: points from which the calibration learns a job's costs, and points to predict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.scaling.points import PointSetting

Shape = tuple[int, int, int]
"""Cores, parallelism and replicas."""

RATES: Mapping[str, tuple[int, int, int]] = {
    "flights": (50_000, 250_000, 1_250_000),
    "tumbling": (50_000, 150_000, 450_000),
    "python": (20_000, 60_000, 180_000),
    "digests": (30_000, 120_000, 480_000),
    "digests-pkg": (30_000, 120_000, 480_000),
}
"""Records of a batch at a low, medium and high rate, by job."""

REAL, ZIPF = (0.0, 1.0, 2.0), (0.0, 1.2, 2.0)
"""No, medium and high skew: powers of the real shares of destinations, and exponents of Zipf's law."""

SMALL, USUAL, WIDE, DENSE = (1, 2, 1), (2, 4, 2), (2, 8, 2), (1, 8, 2)
"""The plans that the calibration sees; the last has many tasks for its core."""

SEEN: Sequence[tuple[Shape, int, int]] = (
    (SMALL, 0, 0),
    (SMALL, 1, 0),
    (SMALL, 1, 2),
    (DENSE, 0, 0),
    (DENSE, 1, 0),
    (WIDE, 0, 2),
    (WIDE, 1, 0),
    (USUAL, 0, 0),
    (USUAL, 1, 0),
    (USUAL, 0, 1),
    (USUAL, 1, 1),
    (USUAL, 1, 2),
)
"""Plan, rate (low, medium, high) and skew (none, medium, high) of the points that the calibration sees."""

HELD_OUT: Sequence[tuple[Shape, int, int]] = (
    ((1, 1, 1), 1, 0),
    ((1, 4, 2), 0, 0),
    ((1, 8, 4), 1, 2),
    ((2, 1, 2), 1, 0),
    ((2, 2, 2), 0, 2),
    ((2, 16, 2), 1, 0),
    ((2, 4, 1), 1, 2),
    ((1, 2, 1), 2, 0),
    ((2, 4, 2), 2, 0),
    ((2, 8, 2), 2, 2),
    ((1, 2, 1), 1, 1),
    ((2, 8, 2), 1, 1),
    ((2, 2, 4), 2, 1),
    ((1, 16, 4), 2, 0),
    ((2, 16, 1), 0, 1),
)
"""Plan, rate and skew of the points to predict, in the form of ``SEEN``."""


def settings(job: str, points: Sequence[tuple[Shape, int, int]]) -> list[PointSetting]:
    """Return the settings of the given points for one job."""
    skews = REAL if job == "flights" else ZIPF
    return [PointSetting(job, *shape, RATES[job][rate], skews[skew]) for shape, rate, skew in points]


def grid() -> list[PointSetting]:
    """Return all points of all jobs."""
    return [setting for job in RATES for setting in settings(job, (*SEEN, *HELD_OUT))]
