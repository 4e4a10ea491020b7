"""Measured points: a query at a plan, a rate and a skew, and what its batches reported."""

from __future__ import annotations

import json
from collections.abc import Sequence
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
