"""Measured points: a query at a plan, a rate and a skew, and what its batches reported.

From some points of the grid the calibration learns a job's costs; the others it has to predict.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

RECORDED = Path(__file__).parent.parent / "recorded" / "scaling_points.json"


@dataclass(frozen=True)
class PointSetting:
    """The settings of a point. ``cores`` stand for executors of one core, and ``rows`` are the records per batch."""

    job: str
    cores: int
    parallelism: int
    replicas: int
    rows: int
    skew: float


@dataclass(frozen=True)
class Measured:
    """Reports of a point's batches: medians over the counted batches. Times are in seconds.

    Attributes:
        round: number of the round. Its points were measured one after the other, in random order.
        seconds: processing time of a batch.
        batches: processing times of all counted batches.
        first: processing time of the first batch, which does not count.
        route_tasks, route_seconds, combine_tasks, combine_seconds, merge_seconds: totals over all tasks of a batch.
        groups: partial results.
        updates: results that changed.
        keys: distinct keys.
        imbalance: the largest load of a combine task over the mean load, less 1.
        busy: processor time of Spark and its Python processes, per batch.
        others: cores that other processes of the machine took meanwhile.
    """

    round: int
    seconds: float
    batches: tuple[float, ...]
    first: float
    route_tasks: int
    route_seconds: float
    combine_tasks: int
    combine_seconds: float
    merge_seconds: float
    groups: float
    updates: float
    keys: float
    imbalance: float
    busy: float
    others: float


@dataclass(frozen=True)
class Point:
    """A setting and its measurement."""

    setting: PointSetting
    measured: Measured


def write_points(points: Sequence[Point], path: Path = RECORDED) -> None:
    """Write points as JSON, one to a line."""
    lines = ",\n".join(json.dumps({**asdict(p.setting), **asdict(p.measured)}) for p in points)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def read_points(path: Path = RECORDED) -> list[Point]:
    """Read the points that ``write_points`` wrote."""
    chosen = PointSetting.__dataclass_fields__
    points = []
    for entry in json.loads(path.read_text(encoding="utf-8")):
        setting = PointSetting(**{name: value for name, value in entry.items() if name in chosen})
        rest = {name: value for name, value in entry.items() if name not in chosen}
        points.append(Point(setting, Measured(**(rest | {"batches": tuple(rest["batches"])}))))
    return points


GridPlan = tuple[int, int, int]
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

SEEN: Sequence[tuple[GridPlan, int, int]] = (
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

HELD_OUT: Sequence[tuple[GridPlan, int, int]] = (
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


def settings(job: str, points: Sequence[tuple[GridPlan, int, int]]) -> list[PointSetting]:
    """Return the settings of the given points for one job."""
    skews = REAL if job == "flights" else ZIPF
    return [PointSetting(job, *shape, RATES[job][rate], skews[skew]) for shape, rate, skew in points]


def grid() -> list[PointSetting]:
    """Return all points of all jobs."""
    return [setting for job in RATES for setting in settings(job, (*SEEN, *HELD_OUT))]
