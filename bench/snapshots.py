"""Measure what automatic snapshots cost: their time and size, and how much longer a batch beside one takes.

    python -m bench.snapshots [--keys 1000000] [--records 20000] [--rounds 8] [--json FILE]

A query counts the records of files by key, a file in each batch, on four state partitions, with its checkpoint in a
folder. The first file has every key. Then rounds alternate in one run: batches alone, and batches during which a
process takes a snapshot, the same as that of a driver. A snapshot's own bytes are those that it has not linked.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from bench.processes import MILLRACE, exit_on_sigterm, running
from millrace_api.errors import MillraceError
from millrace_jobs.checkpoint.snapshot_manifest import SnapshotReason
from millrace_jobs.checkpoint.snapshot_process import SnapshotOrder, SnapshotProcess
from millrace_jobs.checkpoint.snapshots import place_of_snapshot
from millrace_jobs.places import files_below, within
from millrace_support.run_record import BatchLine, read_record

_PARTITIONS = 4
_FILES = 500
"""Files after the first one: more than there are batches in the rounds."""
_PATIENCE = 900.0
_KEPT = 1000
_WARM = 10
"""Batch after which the rounds begin."""


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
        outcome = SnapshotProcess(self.root, SnapshotOrder(SnapshotReason.SCHEDULE, _KEPT)).outcome(lambda: False)
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


def write_input(folder: Path, numbers: Iterable[int], keys: int, records: int) -> None:
    """Write files of the input: number 0 has each key once, the others records of keys in no order."""
    folder.mkdir(exist_ok=True)
    for number in numbers:
        chosen = np.arange(keys) if number == 0 else np.random.default_rng(number).integers(0, keys, records)
        unfinished = folder / f".{number:04d}"
        pq.write_table(pa.table({"key": pa.array(chosen).cast(pa.string())}), unfinished)
        unfinished.rename(folder / f"{number:04d}.parquet")


def _query(folder: Path) -> dict[str, object]:
    files = {"path": f"{folder}/input/*.parquet", "format": "parquet", "maxFilesPerBatch": 1}
    spec = {
        "sources": {"s": {"files": files, "schema": "key STRING"}},
        "query": {"sql": "SELECT key, count(*) AS n FROM s GROUP BY key"},
        "sink": {"files": {"path": str(folder / "results")}},
        "batchInterval": "2s",
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
    parser.add_argument("--records", type=int, default=20_000, help="records of a batch")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--json", type=Path, help="file for the figures of all rounds")
    options = parser.parse_args()
    exit_on_sigterm()
    snapshots: list[SnapshotFigure] = []
    alone: list[float] = []
    beside: list[float] = []
    with tempfile.TemporaryDirectory(prefix="millrace-snapshots-") as name:
        folder = Path(name)
        query, given = str(folder / "query.json"), folder / "input"
        first_run: list[str | Path] = [MILLRACE, "run", query, "--once"]
        change: list[str | Path] = [MILLRACE, "state", "repartition", query, "--partitions", str(_PARTITIONS)]
        Path(query).write_text(json.dumps(_query(folder)), encoding="utf-8")
        write_input(given, range(1), options.keys, options.records)
        for command in (first_run, change):
            with running(command, folder / "log") as process:
                if process.wait():
                    raise RuntimeError((folder / "log").read_text(encoding="utf-8")[-2000:])
        write_input(given, range(1, _FILES), options.keys, options.records)
        bench = SnapshotBench(folder / "checkpoint", folder / "log", folder / "record")
        with running([MILLRACE, "run", query, "--record", str(bench.record)], bench.log):
            bench.wait_for(_WARM)
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
