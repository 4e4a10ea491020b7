"""Measure how long the results of a running query pause while its state is repartitioned, and what that takes.

    python -m bench.repartition [--keys 1000000] [--rate 5000] [--interval 1s] [--rounds 3] [--json FILE]

A query counts records by key. Its state has all keys on 4 partitions before it runs. Then it gets RATE records a second
of random keys, in a batch each interval, and `millrace state repartition` changes its partitions to 8. The pause is the
time between the result files of the last batch before the switch and the first one after it, beside the median time
between two files before the command. At the end, the newest results of all keys are added up: they are all records.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.arriving_files import ArrivingFiles, counted_records, written_batches
from bench.processes import MILLRACE, exit_on_sigterm, millrace, running
from lab.waiting import wait_until

BEFORE, AFTER = 4, 8
_SETTLED = 8
"""Batches after which a query that has just started is measured."""


@dataclass(frozen=True)
class RepartitionFigure:
    """One round; times in seconds. ``repeated`` is the number of batches that the copy had to repeat.

    ``load`` is the machine's load average in the minute before the command ended: a pause on a busy machine is longer.
    """

    keys: int
    command: float
    copied: float
    repeated: int
    interval: float
    during: float
    pause: float
    load: float


@dataclass(frozen=True)
class RepartitionBench:
    """Rounds in folders of their own, with this many keys, records a second, and time between two batches."""

    keys: int
    rate: int
    interval: str

    def round(self, folder: Path, seed: int) -> RepartitionFigure:
        """Run a query, repartition its state, and check its results."""
        feed = ArrivingFiles(folder / "inbox", self.keys, np.random.default_rng(seed))
        feed.fill()
        file, out, log = folder / "query.json", folder / "out", folder / "log"
        file.write_text(json.dumps(self._query(feed, folder)), encoding="utf-8")
        millrace("run", "--once", str(file))
        millrace("state", "repartition", str(file), "--partitions", str(BEFORE))
        with running([MILLRACE, "run", str(file)], log) as process:
            with feed.arriving(self.rate):
                wait_until(lambda: len(written_batches(out)) > _SETTLED + 1, "the query runs", seconds=900)
                first = len(written_batches(out))
                began = time.time()
                said = millrace("state", "repartition", str(file), "--partitions", str(AFTER))
                took, load = time.time() - began, os.getloadavg()[0]
                more = len(written_batches(out)) + 5
                wait_until(lambda: len(written_batches(out)) > more, "the query goes on", seconds=120)
            wait_until(lambda: counted_records(out) >= feed.records, "all records are in results", seconds=300)
            assert process.poll() is None, log.read_text(encoding="utf-8")
        assert counted_records(out) == feed.records, f"{counted_records(out)} records in results of {feed.records}"
        return self._figure(written_batches(out), first, began, took, said, load)

    def _figure(
        self, times: list[float], first: int, began: float, took: float, said: str, load: float
    ) -> RepartitionFigure:
        gaps = [after - before for before, after in itertools.pairwise(times)]
        before = gaps[first - _SETTLED : first]
        during = [gap for gap, end in zip(gaps, times[1:], strict=True) if began < end < began + took]
        around = [gap for gap, end in zip(gaps, times[1:], strict=True) if began + took - 30 < end < began + took + 15]
        copied = float(said.split(" partitions in ")[1].split()[0])
        repeated = int(said.split("repeated ")[1].split()[0])
        interval, slowed = statistics.median(before), statistics.median(during)
        return RepartitionFigure(self.keys, took, copied, repeated, interval, slowed, max(around), load)

    def _query(self, feed: ArrivingFiles, folder: Path) -> dict[str, object]:
        spec = {
            "sources": {"events": feed.source},
            "query": {"sql": "SELECT key, count(*) AS n, sum(value) AS total FROM events GROUP BY key"},
            "sink": {"files": {"path": str(folder / "out"), "format": "parquet"}},
            "batchInterval": self.interval,
            "parallelism": {"initial": 2, "max": 8},
            "checkpoint": {"uri": (folder / "checkpoint").as_uri()},
        }
        metadata = {"name": "repartitioned"}
        return {"apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery", "metadata": metadata, "spec": spec}


def show(figures: list[RepartitionFigure], console: Console) -> None:
    """Print a row for each round."""
    table = Table(
        "keys", "command s", "copy s", "batches repeated", "batch s", "during s", "pause s", "pause batches", "load"
    )
    for each in figures:
        table.add_row(
            f"{each.keys:,}",
            f"{each.command:.1f}",
            f"{each.copied:.1f}",
            str(each.repeated),
            f"{each.interval:.2f}",
            f"{each.during:.2f}",
            f"{each.pause:.2f}",
            f"{each.pause / each.interval:.1f}",
            f"{each.load:.0f}",
        )
    console.print(table)


def main() -> None:
    """Measure the rounds that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rate", type=int, default=5_000)
    parser.add_argument("--interval", default="1s")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    exit_on_sigterm()
    bench, figures = RepartitionBench(chosen.keys, chosen.rate, chosen.interval), []
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as name:
        for number in range(chosen.rounds):
            figures.append(bench.round(Path(name, str(number)), number))
    show(figures, Console(width=120))
    if chosen.json is not None:
        chosen.json.write_text(json.dumps([asdict(each) for each in figures], indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
