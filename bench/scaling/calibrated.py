"""How well ``millrace calibrate`` predicts batches under plans and of sizes that it has not seen.

    python -m bench.scaling.calibrated [--seconds 120] [QUERY ...]       about three minutes for each query on two cores
    python -m bench.scaling.calibrated --recorded                        the same model on recorded points, in seconds

Each query is run in a process of its own, as the command does it, with two plans more. Their batches are left out of
what the model gets, and it predicts them. They run between the others, so that what else the machine does affects all
alike.
With ``--recorded``, the model gets the recorded points (``points``) that the design would measure, and predicts the
others of the same skew.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

from bench.scaling.jobs import zipf
from bench.scaling.points import (
    DENSE,
    RATES,
    RECORDED,
    SEEN,
    SMALL,
    USUAL,
    WIDE,
    Measured,
    PointSetting,
    read_points,
    settings,
)
from bench.scaling.points import HELD_OUT as HELD_OUT_POINTS
from bench.scaling.prediction import BATCHES, BOUNDS, INTERVAL, STATE_PARTITIONS, observation, shape_of
from examples.flights import flights
from millrace_api.model.deployment import Parallelism, Replicas
from millrace_jobs.calibration.calibrate import CalibrationRun
from millrace_jobs.calibration.design import DesignedPlan, designed_plans
from millrace_jobs.commands.query import query_for_spark
from millrace_operator.capacity.deployment import Deployment
from millrace_operator.commands.calibration_report import deployment_of
from millrace_operator.scaling.batch_time.batch_model import BatchLoad
from millrace_operator.scaling.observation import Observation
from millrace_operator.scaling.shape import Shape
from millrace_support.plan_measurements import PlanBatch, PlanMeasurements

_FLIGHTS: Mapping[str, Any] = {
    "source": {
        "replay": {"path": "flights.parquet", "format": "parquet", "timeColumn": "departure", "rate": 24000},
        "schema": "departure TIMESTAMP, dest STRING, dep_delay DOUBLE",
        "watermark": {"column": "departure", "delay": "1d"},
    },
    "query": {
        "sql": "SELECT window.end AS until, dest, count(*) AS flights, round(avg(dep_delay), 1) AS mean_delay "
        "FROM s GROUP BY window(departure, '7 days', '1 day'), dest"
    },
    "emit": "OnWindowClose",
}
_ZIPF: Mapping[str, Any] = {
    "source": {
        "replay": {"path": "zipf.parquet", "format": "parquet", "timeColumn": "at", "rate": 100000},
        "schema": "at TIMESTAMP, key STRING, value STRING",
        "watermark": {"column": "at", "delay": "5s"},
    },
    "emit": "OnUpdate",
}
_KEYS = {"sql": "SELECT window.start AS w, key, count(*) AS n FROM s GROUP BY window(at, '10 seconds'), key"}
_TOP = {
    "python": {
        "aggregator": "examples.top_values:TopValues",
        "options": {"column": "value", "k": 5},
        "groupBy": ["key"],
        "window": {"column": "at", "size": "10s"},
    }
}
QUERIES: Mapping[str, Mapping[str, Any]] = {
    "flights": _FLIGHTS,
    "keys": {**_ZIPF, "query": _KEYS},
    "python": {**_ZIPF, "query": _TOP, "partitioner": {"algorithm": "hash", "replicas": {"max": 8}}},
}
"""The query of the README, a count for 10,000 keys, and an aggregator in Python."""

ROWS = 1_000_000
HELD_OUT = (DesignedPlan(2, 6, 3), DesignedPlan(1, 4, 2))
"""Plans that the design does not have, for two cores."""

DESIGN = (
    (USUAL, 1, 0),
    (SMALL, 1, 0),
    (USUAL, 2, 0),
    (WIDE, 1, 0),
    (DENSE, 1, 0),
    (USUAL, 0, 0),
    (SMALL, 0, 0),
    (DENSE, 0, 0),
)
"""The points of the design, in its order, as far as they were recorded; in the form of ``points.SEEN``."""


@dataclass(frozen=True)
class CalibratedPoint:
    """A point that was measured after a calibration, and what that had predicted for it; times are in seconds."""

    plan: Shape
    rows: int
    observed: float
    predicted: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """Predicted over observed, less 1."""
        return self.predicted / self.observed - 1

    @property
    def is_covered(self) -> bool:
        """Whether the interval has the observed time."""
        return self.low <= self.observed <= self.high


def write_query(folder: Path, name: str) -> Path:
    """Write a query and its records, and return its file."""
    given = {field: value for field, value in QUERIES[name].items() if field != "source"}
    source: Any = QUERIES[name]["source"]
    source = source | {"replay": source["replay"] | {"path": str(folder / source["replay"]["path"])}}
    document: dict[str, Any] = {
        "apiVersion": "millrace.io/v1alpha1",
        "kind": "StreamQuery",
        "metadata": {"name": name},
        "spec": {"sources": {"s": source}, "sink": {"console": {}}, "batchInterval": "2s"} | given,
    }
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    if name == "flights":
        pq.write_table(flights(), folder / "flights.parquet")
    else:
        pq.write_table(zipf(ROWS // 50, 50, 1.0), folder / "zipf.parquet")
    return file


def measure(file: Path, seconds: float, plans: Sequence[DesignedPlan]) -> PlanMeasurements:
    """Measure a query under some plans, in this process."""
    query = query_for_spark(file, None, None, debug=False)
    run = CalibrationRun(query, seconds, os.cpu_count() or 1, lambda text: print(text, file=sys.stderr), plans=plans)
    try:
        with run.job:
            run.job.run()
        return run.measured()
    finally:
        run.close()


def in_a_process(file: Path, seconds: float, plans: Sequence[DesignedPlan]) -> PlanMeasurements:
    """Measure in a process of its own, so that each one has a JVM that knows nothing."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        return pool.submit(measure, file, seconds, plans).result()


