"""Measure how long results pause while another version of a query takes over in its process.

    python -m bench.takeover [--interval 1s] [--rate 2000] [--rounds 5] [--seconds 20] [--json FILE]

A query counts records by key in batches of an interval, and writes result files. Every SECONDS another version with the
same meaning takes over, on the same Spark, as in a driver's pod. The pause is the time between the result files of the
last batch of the one and the first batch of the other, beside the median time between two files of one version.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.pipeline.progress import BatchReport
from millrace_jobs.run.job import Job
from millrace_jobs.run.platform import OneProcess
from millrace_jobs.run.query_file import query_of
from millrace_jobs.session import following_session

VERSIONS = (
    "SELECT key, count(*) AS records FROM events GROUP BY key",
    "select key,\n       count(*) as records\nfrom events group by key",
)
_SETTLED = 5
"""Batches of a version that do not count, since it has just started."""


@dataclass(frozen=True)
class TakeoverFigure:
    """One takeover; times in seconds. ``interval`` is the median time between results of the version before."""

    interval: float
    pause: float
    load: float


class TimedVersions(OneProcess):
    """A platform on which one version takes over from the other, which notes when their results are there."""

    def __init__(self, seconds: float, results: Path) -> None:
        super().__init__()
        self._seconds, self._results = seconds, results
        self._spark: SparkSession | None = None
        self.times: list[list[float]] = []
        """Times of the newest result file after each batch, by version."""

    def session(self, query: StreamQuery, partitions: int, workspace: Path, *, quiet: bool) -> SparkSession:
        """Return a session of the same Spark for each version."""
        if self._spark is None:
            self._spark = super().session(query, partitions, workspace, quiet=quiet)
        else:
            self._spark = following_session(self._spark, partitions)
        return self._spark

    def when_replaced(self, give_way: Callable[[], None]) -> None:
        """Have the version give way after its time."""
        self.times.append([])
        timer = threading.Timer(self._seconds, give_way)
        timer.daemon = True
        timer.start()

    def batch(self, report: BatchReport) -> None:
        """Note the time of the results of a batch."""
        newest = max((each.stat().st_mtime for each in self._results.glob("*.parquet")), default=0.0)
        if report.rows and (not self.times[-1] or newest > self.times[-1][-1]):
            self.times[-1].append(newest)


def measure(folder: Path, interval: str, rate: int, rounds: int, seconds: float) -> list[TakeoverFigure]:
    """Run the versions in turn, and return the figures of each takeover."""
    platform, loads = TimedVersions(seconds, folder / "results"), []
    before: Job | None = None
    for number in range(rounds + 1):
        job = Job(query_of(_file(folder, interval, rate, number)), platform)
        if before is not None:
            job.follow(before)
        before = job
        with job:
            job.run()
            loads.append(os.getloadavg()[0])
            if number == rounds:
                job.stop()
    found = []
    for times, after, load in zip(platform.times, platform.times[1:], loads, strict=False):
        gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
        found.append(TakeoverFigure(statistics.median(gaps[_SETTLED:] or gaps), after[0] - times[-1], load))
    return found


def _file(folder: Path, interval: str, rate: int, number: int) -> Path:
    spec = {
        "sources": {"events": {"rate": {"recordsPerSecond": rate, "keys": 50}}},
        "query": {"sql": VERSIONS[number % len(VERSIONS)]},
        "sink": {"files": {"path": str(folder / "results")}},
        "batchInterval": interval,
        "checkpoint": {"uri": (folder / "checkpoint").as_uri()},
    }
    document = {"apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery", "metadata": {"name": "counts"}}
    file = folder / f"{number}.yaml"
    file.write_text(yaml.safe_dump(document | {"spec": spec}), encoding="utf-8")
    return file


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--interval", default="1s")
    parser.add_argument("--rate", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as folder:
        figures = measure(Path(folder), given.interval, given.rate, given.rounds, given.seconds)
    table = Table(
        title=f"batches of {given.interval}, {given.rate:,} records/s, {time.monotonic() - began:.0f} s in all"
    )
    for name in ("takeover", "results every, s", "pause, s", "load"):
        table.add_column(name, justify="right")
    for number, each in enumerate(figures, 1):
        table.add_row(str(number), f"{each.interval:.2f}", f"{each.pause:.2f}", f"{each.load:.1f}")
    Console().print(table)
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(each) for each in figures]))


if __name__ == "__main__":
    main()
