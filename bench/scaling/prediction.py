"""Predictions of the held-out points, by a calibration that has seen the others as it would in a job."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from bench.scaling.points import HELD_OUT, RATES, SEEN, Measured, Point, PointSetting, settings
from millrace_operator.scaling.batch_time.batch_model import BatchLoad
from millrace_operator.scaling.batch_time.calibration import Calibration
from millrace_operator.scaling.batch_time.cost_prior import CostPrior
from millrace_operator.scaling.observation import Observation, Stage
from millrace_operator.scaling.shape import Bounds, Range, Shape

STATE_PARTITIONS = 2
BOUNDS = Bounds(executors=Range(1, 2), parallelism=Range(1, 16), replicas=Range(1, 8), executor_cores=1)
INTERVAL = 2.0
BATCHES = 4

TUNED = ("flights", "python", "digests")
"""Jobs by whose points the width of intervals after few plans was chosen; the points of the others are held back."""


@dataclass(frozen=True)
class Predicted:
    """A predicted point. ``unseen`` names what was new to the calibration: plan, rate, skew or their combination."""

    setting: PointSetting
    unseen: str
    observed: float
    seconds: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """Predicted over observed, less 1."""
        return self.seconds / self.observed - 1

    @property
    def covered(self) -> bool:
        """Whether the predicted interval contains the observed time."""
        return self.low <= self.observed <= self.high


def shape_of(setting: PointSetting) -> Shape:
    """Return the shape of a setting. Executors have one core here."""
    return Shape(setting.cores, setting.parallelism, setting.replicas)


def observation(setting: PointSetting, measured: Measured, time: float, epoch: int) -> Observation:
    """Return the observation that the operator would make from the metrics."""
    return Observation(
        since=time - INTERVAL * BATCHES,
        until=time,
        epoch=epoch,
        plan=shape_of(setting),
        batches=BATCHES,
        interval=INTERVAL,
        seconds=measured.seconds,
        rows=float(setting.rows),
        arrival=setting.rows / INTERVAL,
        lag=0.0,
        keys=measured.keys,
        partials=measured.groups,
        updates=measured.updates,
        imbalance=measured.imbalance,
        route=Stage(measured.route_tasks, measured.route_seconds),
        combine=Stage(measured.combine_tasks, measured.combine_seconds),
        merge_seconds=measured.merge_seconds,
    )


def predictions(points: Sequence[Point]) -> list[Predicted]:
    """Predict all measured held-out points of all jobs."""
    return [one for job in RATES for one in _of_job(job, points)]


def _of_job(job: str, points: Sequence[Point]) -> list[Predicted]:
    measured: dict[PointSetting, list[Measured]] = {}
    for point in points:
        measured.setdefault(point.setting, []).append(point.measured)
    seen = [setting for setting in settings(job, SEEN) if setting in measured]
    found = []
    for setting in settings(job, HELD_OUT):
        if setting in measured and seen:
            found.append(_predicted(setting, seen, measured))
    return found


def _predicted(
    setting: PointSetting,
    seen: Sequence[PointSetting],
    measured: dict[PointSetting, list[Measured]],
    prior: CostPrior | None = None,
) -> Predicted:
    calibration = calibrated(seen, measured, setting.skew, prior)
    predicted = calibration.model().predict([shape_of(setting)], BatchLoad(float(setting.rows), INTERVAL))
    observed = statistics.median(one.seconds for one in measured[setting])
    bounds = (float(values[0]) for values in (predicted.seconds, predicted.low, predicted.high))
    return Predicted(setting, _unseen(setting, seen), observed, *bounds)


def after_few_plans(job: str, points: Sequence[Point], plans: int) -> Iterator[Predicted]:
    """Predict all other points of a job, by calibrations that have seen those of each choice of so many plans."""
    measured: dict[PointSetting, list[Measured]] = {}
    for point in points:
        if point.setting.job == job:
            measured.setdefault(point.setting, []).append(point.measured)
    known = [setting for setting in settings(job, SEEN) if setting in measured]
    for chosen in combinations(sorted({shape_of(setting) for setting in known}), plans):
        seen = [setting for setting in known if shape_of(setting) in chosen]
        for setting in measured.keys() - set(seen):
            yield _predicted(setting, seen, measured)


def among_seen(
    job: str, measured: dict[PointSetting, list[Measured]], plans: int, prior: CostPrior | None
) -> Iterator[Predicted]:
    """Predict the points in ``SEEN`` of the other plans, by calibrations that have seen each choice of so many."""
    known = [setting for setting in settings(job, SEEN) if setting in measured]
    for chosen in combinations(sorted({shape_of(setting) for setting in known}), plans):
        seen = [setting for setting in known if shape_of(setting) in chosen]
        yield from (_predicted(setting, seen, measured, prior) for setting in known if setting not in seen)


def calibrated(
    seen: Sequence[PointSetting],
    measured: dict[PointSetting, list[Measured]],
    skew: float,
    prior: CostPrior | None = None,
) -> Calibration:
    """Return a calibration that saw each point as often as it was measured, and the points of this skew last."""
    calibration = Calibration(BOUNDS, STATE_PARTITIONS, prior)
    order = sorted(seen, key=lambda setting: setting.skew == skew)
    epoch, plan = 0, None
    for number, setting in enumerate(order):
        epoch += shape_of(setting) != plan
        plan = shape_of(setting)
        for one in measured[setting]:
            calibration.add(observation(setting, one, (number + 1) * INTERVAL * BATCHES, epoch))
    return calibration


def _unseen(setting: PointSetting, seen: Sequence[PointSetting]) -> str:
    new = []
    if shape_of(setting) not in {shape_of(one) for one in seen}:
        new.append("plan")
    if setting.rows > max(one.rows for one in seen):
        new.append("rate")
    if setting.skew not in {one.skew for one in seen}:
        new.append("skew")
    return " and ".join(new) or "combination"
