"""``algorithm: auto`` against every fixed choice, over the grid of skew, aggregator, workers and replicas.

    python -m bench.auto [--rows 500000] [--keys 100000] [--json FILE]      predicted by the recorded work
    python -m bench.auto --real [--rows 500000] [--corners a,b] [--plans hash,pkg]    confirmed by queries in Spark

Every algorithm routes the same stream, and the work of each task is recorded. That work and the costs of records and
partial results give the time of a batch. ``auto`` runs as in a job: it sees the reports of its own batches, with noisy
measurements, and knows neither the costs nor the work under other algorithms. Its time includes the start under the
prior and the exchange of Spark's query.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from bench.key_streams import zipf_shares
from millrace_jobs.kernels.mixing import Hashes, seeded_hashes
from millrace_jobs.partitioners.registry import ALGORITHMS, NATIVE, make
from millrace_jobs.selection.costs import (
    TASK_SECONDS,
    CombineTask,
    MeasuredBatch,
    Prior,
    Resources,
    python_prior,
    sql_prior,
)
from millrace_jobs.selection.forecast import Forecaster, starting_algorithm
from millrace_jobs.selection.selector import CANDIDATES, Selector
from millrace_jobs.sketches.key_profile import KeyCounts, KeyProfile, decode, encode, profile, union
from millrace_support.batch_cost import makespan


@dataclass(frozen=True, eq=False)
class RecordedWork:
    """Records and keys of each combine task, both of shape ``(tasks,)``, and the tasks' merged key profile.

    ``route_record`` is the time that the partitioner takes for a record, in seconds of one core.
    """

    rows: NDArray[np.int64]
    keys: NDArray[np.int64]
    profile: KeyProfile
    route_record: float


def zipf_stream(rows: int, keys: int, skew: float, seed: int) -> Hashes:
    """Return the hashes of a stream of ``rows`` records whose keys follow Zipf's law with exponent ``skew``."""
    drawn = np.random.default_rng(seed).choice(keys, size=rows, p=zipf_shares(skew, keys))
    return seeded_hashes(drawn.astype(np.uint64), 1)


def record(stream: Hashes, algorithm: str, workers: int, replicas: int) -> RecordedWork:
    """Route the stream in ``replicas`` slices and record the work. ``native`` combines each slice in place."""
    slices = np.array_split(stream, replicas)
    if algorithm == NATIVE:
        return _work(stream, np.repeat(np.arange(replicas), [len(piece) for piece in slices]), replicas, 0.0)
    _route(algorithm, [slices[0][:1000]], workers)  # compiles
    ids, seconds = _route(algorithm, slices, workers)
    return _work(stream, ids, workers, seconds / len(stream))


def _route(algorithm: str, slices: list[Hashes], workers: int) -> tuple[NDArray[np.int32], float]:
    placed, seconds = [], 0.0
    for replica, piece in enumerate(slices):
        partitioner = make(algorithm, workers=workers, replica=replica, replicas=len(slices), seed=0, parameters={})
        began = time.thread_time()
        placed.append(partitioner.route(piece))
        seconds += time.thread_time() - began
    return np.concatenate(placed), seconds


def _work(stream: Hashes, ids: NDArray[np.integer], tasks: int, route_record: float) -> RecordedWork:
    order = np.argsort(ids, kind="stable")
    ends = np.cumsum(np.bincount(ids, minlength=tasks))
    profiles, keys = [], []
    for part in np.split(stream[order], ends[:-1]):
        counts = KeyCounts(*np.unique(part, return_counts=True))
        profiles.append(decode(encode(profile(counts))))
        keys.append(len(counts))
    rows = np.bincount(ids, minlength=tasks)
    return RecordedWork(rows, np.array(keys), union(profiles), route_record)


SKEWS = (0.0, 0.5, 1.0, 1.5, 2.0)
WORKERS = (4, 16, 64)
REPLICAS = (2, 8)

BATCHES = 200
"""Number of batches in a cell's run."""
SETTLED = 100
"""Number of batches at the end of a run that count as settled."""
RESTART_SECONDS = 2.0
"""Time to exchange Spark's query, which every switch to or from ``native`` needs."""
FIXED_SECONDS = 0.1
"""Time of an empty batch."""
ROUTE_SECONDS = 0.35e-6
"""Time to read a record and hand it on, in seconds of one core, without the partitioner's."""
START_SECONDS = 0.005
"""Time of a combine task without records, in seconds of one core, apart from Spark's ``TASK_SECONDS``."""
SCATTER = 0.03
"""Standard deviation of the logarithm of measured times."""


