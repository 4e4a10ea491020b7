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
import subprocess
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from bench.processes import MILLRACE, exit_on_sigterm, running
from lab.waiting import wait_until

BEFORE, AFTER = 4, 8
_FILES_A_SECOND = 4
_SETTLED = 8
"""Batches after which a query that has just started is measured."""

_FILE_RECORDS = 250_000


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


@dataclass
class Feed:
    """The records of the query, as files in its folder."""

    inbox: Path
    keys: int
    chance: np.random.Generator
    records: int = 0
    files: int = 0

    def fill(self) -> None:
        """Write a record of each key."""
        for first in range(0, self.keys, _FILE_RECORDS):
            self.write(np.arange(first, min(first + _FILE_RECORDS, self.keys)))

    def write(self, numbers: NDArray[np.int64]) -> None:
        """Write a file with a record of each of these keys."""
        partial = self.inbox.parent / "arriving"
        pq.write_table(pa.table({"key": pa.array(numbers).cast(pa.string()), "value": pa.array(numbers)}), partial)
        partial.rename(self.inbox / f"{self.files:08d}.parquet")
        self.files += 1
        self.records += len(numbers)

    def run(self, rate: int, ended: threading.Event) -> None:
        """Write files at a rate in records a second until the event."""
        due = time.monotonic()
        while not ended.wait(max(0.0, due - time.monotonic())):
            self.write(self.chance.integers(0, self.keys, rate // _FILES_A_SECOND))
            due += 1 / _FILES_A_SECOND


@dataclass(frozen=True)
class RepartitionBench:
    """Rounds in folders of their own, with this many keys, records a second, and time between two batches."""

    keys: int
    rate: int
    interval: str

    def round(self, folder: Path, seed: int) -> RepartitionFigure:
        """Run a query, repartition its state, and check its results."""
        feed = Feed(folder / "inbox", self.keys, np.random.default_rng(seed))
        feed.inbox.mkdir(parents=True)
        feed.fill()
        file, out, log = folder / "query.json", folder / "out", folder / "log"
        file.write_text(json.dumps(self._query(folder)), encoding="utf-8")
        _millrace("run", "--once", str(file))
        _millrace("state", "repartition", str(file), "--partitions", str(BEFORE))
        ended = threading.Event()
        feeding = threading.Thread(target=feed.run, args=(self.rate, ended))
        with running([MILLRACE, "run", str(file)], log) as process:
            feeding.start()
            try:
                wait_until(lambda: len(_written(out)) > _SETTLED + 1, "the query runs", seconds=900)
                first = len(_written(out))
                began = time.time()
                said = _millrace("state", "repartition", str(file), "--partitions", str(AFTER))
                took, load = time.time() - began, os.getloadavg()[0]
                more = len(_written(out)) + 5
                wait_until(lambda: len(_written(out)) > more, "the query goes on", seconds=120)
            finally:
                ended.set()
                feeding.join()
            wait_until(lambda: _counted(out) >= feed.records, "all records are in results", seconds=300)
            assert process.poll() is None, log.read_text(encoding="utf-8")
        assert _counted(out) == feed.records, f"{_counted(out)} records in results of {feed.records}"
        return self._figure(_written(out), first, began, took, said, load)

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

    def _query(self, folder: Path) -> dict[str, object]:
        spec = {
            "sources": {
                "events": {
                    "files": {"path": str(folder / "inbox"), "format": "parquet"},
                    "schema": "key STRING, value BIGINT",
                }
            },
            "query": {"sql": "SELECT key, count(*) AS n, sum(value) AS total FROM events GROUP BY key"},
            "sink": {"files": {"path": str(folder / "out"), "format": "parquet"}},
            "batchInterval": self.interval,
            "parallelism": {"initial": 2, "max": 8},
            "checkpoint": {"uri": (folder / "checkpoint").as_uri()},
        }
        metadata = {"name": "repartitioned"}
        return {"apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery", "metadata": metadata, "spec": spec}


def _millrace(*arguments: str) -> str:
    done = subprocess.run([MILLRACE, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"millrace {' '.join(arguments)}: {done.stdout}{done.stderr}")
    return done.stdout


def _written(out: Path) -> list[float]:
    """Return when the last file of each batch with results was written, in seconds since 1970."""
    times: dict[str, float] = {}
    for file in out.glob("batch-*.parquet"):
        batch = file.name.split("-")[1]
        times[batch] = max(file.stat().st_mtime, times.get(batch, 0.0))
    return sorted(times.values())


def _counted(out: Path) -> int:
    """Return the records that the newest results of all keys count, each key once."""
    files = out / "batch-*.parquet"
    newest = f"SELECT key, arg_max(n, _batch_id) AS n FROM read_parquet('{files}') GROUP BY key"
    with duckdb.connect(config={"memory_limit": "1GB"}) as connection:
        found = connection.execute(f"SELECT sum(n) FROM ({newest})").fetchone()
    assert found is not None
    return int(found[0])


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
