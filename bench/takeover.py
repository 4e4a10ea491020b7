"""Measure how long results pause while another version of a query takes over in its process.

    python -m bench.takeover [--keys 50] [--rate 2000] [--interval 1s] [--rounds 5] [--seconds 20] [--json FILE]

A query counts records by key in batches of an interval. It reads and writes files, and its state has all keys before it
is measured. Every SECONDS another version with the same meaning takes over, on the same Spark, as in a driver's pod.
The pause is the time between the result files of the last batch of the one and the first batch of the other, beside the
median time between two batches of one version. At the end, the newest results of all keys are added up: they are all
records.
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

import numpy as np
import yaml
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from bench.arriving_files import ArrivingFiles, counted_records, written_batches
from bench.processes import millrace
from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.run.job import Job
from millrace_jobs.run.platform import OneProcess
from millrace_jobs.run.query_file import query_of
from millrace_jobs.session import following_session

VERSIONS = (
    "SELECT key, count(*) AS n, sum(value) AS total FROM events GROUP BY key",
    "select key,\n       count(*) as n,\n       sum(value) as total\nfrom events group by key",
)
_SETTLED = 5
"""Batches of a version that do not count, since it has just started."""


@dataclass(frozen=True)
class TakeoverFigure:
    """One takeover; times in seconds. ``interval`` is the median time between results of the version before."""

    keys: int
    interval: float
    pause: float
    load: float


class AlternatingVersions(OneProcess):
    """A platform on which a version gives way when its time is over, and the next one has the same Spark."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds
        self._spark: SparkSession | None = None

    def session(self, query: StreamQuery, partitions: int, workspace: Path, *, quiet: bool) -> SparkSession:
        """Return a session of the same Spark for each version."""
        if self._spark is None:
            self._spark = super().session(query, partitions, workspace, quiet=quiet)
        else:
            self._spark = following_session(self._spark, partitions)
        return self._spark

    def when_replaced(self, give_way: Callable[[], None]) -> None:
        """Have the version give way after its time."""
        timer = threading.Timer(self._seconds, give_way)
        timer.daemon = True
        timer.start()


@dataclass(frozen=True)
class TakeoverBench:
    """Takeovers in a folder, of a query with this many keys, records a second, and time between two batches."""

    folder: Path
    feed: ArrivingFiles
    interval: str
    seconds: float

    def measure(self, rate: int, rounds: int) -> list[TakeoverFigure]:
        """Run the versions in turn while records arrive, and return the figures of each takeover."""
        self.feed.fill()
        platform, before = AlternatingVersions(self.seconds), None
        given_way, loads = [time.time()], []
        with self.feed.arriving(rate):
            for number in range(rounds + 1):
                job = Job(query_of(self._file(number)), platform)
                if before is not None:
                    job.follow(before)
                before = job
                with job:
                    job.run()
                    given_way.append(time.time())
                    loads.append(os.getloadavg()[0])
                    if number == rounds:
                        job.stop()
        millrace("run", "--once", str(self._file(rounds)))
        assert counted_records(self._out) == self.feed.records, "not each record is counted once"
        versions = zip(given_way, given_way[1:], loads[:rounds], strict=False)
        return [self._figure(began, ended, load) for began, ended, load in versions]

    def _figure(self, began: float, ended: float, load: float) -> TakeoverFigure:
        """Return the figure of a takeover from a version that ran between these times."""
        times = written_batches(self._out)
        own = [each for each in times if began < each <= ended]
        gaps = [later - earlier for earlier, later in itertools.pairwise(own)]
        after = next(each for each in times if each > ended)
        return TakeoverFigure(self.feed.keys, statistics.median(gaps[_SETTLED:] or gaps), after - own[-1], load)

    @property
    def _out(self) -> Path:
        return self.folder / "results"

    def _file(self, number: int) -> Path:
        spec = {
            "sources": {"events": self.feed.source},
            "query": {"sql": VERSIONS[number % len(VERSIONS)]},
            "sink": {"files": {"path": str(self._out)}},
            "batchInterval": self.interval,
            "parallelism": {"initial": 2, "max": 8},
            "checkpoint": {"uri": (self.folder / "checkpoint").as_uri()},
        }
        document = {"apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery", "metadata": {"name": "counts"}}
        file = self.folder / f"{number}.yaml"
        file.write_text(yaml.safe_dump(document | {"spec": spec}), encoding="utf-8")
        return file


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=50)
    parser.add_argument("--rate", type=int, default=2000)
    parser.add_argument("--interval", default="1s")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as name:
        feed = ArrivingFiles(Path(name, "inbox"), given.keys, np.random.default_rng(0))
        bench = TakeoverBench(Path(name), feed, given.interval, given.seconds)
        figures = bench.measure(given.rate, given.rounds)
    table = Table("takeover", "keys", "results every, s", "pause, s", "in batches", "load")
    for number, each in enumerate(figures, 1):
        batches = f"{each.pause / each.interval:.1f}"
        table.add_row(
            str(number), f"{each.keys:,}", f"{each.interval:.2f}", f"{each.pause:.2f}", batches, f"{each.load:.1f}"
        )
    Console().print(table)
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(each) for each in figures]), encoding="utf-8")


if __name__ == "__main__":
    main()
