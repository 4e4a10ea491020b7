"""Measure what automatic snapshots cost: their time and size, and how much longer a batch beside one takes.

    python -m bench.snapshots [--keys 1000000] [--rate 20000] [--rounds 8] [--json FILE]

A query counts generated records by key, one batch in two seconds, on four state partitions, with its checkpoint in a
folder. Once it has seen nearly all keys, rounds alternate in the same run: one of batches alone, and one during which
a process takes a snapshot, the same as that of a driver. A snapshot's own bytes are those that it has not linked.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.processes import MILLRACE, exit_on_sigterm, running
from millrace_api.errors import MillraceError
from millrace_jobs.checkpoint.snapshot_process import SnapshotProcess
from millrace_jobs.checkpoint.snapshots import SnapshotReason, place_of_snapshot
from millrace_jobs.places import files_below, within
from millrace_support.run_record import BatchLine, read_record

_INTERVAL = 2.0
_PARTITIONS = 4
_PATIENCE = 900.0
_KEPT = 1000


@dataclass(frozen=True)
class SnapshotFigure:
    """A snapshot: seconds of the copying, and of the whole process; bytes of all its files, and of its own."""

    seconds: float
    process_seconds: float
    bytes: int
    own_bytes: int
    files: int


@dataclass(frozen=True)
class SnapshotBench:
    """A run of the query, whose record has its batches."""

    root: Path
    log: Path
    record: Path

    def batches(self) -> dict[int, float]:
        """Return the seconds of each finished batch."""
        try:
            lines = read_record(self.record)
        except MillraceError:  # it is not begun yet
            return {}
        return {line.figures.batch: line.figures.seconds for line in lines if isinstance(line, BatchLine)}

    def wait_for(self, batch: int) -> None:
        """Wait until a batch is finished."""
        deadline = time.monotonic() + _PATIENCE
        while max(self.batches(), default=-1) < batch:
            if time.monotonic() > deadline:
                raise RuntimeError(f"batch {batch} does not end: {self.log.read_text(encoding='utf-8')[-2000:]}")
            time.sleep(0.5)

    def alone(self) -> list[float]:
        """Return the seconds of two batches that run without a snapshot, after one that may have had one."""
        first = max(self.batches()) + 2
        self.wait_for(first + 1)
        found = self.batches()
        return [found[first], found[first + 1]]

    def beside(self) -> tuple[SnapshotFigure, list[float]]:
        """Take a snapshot; return it with the seconds of the batches that ran beside it."""
        first, began = max(self.batches()) + 1, time.monotonic()
        outcome = SnapshotProcess(self.root, SnapshotReason.SCHEDULE, _KEPT, None).outcome(lambda: False)
        seconds = time.monotonic() - began
        if outcome is None or outcome.name is None or not outcome.is_new:
            raise RuntimeError(f"no snapshot was taken: {outcome}")
        self.wait_for(max(self.batches()) + 1)
        found, place = self.batches(), place_of_snapshot(self.root, outcome.name)
        sizes = dict(files_below(place))
        own = 0
        for name, size in sizes.items():
            file = within(place, name)
            own += size if isinstance(file, Path) and file.stat().st_nlink == 1 else 0
        figure = SnapshotFigure(outcome.seconds, seconds, sum(sizes.values()), own, len(sizes))
        return figure, [found[number] for number in range(first, max(found) + 1)]


def _query(folder: Path, keys: int, rate: int) -> dict[str, object]:
    spec = {
        "sources": {"s": {"rate": {"recordsPerSecond": rate, "keys": keys}}},
        "query": {"sql": "SELECT key, count(*) AS n FROM s GROUP BY key"},
        "sink": {"files": {"path": str(folder / "results")}},
        "batchInterval": f"{_INTERVAL:.0f}s",
        "parallelism": {"initial": _PARTITIONS, "max": _PARTITIONS},
        "partitioner": {"algorithm": "native"},
        "checkpoint": {"uri": (folder / "checkpoint").as_uri()},
    }
    return {"apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery", "metadata": {"name": "counts"}, "spec": spec}


def show(snapshots: list[SnapshotFigure], alone: list[float], beside: list[float], console: Console) -> None:
    """Print the first, the second and the median snapshot, and the ratio of the batches beside them to the others."""
    table = Table("snapshot", "s", "s with its process", "MiB", "MiB of its own", "files")
    rows = {"first": snapshots[0], "second": snapshots[1]}
    for name, each in rows.items():
        sizes = [f"{size / (1 << 20):.1f}" for size in (each.bytes, each.own_bytes)]
        table.add_row(name, f"{each.seconds:.2f}", f"{each.process_seconds:.2f}", *sizes, str(each.files))
    console.print(table)
    ratio = statistics.median(beside) / statistics.median(alone)
    for name, times in (("alone", alone), ("beside a snapshot", beside)):
        spread = f"{min(times):.2f} to {max(times):.2f}"
        console.print(f"batches {name}: {statistics.median(times):.2f} s ({spread}, {len(times)} batches)")
    console.print(f"a batch beside a snapshot takes {ratio:.2f} times as long")


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rate", type=int, default=20_000, help="records per second")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--json", type=Path, help="file for the figures of all rounds")
    options = parser.parse_args()
    exit_on_sigterm()
    snapshots: list[SnapshotFigure] = []
    alone: list[float] = []
    beside: list[float] = []
    with tempfile.TemporaryDirectory(prefix="millrace-snapshots-") as name:
        folder = Path(name)
        (folder / "query.json").write_text(json.dumps(_query(folder, options.keys, options.rate)), encoding="utf-8")
        bench = SnapshotBench(folder / "checkpoint", folder / "log", folder / "record")
        command: list[str | Path] = [MILLRACE, "run", str(folder / "query.json"), "--record", str(bench.record)]
        with running(command, bench.log):
            bench.wait_for(int(3 * options.keys / options.rate / _INTERVAL))  # 95 % of the keys
            for _ in range(options.rounds):
                alone += bench.alone()
                snapshot, times = bench.beside()
                snapshots.append(snapshot)
                beside += times
                print(json.dumps(asdict(snapshot)), flush=True)
    show(snapshots, alone, beside, Console(width=120))
    if options.json:
        figures = {"snapshots": [asdict(each) for each in snapshots], "alone": alone, "beside": beside}
        options.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