def plan_of(batch: PlanBatch) -> DesignedPlan:
    """Return the plan of a batch."""
    return DesignedPlan(batch.cores, batch.parallelism, batch.replicas)


def without(measured: PlanMeasurements, plans: Sequence[DesignedPlan]) -> PlanMeasurements:
    """Return the measurements without the batches of some plans."""
    return replace(measured, batches=[batch for batch in measured.batches if plan_of(batch) not in plans])


def points(seen: PlanMeasurements, later: Sequence[PlanBatch]) -> list[CalibratedPoint]:
    """Predict each point that was measured besides, by the median of its batches without the first one."""
    deployment = deployment_of(seen)
    model = replace(deployment.model, executor_cores=1, state_partitions=seen.state_partitions)
    by_point: dict[int, list[PlanBatch]] = {}
    for batch in later:
        by_point.setdefault(batch.epoch, []).append(batch)
    found = []
    for batches in by_point.values():
        if len(batches) < 2:
            continue
        first, rows = batches[0], round(statistics.median(batch.rows for batch in batches[1:]))
        shape = Shape(first.cores, first.parallelism, first.replicas)
        prediction = model.predict([shape], BatchLoad(float(rows), deployment.interval))
        seconds, low, high = (float(each[0]) for each in (prediction.seconds, prediction.low, prediction.high))
        observed = statistics.median(batch.seconds for batch in batches[1:])
        found.append(CalibratedPoint(shape, rows, observed, seconds, low, high))
    return found


def recorded(job: str, measured: Mapping[PointSetting, Sequence[Measured]]) -> list[CalibratedPoint]:
    """Predict the recorded points of a job without skew that the design does not have, from those that it has."""
    seen = [setting for setting in settings(job, DESIGN) if setting in measured]
    observations: list[Observation] = []
    epoch, plan = 0, None
    for number in range(max(len(measured[setting]) for setting in seen)):
        for setting in (each for each in seen if number < len(measured[each])):
            epoch += shape_of(setting) != plan
            plan = shape_of(setting)
            time = len(observations) * INTERVAL * BATCHES
            observations.append(observation(setting, measured[setting][number], time, epoch))
    model = Deployment(observations, STATE_PARTITIONS, BOUNDS, Shape(1, 4, 2), INTERVAL, 0.9, STATE_PARTITIONS).model
    found = []
    for setting in settings(job, [each for each in (*SEEN, *HELD_OUT_POINTS) if not each[2]]):
        if setting in measured and setting not in seen:
            shape = shape_of(setting)
            prediction = model.predict([shape], BatchLoad(float(setting.rows), INTERVAL))
            seconds, low, high = (float(each[0]) for each in (prediction.seconds, prediction.low, prediction.high))
            observed = statistics.median(one.seconds for one in measured[setting])
            found.append(CalibratedPoint(shape, setting.rows, observed, seconds, low, high))
    return found


def summary(found: Sequence[CalibratedPoint]) -> str:
    """Return the mean error of points, their largest ones, and how many intervals hold."""
    errors, covered = [point.error for point in found], sum(point.is_covered for point in found)
    return (
        f"mean error {statistics.mean(map(abs, errors)):.1%} of {len(found)} points, {min(errors):+.0%} to "
        f"{max(errors):+.0%}, {covered} in the interval"
    )


def report_recorded() -> None:
    """Print how the recorded points are predicted."""
    measured: dict[PointSetting, list[Measured]] = {}
    for point in read_points(RECORDED):
        measured.setdefault(point.setting, []).append(point.measured)
    everything = []
    for job in RATES:
        found = recorded(job, measured)
        everything += found
        print(f"{job}: {summary(found)}")
    print(f"all: {summary(everything)}")


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("queries", nargs="*", help="default: all", metavar="QUERY")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--recorded", action="store_true")
    options = parser.parse_args()
    if options.recorded:
        report_recorded()
        return
    for name in options.queries or QUERIES:
        with tempfile.TemporaryDirectory(prefix="millrace-bench-") as folder:
            plans = (*designed_plans(2, Parallelism(max=64), Replicas(max=8)), *HELD_OUT)
            measured = in_a_process(write_query(Path(folder), name), options.seconds, plans)
        seen, later = without(measured, HELD_OUT), [each for each in measured.batches if plan_of(each) in HELD_OUT]
        found = points(seen, later)
        rows = [batch.rows for batch in seen.batches]
        print(f"{name}: {seen.algorithm}, {len(seen.batches)} batches of {min(rows):,} to {max(rows):,} records")
        for note in seen.notes:
            print(f"  note: {note}")
        for point in found:
            print(
                f"  {point.plan} {point.rows:,} records: {point.observed:.2f} s, predicted {point.predicted:.2f} s "
                f"({point.low:.2f} to {point.high:.2f}), {point.error:+.0%}"
            )
        print(f"  {summary(found)}")


if __name__ == "__main__":
    main()
