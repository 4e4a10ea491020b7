"""Figures 4.5 to 4.8: one source and one consumer, by workload and by records of an output batch."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.batching.comparison import PaperComparison, capacity, spouts_and_bolt, spread
from bench.batching.running import FlowRun
from bench.batching.tasks import TaskFigures
from millrace_jobs.selection.costs import fit_costs
from millrace_operator.capacity.flow import Sizing

BATCHES = (1, 10, 100, 1000, 10_000)
WORKLOADS = (1_000, 10_000, 100_000, 1_000_000)

_FLOW = spouts_and_bolt(["spout"])
_PAPER = {"spout": (900e-9, 7500e-9), "bolt": (900e-9, 45_000e-9)}
"""The paper's c_cpu and c_emit of the spout, c_cpu and c_fetch of the bolt, from which it draws Figure 4.8."""

_PRIOR = np.array([1e-6, 10e-6])
_OBSERVED_BURSTS = 4
_LIVE_RATE, _LIVE_INTERVAL = 50_000, 0.5
_BURSTY_BATCH, _BURSTY_RATE = 10_000, 1_000


@dataclass
class Pair:
    """Capacities of both tasks in records per processor second: by records of a batch, one for each round."""

    spout: dict[int, list[float]]
    bolt: dict[int, list[float]]

    def of(self, task: str) -> dict[int, list[float]]:
        """Return the capacities of ``spout`` or ``bolt``."""
        return self.spout if task == "spout" else self.bolt

    def gains(self, task: str, batch: int) -> list[float]:
        """Return how many times the capacity with single records a task has with batches, in each round."""
        own = self.of(task)
        return [many / one for one, many in zip(own[1], own[batch], strict=True)]


def measure_pair(rounds: int, seconds: float) -> Pair:
    """Measure both tasks with every size of batches at the largest workload, round after round."""
    pair = Pair({batch: [] for batch in BATCHES}, {batch: [] for batch in BATCHES})
    for _ in range(rounds):
        for batch in BATCHES:
            figures = _run(batch, WORKLOADS[-1], seconds)
            pair.spout[batch].append(capacity(figures["spout"]))
            pair.bolt[batch].append(capacity(figures["bolt"]))
    return pair


def without_batching(pair: Pair) -> Iterator[PaperComparison]:
    """Figure 4.5: which workloads both tasks carry with single records."""
    fits = {task: [rate for rate in WORKLOADS if rate <= statistics.median(pair.of(task)[1])] for task in _PAPER}
    paper = {"spout": WORKLOADS[:3], "bolt": WORKLOADS[:2]}
    for task, carried in fits.items():
        what = f"largest workload that the {task} carries, records/s"
        yield PaperComparison(
            "4.5", what, f"{max(paper[task]):,}", f"{max(carried):,}", max(carried) == max(paper[task])
        )
    ratios = [one / other for one, other in zip(pair.spout[1], pair.bolt[1], strict=True)]
    yield PaperComparison("4.5", "capacity of the spout over the bolt's", "4.8", spread(ratios), min(ratios) > 1)


def with_batching(pair: Pair) -> Iterator[PaperComparison]:
    """Figure 4.6: what larger batches bring; the paper's values follow from the costs that it draws Figure 4.8 from."""
    for task, (cpu, queue) in _PAPER.items():
        before = [1.0]
        for batch in BATCHES[1:]:
            paper = (cpu + queue) / (cpu + queue / batch)
            gains = pair.gains(task, batch)
            rises = max(gains) > max(before) * (1.0 if batch <= 100 else 0.8)  # beyond, almost nothing is left to gain
            what = f"capacity of the {task} with batches of {batch:,}, over single records"
            yield PaperComparison("4.6", what, f"{paper:.1f}", spread(gains), rises)
            before = gains
    most = {task: [max(pair.gains(task, batch)[r] for batch in BATCHES) for r in range(len(pair.spout[1]))]
            for task in _PAPER}  # fmt: skip
    ratios = [bolt / spout for bolt, spout in zip(most["bolt"], most["spout"], strict=True)]
    yield PaperComparison(
        "4.6", "most that batches bring the bolt, over the spout", "5.4", spread(ratios), min(ratios) > 1
    )


