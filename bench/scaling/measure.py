"""Measure the points: run the queries in local Spark, as ``millrace run`` does, under one plan after the other.

    python -m bench.scaling.measure [--rounds 2] [--json FILE]        about 40 minutes for a round on two cores

Points run in random order, in several rounds, so that other activity on the machine affects all of them alike. A point
is measured again if other processes were busy meanwhile. The first batches of each point do not count. A session of c
cores is bound to c processors, Spark's Python processes included, as a container with c cores would be.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from bench.processor_time import bind, machine_seconds, own_seconds
from bench.recorded_queries import recording, run_to_the_end
from bench.scaling.jobs import JOBS, MeasuredJob
from bench.scaling.points import RECORDED, Measured, Point, PointSetting, grid, write_points
from millrace_api.model.deployment import Algorithm
from millrace_api.model.plan import Plan
from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.pipeline.progress import BatchReport
from millrace_jobs.plan.control import Pin
from millrace_jobs.plan.plan_source import FixedPlan
from millrace_jobs.queries.compile import compile_query
from millrace_jobs.session import local_session
from millrace_jobs.sources.replay.connector import ReplaySource

STATE_PARTITIONS = 2
WARM_UP = 4
SETTINGS_TO_WARM_UP = 3
COUNTED = 4
QUIET = 0.2
"""Cores that other processes may take. Above that, a point is measured again, ``TRIES`` times in total."""
TRIES = 3


@dataclass
class TimedReports:
    """A watcher of a run that records the processor time at the end of each batch."""

    reports: list[BatchReport] = field(default_factory=list)
    ends: list[tuple[float, float, float]] = field(default_factory=list)

    def batch(self, report: BatchReport) -> None:
        """Record the report if the batch had records."""
        if report.rows:
            self.reports.append(report)
            self.ends.append((time.monotonic(), own_seconds(), machine_seconds()))

    def message(self, text: str) -> None:
        """Do nothing: messages are not measured."""

    def idle(self, pin: Pin) -> None:
        """Do nothing: idle time is not measured."""


class ScalingBench:
    """A benchmark that runs one setting after the other in one Spark session."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder = spark, folder

    def measure(self, setting: PointSetting, number: int) -> Point:
        """Run a query at one setting, and return the measured point."""
        job = JOBS[setting.job]
        source = self._source(job, setting)
        checkpoint = Checkpoint(Path(tempfile.mkdtemp(dir=self._folder)))
        checkpoint.open(job.query)
        plan = Plan(
            epoch=1,
            algorithm=Algorithm(job.algorithm),
            replicas=setting.replicas,
            parallelism=setting.parallelism,
        )
        timed = TimedReports()
        compiled = compile_query(self._spark, job.query.spec, {job.source: source.schema})
        run_to_the_end(self._spark, job.query, compiled, source, checkpoint, FixedPlan(plan), timed)
        return Point(setting, _measured(timed, number))

    def _source(self, job: MeasuredJob, setting: PointSetting) -> ReplaySource:
        path = self._folder / f"{job.stream.__name__}-{setting.skew}-{setting.rows}.parquet"
        if not path.exists():
            pq.write_table(job.stream(setting.rows, WARM_UP + COUNTED, setting.skew), path)
        return recording(path, self._folder / "cache", setting.rows, job.source, job.time_column)


def _measured(timed: TimedReports, number: int) -> Measured:
    reports = timed.reports[-COUNTED:]
    elapsed, busy, machine = (b - a for a, b in zip(timed.ends[-COUNTED - 1], timed.ends[-1], strict=True))

    def typical(values: Iterator[float]) -> float:
        return round(statistics.median(values), 6)

    return Measured(
        round=number,
        seconds=typical(report.seconds for report in reports),
        batches=tuple(report.seconds for report in reports),
        first=timed.reports[0].seconds,
        route_tasks=len(reports[-1].route),
        route_seconds=typical(sum(report.route) for report in reports),
        combine_tasks=len(reports[-1].combine),
        combine_seconds=typical(sum(report.combine) for report in reports),
        merge_seconds=typical(report.merge_seconds for report in reports),
        groups=typical(sum(task.groups for task in report.combined) for report in reports),
        updates=typical(report.state_updates for report in reports),
        keys=typical(report.distinct_keys or 0 for report in reports),
        imbalance=typical(max(r.worker_rows) / statistics.mean(r.worker_rows) - 1 for r in reports),
        busy=round(busy / COUNTED, 3),
        others=round((machine - busy) / elapsed, 3),
    )


def _quietest(bench: ScalingBench, setting: PointSetting, number: int) -> Point:
    tried: list[Point] = []
    while len(tried) < TRIES:
        tried.append(bench.measure(setting, number))
        if tried[-1].measured.others <= QUIET:
            break
    return min(tried, key=lambda point: point.measured.others)


def _to_warm_up(order: Sequence[PointSetting]) -> list[PointSetting]:
    """Return ``SETTINGS_TO_WARM_UP`` settings per job, because the JVM compiles for over a minute of batches."""
    by_job: dict[str, list[PointSetting]] = {}
    for setting in order:
        by_job.setdefault(setting.job, []).append(setting)
    return [setting for some in by_job.values() for setting in some[-SETTINGS_TO_WARM_UP:]]


def measure(settings: Mapping[int, Sequence[PointSetting]], rounds: int, path: Path) -> None:
    """Measure all settings, given by the cores of their session, once per round. Write each point as it is measured."""
    points: list[Point] = []
    shuffled = random.Random(7)
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as name:
        folder = Path(name)
        for number in range(rounds):
            for cores, some in settings.items():
                spark = local_session(
                    "bench", STATE_PARTITIONS, {"spark.master": f"local[{cores}]"}, folder, quiet=True
                )
                bench = ScalingBench(spark, folder)
                order = shuffled.sample(some, len(some))
                bind(os.cpu_count() or cores)
                for setting in _to_warm_up(order):
                    bench.measure(setting, number)
                bind(cores)
                for setting in order:
                    points.append(_quietest(bench, setting, number))
                    write_points(points, path)
                    print(f"{len(points)}: {points[-1]}", file=sys.stderr, flush=True)
                spark.stop()


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path, default=RECORDED)
    options = parser.parse_args()
    by_cores: dict[int, list[PointSetting]] = {}
    for setting in grid():
        by_cores.setdefault(setting.cores, []).append(setting)
    measure(by_cores, options.rounds, options.json)


if __name__ == "__main__":
    main()