@dataclass(frozen=True)
class GridAggregator:
    """Costs of an aggregator, in seconds of one core.

    ``record`` and ``group`` are the costs of a record and of a partial result at combine, ``merge`` that of a partial
    result at merge. ``slice_record`` is the cost of a record under Spark's own plan, or None for Python code.
    """

    name: str
    record: float
    group: float
    merge: float
    slice_record: float | None = None


AGGREGATORS = (
    GridAggregator("cheap SQL", 0.05e-6, 0.2e-6, 2e-6, slice_record=0.6e-6),
    GridAggregator("medium", 1e-6, 5e-6, 5e-6),
    GridAggregator("heavy record", 20e-6, 10e-6, 10e-6),
    GridAggregator("heavy key", 2e-6, 100e-6, 50e-6),
)


@dataclass(frozen=True)
class Cell:
    """One cell of the grid: seconds of a batch under the best fixed choice, and how ``auto`` compares with it.

    ``settled_ratio`` compares the times of the last ``SETTLED`` batches. ``whole_ratio`` compares those of all batches,
    with the exchanges of Spark's query. ``within`` is the number of batches after which that ratio is at most 1.05,
    or -1 if it stays above.
    """

    skew: float
    aggregator: str
    workers: int
    replicas: int
    best: str
    best_seconds: float
    chosen: str
    settled_ratio: float
    whole_ratio: float
    within: int
    switches: tuple[str, ...]


class GridCluster:
    """A cluster model that times batches by their recorded work, with one core per worker."""

    def __init__(self, aggregator: GridAggregator, workers: int, replicas: int, rng: np.random.Generator) -> None:
        self._costs, self._workers, self._replicas, self._rng = aggregator, workers, replicas, rng

    def seconds(self, algorithm: str, work: RecordedWork) -> float:
        """Return the time of a batch in seconds, without scatter."""
        rows = float(work.rows.sum())
        merge = self._costs.merge * float(work.keys.sum()) / self._workers
        combine = self._combine(work)
        if algorithm == NATIVE:
            each = combine + ROUTE_SECONDS * work.rows
            if self._costs.slice_record is not None:
                each = self._costs.slice_record * work.rows
            return FIXED_SECONDS + makespan(each, self._workers) + merge
        slices = [self._route(work) * rows / self._replicas] * self._replicas
        return FIXED_SECONDS + makespan(slices, self._workers) + makespan(combine + TASK_SECONDS, self._workers) + merge

    def batch(self, number: int, algorithm: str, work: RecordedWork) -> MeasuredBatch:
        """Return the measurements that the batch reports, with scatter."""
        rows = int(work.rows.sum())
        reports = algorithm != NATIVE or self._costs.slice_record is None
        seconds = self._combine(work) * self._scatter(len(work.rows))
        if algorithm == NATIVE:
            seconds = seconds + ROUTE_SECONDS * work.rows
        return MeasuredBatch(
            number,
            algorithm,
            self._workers,
            self._replicas,
            rows,
            self.seconds(algorithm, work) * float(self._scatter(1)[0]),
            self._route(work) * rows * float(self._scatter(1)[0]) if reports else 0.0,
            self._costs.merge * float(work.keys.sum()) * float(self._scatter(1)[0]),
            work.profile.distinct,
            tuple(map(CombineTask, work.rows.tolist(), work.keys.tolist(), seconds.tolist())) if reports else (),
            work.profile if reports else None,
        )

    def _route(self, work: RecordedWork) -> float:
        return ROUTE_SECONDS + work.route_record

    def _combine(self, work: RecordedWork) -> np.ndarray:
        return START_SECONDS + self._costs.record * work.rows + self._costs.group * work.keys

    def _scatter(self, size: int) -> np.ndarray:
        return np.exp(self._rng.normal(0.0, SCATTER, size))


def run_cell(
    skew: float, aggregator: GridAggregator, workers: int, replicas: int, works: Mapping[str, list[RecordedWork]]
) -> Cell:
    """Run ``auto`` and every fixed choice over the same batches."""
    cluster = GridCluster(aggregator, workers, replicas, np.random.default_rng(5))
    fixed = {
        name: [cluster.seconds(name, recorded[i % len(recorded)]) for i in range(BATCHES)]
        for name, recorded in works.items()
    }
    best = min(fixed, key=lambda name: sum(fixed[name]))
    sql = aggregator.slice_record is not None
    prior: Prior = sql_prior(1) if sql else python_prior()
    forecaster = Forecaster(prior, CANDIDATES)
    first = starting_algorithm(sql=sql, windows=1, grouped=True)
    selector = Selector(forecaster, Resources(workers, workers), first)
    taken, exchanges, switches = [], np.zeros(BATCHES), []
    for number in range(BATCHES):
        algorithm = selector.algorithm
        recorded = works[algorithm]
        taken.append(fixed[algorithm][number])
        switch = selector.observe(cluster.batch(number, algorithm, recorded[number % len(recorded)]))
        if switch is not None:
            switches.append(f"{switch.batch} {switch.before.algorithm}>{switch.after.algorithm}")
            if NATIVE in (switch.before.algorithm, switch.after.algorithm):
                exchanges[number] = RESTART_SECONDS
    return Cell(
        skew,
        aggregator.name,
        workers,
        replicas,
        best,
        float(sum(fixed[best]) / BATCHES),
        selector.algorithm,
        float(sum(taken[-SETTLED:]) / sum(fixed[best][-SETTLED:])),
        float((sum(taken) + exchanges.sum()) / sum(fixed[best])),
        _within(np.array(taken) + exchanges, np.array(fixed[best])),
        tuple(switches),
    )