def predicted(pair: Pair) -> Iterator[PaperComparison]:
    """Figure 4.8: errors of equations 3.5 and 3.8 with costs fitted to the same measurements."""
    errors: list[float] = []
    for task in _PAPER:
        rates = pair.of(task)
        work = np.array([[1.0, 1 / batch] for batch in BATCHES for _ in rates[batch]])
        seconds = np.array([1 / rate for batch in BATCHES for rate in rates[batch]])
        costs = fit_costs(work, seconds, _PRIOR)
        middle = [statistics.median(rates[batch]) for batch in BATCHES]
        errors += [abs(1 / float(costs @ [1, 1 / b]) / rate - 1) for b, rate in zip(BATCHES, middle, strict=True)]
        paper = "{1:.0f} / {0:.0f} ns".format(*(1e9 * cost for cost in _PAPER[task]))
        name = "c_emit / c_cpu" if task == "spout" else "c_fetch / c_cpu"
        ours = f"{1e9 * costs[1]:,.0f} / {1e9 * costs[0]:,.0f} ns"
        yield PaperComparison("4.8", f"{name} of the {task}", paper, ours, bool(costs[1] > costs[0]))
    paper = "8.7 % (to 16.1 %)"
    mean, most = statistics.mean(errors), max(errors)
    yield PaperComparison("4.8", "error of the predicted capacity, mean (and most)", paper,
                     f"{mean:.1%} (to {most:.1%})".replace("%", " %"), most < 0.25)  # fmt: skip


def bursts(seconds: float | None = None) -> Iterator[PaperComparison]:
    """Figure 4.7: large batches under a small workload, with and without a flush of the buffers every second."""
    length = seconds or _OBSERVED_BURSTS * _BURSTY_BATCH / _BURSTY_RATE
    came, waited = _arrivals(_BURSTY_BATCH, length, None)
    gaps = np.diff(came)
    late = float(np.percentile(waited, 95))
    interval = float(np.median(gaps))
    yield PaperComparison("4.7", "seconds between two bursts", "10", f"{interval:.1f}", 9 < interval < 11)
    spike = max(np.bincount(came.astype(int) - int(came[0]))) * _BURSTY_BATCH / _BURSTY_RATE
    yield PaperComparison(
        "4.7", "records in a burst's second, over the workload", "10", f"{spike:.0f}", bool(9 < spike < 11)
    )
    yield PaperComparison("4.7", "seconds that a record waits, 95th percentile", "9.5", f"{late:.1f}", 9 < late < 10.5)
    _, flushed = _arrivals(_BURSTY_BATCH, length / 4, 1.0)
    _, single = _arrivals(1, length / 4, None)
    soon, least = float(np.percentile(flushed, 95)), float(np.percentile(single, 95))
    yield PaperComparison("4.7", "the same, with single records", "about 0", f"{least:.3f}", least < 0.5)
    yield PaperComparison("4.7", "the same, batches of 10,000 flushed every second", "-", f"{soon:.2f}", soon < 1.2)


def live(pair: Pair, seconds: float) -> Iterator[PaperComparison]:
    """Algorithm 3 on a source that runs: it begins with single records, and sets b_out from its own costs."""
    options = {"flush_every": _LIVE_INTERVAL, "live": True}
    spout = _run(1, _LIVE_RATE, seconds, **options)["spout"]
    last = statistics.median(spout.sizes[len(spout.sizes) // 2 :])
    yield PaperComparison("Alg. 3", f"b_out that a source sets itself at {_LIVE_RATE:,} records/s", "-", f"{last:,.0f}")
    ours = f"{capacity(spout) / statistics.median(pair.spout[1]):.1f}"
    yield PaperComparison("Alg. 3", "its capacity over single records", "-", ours)


def _arrivals(batch: int, seconds: float, flush: float | None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return when batches came to the bolt, and the seconds since each record was emitted."""
    bolt = _run(batch, _BURSTY_RATE, seconds + 1.0, flush_every=flush, timed=True)["bolt"]
    times = np.array([when for when, _ in bolt.arrivals])
    return times, np.concatenate([waits for _, waits in bolt.arrivals])


def _run(batch: int, rate: float, seconds: float, **options: Any) -> dict[str, TaskFigures]:
    configuration = {"spout": Sizing(1, batch), "bolt": Sizing()}
    run = FlowRun(_FLOW, configuration, {"spout": rate}, seconds, min(1.0, seconds / 4), **options)
    return {name: tasks[0] for name, tasks in run.run().items()}
