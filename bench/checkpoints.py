"""Measure what a checkpoint in S3 costs a query beside one in a folder: the time of small batches, and requests.

    python -m bench.checkpoints [--rounds 3] [--latencies 0,20,80] [--rows 1000] [--seconds 90] [--json FILE]

A query counts generated records by key in windows, one batch a second, on two state partitions. Its checkpoint is in a
folder, or in an S3 server on this machine whose answers come later by some milliseconds. Each turn starts the query
again, as a user does; rounds are interleaved. Batch times are those of the last half of a turn.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.processes import MILLRACE, exit_on_sigterm, running
from lab.parts.maven_jars import S3_JARS
from lab.s3_server import BUCKET, S3Server, running_s3
from lab.store_proxy import Disturbance
from millrace_jobs.stores.spark import S3_CLIENT

FOLDER = "folder"
ALGORITHMS = ("native", "pkg")
_SQL = "SELECT window.start AS since, key, count(*) AS n FROM s GROUP BY window(timestamp, '10 seconds'), key"
_LINE = re.compile(r"^batch=\d+ rows=(\d+) .*?W=(\S+)", re.MULTILINE)
_PATIENCE = 300.0


@dataclass(frozen=True)
class CheckpointFigure:
    """One turn: ``place`` is the folder, or the latency in milliseconds of the S3; ``batch`` is a median in them."""

    algorithm: str
    place: str
    batch: float
    requests: dict[str, float]


@dataclass(frozen=True)
class CheckpointBench:
    """All turns of a run, on one server."""

    server: S3Server
    folder: Path
    rows: int
    seconds: float

    def turn(self, algorithm: str, place: str, number: int) -> CheckpointFigure:
        """Run the query once and measure it."""
        name = f"{algorithm}-{place}-{number}"
        file, log = self.folder / f"{name}.json", self.folder / f"{name}.log"
        file.write_text(json.dumps(self._query(name, algorithm, place)), encoding="utf-8")
        with self._answering(place), running([MILLRACE, "run", str(file)], log):
            deadline = time.monotonic() + _PATIENCE
            while not _LINE.search(log.read_text(encoding="utf-8")):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{name} has no batch: {log.read_text(encoding='utf-8')[-2000:]}")
                time.sleep(0.2)
            time.sleep(self.seconds / 2)
            batches, before = _batches(log), self.server.requests
            time.sleep(self.seconds / 2)
            measured, made = _batches(log)[len(batches) :], self.server.requests - before
        return CheckpointFigure(
            algorithm,
            place,
            statistics.median(w * 1000 for rows, w in measured if rows),
            {kind: number / len(measured) for kind, number in sorted(made.items())},
        )

    @contextmanager
    def _answering(self, place: str) -> Iterator[None]:
        seconds = 0.0 if place == FOLDER else float(place) / 1000
        with self.server.disturbed(lambda _: Disturbance(seconds=seconds)):
            yield

    def _query(self, name: str, algorithm: str, place: str) -> dict[str, object]:
        uri = f"file://{self.folder}/{name}" if place == FOLDER else f"s3a://{BUCKET}/{name}"
        spec = {
            "sources": {
                "s": {
                    "rate": {"recordsPerSecond": self.rows, "keys": 100},
                    "watermark": {"column": "timestamp", "delay": "5s"},
                }
            },
            "query": {"sql": _SQL},
            "sink": {"files": {"path": f"{self.folder}/{name}-out", "format": "parquet"}},
            "batchInterval": "1s",
            "parallelism": {"initial": 2, "max": 2},
            "partitioner": {"algorithm": algorithm, "replicas": {"initial": 1}},
            "checkpoint": {"uri": uri},
        }
        return {"apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery", "metadata": {"name": name}, "spec": spec}


def _batches(log: Path) -> list[tuple[int, float]]:
    return [(int(rows), float(w)) for rows, w in _LINE.findall(log.read_text(encoding="utf-8"))]


def show(figures: list[CheckpointFigure], console: Console) -> None:
    """Print the median of the rounds, their range, the ratio to the folder, and the requests of a batch."""
    table = Table("algorithm", "checkpoint", "ms of a batch", "rounds", "x folder", "requests of a batch")
    groups = {(each.algorithm, each.place): None for each in figures}
    folders = {
        name: statistics.median(each.batch for each in figures if (each.algorithm, each.place) == (name, FOLDER))
        for name in {algorithm for algorithm, _ in groups}
    }
    for algorithm, place in groups:
        found = [each for each in figures if (each.algorithm, each.place) == (algorithm, place)]
        times, total = [each.batch for each in found], Counter[str]()
        for each in found:
            total.update(each.requests)
        made = ", ".join(f"{number / len(found):.1f} {kind}" for kind, number in sorted(total.items()))
        named = place if place == FOLDER else f"S3, + {place} ms"
        median = statistics.median(times)
        span = f"{min(times):.0f} to {max(times):.0f}"
        table.add_row(algorithm, named, f"{median:.0f}", span, f"{median / folders[algorithm]:.2f}", made)
    console.print(table)


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latencies", default="0,20,80", help="milliseconds by which answers of the store come later")
    parser.add_argument("--algorithms", default=",".join(ALGORITHMS))
    parser.add_argument("--rows", type=int, default=1000, help="records per second, and of a batch")
    parser.add_argument("--seconds", type=float, default=90.0, help="length of a turn after its first batch")
    parser.add_argument("--json", type=Path, help="file for the figures of all rounds")
    options = parser.parse_args()
    exit_on_sigterm()
    figures = []
    with tempfile.TemporaryDirectory(prefix="millrace-checkpoints-") as name, running_s3(Path(name)) as server:
        os.environ.update(server.environment | {S3_CLIENT.variable: str(S3_JARS.find())})
        bench = CheckpointBench(server, Path(name), options.rows, options.seconds)
        for number in range(options.rounds):
            for algorithm in options.algorithms.split(","):
                for place in (FOLDER, *options.latencies.split(",")):
                    figures.append(bench.turn(algorithm, place, number))
                    print(json.dumps(asdict(figures[-1])), flush=True)
    show(figures, Console(width=150))
    if options.json:
        options.json.write_text(json.dumps([asdict(each) for each in figures], indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