def _within(taken: np.ndarray, best: np.ndarray) -> int:
    """Return the number of batches after which ``auto`` is at most 5 % slower overall, or -1 if it never is.

    A run that ends too early for that is extrapolated from its last ``SETTLED`` batches.
    """
    lost, settled = float(np.sum(taken - best)), float(np.median(taken[-SETTLED:] - best[-SETTLED:]))
    spare = 0.05 * float(np.mean(best)) - settled
    behind = np.flatnonzero(np.cumsum(taken) > 1.05 * np.cumsum(best))
    if not len(behind):
        return 0
    if behind[-1] < len(best) - 1:
        return int(behind[-1]) + 2
    return -1 if spare <= 0 else round(len(best) + (lost - 0.05 * float(np.sum(best))) / spare)


def run_grid(rows: int, keys: int, skews: Sequence[float], numbers: Sequence[int]) -> Iterator[Cell]:
    """Run all cells. Two batches of each stream are recorded and used in turn."""
    for skew in skews:
        streams = [zipf_stream(rows, keys, skew, seed) for seed in (1, 2)]
        for workers in numbers:
            for replicas in REPLICAS:
                works = {name: [record(stream, name, workers, replicas) for stream in streams] for name in ALGORITHMS}
                for aggregator in AGGREGATORS:
                    yield run_cell(skew, aggregator, workers, replicas, works)


def show(cells: list[Cell], console: Console) -> None:
    """Print the table and the worst ratios."""
    table = Table(title="auto against the best fixed choice, by recorded work")
    columns = (
        "z",
        "aggregator",
        "n",
        "m",
        "best fixed",
        "s/batch",
        "auto",
        "settled",
        "with start",
        "within 5 %",
        "switches",
    )
    for column in columns:
        table.add_column(
            column, justify="right" if column in ("s/batch", "settled", "with start", "within 5 %") else "left"
        )
    for cell in cells:
        table.add_row(
            f"{cell.skew:g}",
            cell.aggregator,
            str(cell.workers),
            str(cell.replicas),
            cell.best,
            f"{cell.best_seconds:.3f}",
            cell.chosen,
            f"{cell.settled_ratio:.3f}",
            f"{cell.whole_ratio:.3f}",
            str(cell.within),
            ", ".join(cell.switches),
        )
    console.print(table)
    for name in ("settled_ratio", "whole_ratio"):
        worst = max(cells, key=lambda cell: getattr(cell, name))
        where = f"z={worst.skew:g}, {worst.aggregator}, n={worst.workers}, m={worst.replicas}"
        console.print(f"worst {name.replace('_', ' ')}: {getattr(worst, name):.4f} ({where})")


def _listed(text: str | None) -> list[str] | None:
    return text.split(",") if text else None


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000, help="records in a batch")
    parser.add_argument("--keys", type=int, default=100_000, help="distinct keys")
    parser.add_argument("--skews", default=",".join(map(str, SKEWS)))
    parser.add_argument("--workers", default=",".join(map(str, WORKERS)))
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--real", action="store_true", help="run queries in Spark, in corners of the grid")
    parser.add_argument("--corners", help="corners for --real; default: all six")
    parser.add_argument("--plans", help="fixed choices for --real; default: all candidates")
    options = parser.parse_args()
    if options.real:
        from bench.auto_real import run_corners  # the grid needs no Spark

        run_corners(options.rows, _listed(options.corners), _listed(options.plans), options.json)
        return
    skews = [float(skew) for skew in options.skews.split(",")]
    workers = [int(n) for n in options.workers.split(",")]
    cells = []
    for cell in run_grid(options.rows, options.keys, skews, workers):
        cells.append(cell)
        print(json.dumps(asdict(cell)), file=sys.stderr, flush=True)
    show(cells, Console(width=160))
    if options.json:
        options.json.write_text(json.dumps([asdict(cell) for cell in cells], indent=1))


if __name__ == "__main__":
    main()
