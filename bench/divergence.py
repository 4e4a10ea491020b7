"""Whether loads that are multiplied by load-divergence coefficients make batches shorter, on simulated workers.

    python -m bench.divergence [--batches 20] [--seeds 3]

A coefficient is a worker's seconds per record relative to the mean of all (paper 000, footnote 2), from the last ten
batches, and closer to 1 the more these differ. Workers take what their records and partial results cost, times a factor
where a worker is slow, with 8 % of scatter. The table has the least stage time of the algorithms of Millrace, and
ratios: the best one with coefficients to it, each with coefficients to itself without, and what perfectly even seconds
would leave of the least time.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bench.key_streams import hashed, zipf_shares
from millrace_jobs.kernels.compiling import kernel
from millrace_jobs.partitioners.base import Partitioner
from millrace_jobs.partitioners.registry import make

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

KEYS, RECORDS, WORKERS = 5_000, 50_000, 8
FIXED = ("shuffle", "hash", "pkg", "cam", "wchoices", "dalton", "prompt")
CHOICES: Mapping[str, int] = {"pkg": 2, "cam": 5, "wchoices": 2}
"""The algorithms that are tried with coefficients, and the choices of their keys; ``cam`` keeps to the first choice."""

HEAD = 0.2
"""A key with this part of a worker's share may go to any worker under ``wchoices``, as in Millrace."""

COSTS: Mapping[str, tuple[float, float, float]] = {
    "medium": (1e-6, 5e-6, 5e-6),
    "heavy record": (20e-6, 10e-6, 10e-6),
    "heavy key": (2e-6, 100e-6, 50e-6),
}
"""Seconds for a record, for a partial result, and for merging one, as in ``bench.auto``."""

MOVES: Mapping[str, float] = {"a slow worker": 0.0, "a slow executor, sticky": 0.25, "a slow executor": 1.0}
"""Cases in which a worker takes twice as long, with the probability that it is drawn again in a batch."""

CASES = ("even", *MOVES, "one hot key x8", "three keys x20", "5 % of keys x8", "lognormal")

SCATTER = 0.08
REMEMBERED, FEWEST = 10, 3
"""Batches that a coefficient follows from, at most and at least."""

BOUND = 4.0
WARM_UP = 10


@kernel
def place(keys: Integers, choices: Integers, head: NDArray[np.bool_], coefficients: Floats, keeps: bool) -> Integers:
    """Return the worker of each record: the choice of its key with the least load times coefficient.

    ``choices`` has shape ``(keys, d)``. Keys in ``head`` may go to any worker; with ``keeps``, others stay where their
    first record went.
    """
    loads = np.zeros(len(coefficients))
    ids = np.empty(len(keys), np.int64)
    homes = np.full(len(choices), -1)
    for record in range(len(keys)):
        key = keys[record]
        worker = homes[key]
        if worker < 0 or not keeps:
            worker = 0 if head[key] else choices[key, 0]
            for number in range(len(loads) if head[key] else choices.shape[1]):
                other = number if head[key] else choices[key, number]
                if loads[other] * coefficients[other] < loads[worker] * coefficients[worker]:
                    worker = other
            homes[key] = worker
        loads[worker] += 1.0
        ids[record] = worker
    return ids


@dataclass
class DivergenceCoefficients:
    """The load-divergence coefficients of the workers, learned from their seconds per record."""

    history: list[Floats] = field(default_factory=list)

    def learn(self, seconds: Floats, rows: Integers) -> None:
        """Learn from a batch."""
        ratio = seconds / np.maximum(rows, 1) * (rows.sum() / seconds.sum())
        self.history = [*self.history, np.log(np.clip(ratio, 1 / BOUND, BOUND))][-REMEMBERED:]

    @property
    def values(self) -> Floats:
        """Shape ``(workers,)``; means of the logarithms, shrunk by what scatter alone would make of them."""
        if len(self.history) < FEWEST:
            return np.ones(WORKERS)
        batches = np.array(self.history)
        means = batches.mean(0)
        by_chance = 2 * batches.var(0, ddof=1).mean() / len(batches)
        shrunk: Floats = np.exp(means * max(0.0, 1 - by_chance / max(float((means**2).mean()), 1e-12)))
        return shrunk


class CostlyStream:
    """One case at one skew: batches that every algorithm places, and their stage times by aggregator."""

    def __init__(self, case: str, skew: float, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._case = case
        self._shares = zipf_shares(skew, KEYS)
        self._key_costs = self._costs_of_keys()
        self._hashes = hashed(np.arange(KEYS))
        self._partitioners: dict[str, Partitioner] = {
            name: make(name, workers=WORKERS, replica=0, replicas=1, seed=seed, parameters={}) for name in FIXED
        }
        self._choices = {
            name: np.array([self._rng.permutation(WORKERS)[:number] for _ in range(KEYS)])
            for name, number in CHOICES.items()
        }
        self._coefficients: defaultdict[tuple[str, str], DivergenceCoefficients] = defaultdict(DivergenceCoefficients)
        self.times: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        self.even: defaultdict[tuple[str, str], list[float]] = defaultdict(list)

    def _costs_of_keys(self) -> Floats:
        costs = np.ones(KEYS)
        if self._case == "one hot key x8":
            costs[0] = 8
        elif self._case == "three keys x20":
            costs[20:23] = 20
        elif self._case == "5 % of keys x8":
            costs[self._rng.choice(KEYS, KEYS // 20, replace=False)] = 8
        elif self._case == "lognormal":
            costs = self._rng.lognormal(0, 1, KEYS)
        return costs

    def run(self, batches: int) -> None:
        """Run the batches, after those for warming up."""
        slow = 0
        for number in range(WARM_UP + batches):
            keys = self._rng.choice(KEYS, RECORDS, p=self._shares)
            factors = np.ones(WORKERS)
            if self._case in MOVES:
                if self._rng.random() < MOVES[self._case]:
                    slow = int(self._rng.integers(WORKERS))
                factors[slow] = 2
            counts = number >= WARM_UP
            for name, partitioner in self._partitioners.items():
                ids = partitioner.route(self._hashes[keys]).astype(np.int64)
                partitioner.advance()
                for aggregator in COSTS:
                    self._seconds(name, aggregator, ids, keys, factors, counts=counts)
            for name, choices in self._choices.items():
                head = self._shares >= (HEAD / WORKERS if name == "wchoices" else 2.0)
                for aggregator in COSTS:
                    learned = self._coefficients[name, aggregator]
                    ids = place(keys, choices, head, learned.values, name == "cam")
                    seconds = self._seconds(f"{name} x", aggregator, ids, keys, factors, counts=counts)
                    measured = seconds * np.exp(self._rng.normal(0, SCATTER, WORKERS))
                    learned.learn(measured, np.bincount(ids, minlength=WORKERS))

    def _seconds(
        self, name: str, aggregator: str, ids: Integers, keys: Integers, factors: Floats, *, counts: bool
    ) -> Floats:
        """Return the seconds of each worker, and note the stage time of a batch that counts."""
        record, partial, merge = COSTS[aggregator]
        partials = np.bincount(np.unique(ids * KEYS + keys) // KEYS, minlength=WORKERS)
        records = np.bincount(ids, self._key_costs[keys], WORKERS)
        seconds: Floats = (records * record + partials * partial) * factors
        if counts:
            merging = merge * float(partials.sum()) / WORKERS
            self.times[name, aggregator].append(float(seconds.max()) + merging)
            self.even[name, aggregator].append(float((seconds / factors).sum()) / float((1 / factors).sum()) + merging)
        return seconds


def main() -> None:
    """Run the simulation from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=20, help="batches that count")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    print("| case | z | aggregator | least | with coefficients | pkg | cam | wchoices | even seconds |")
    print("|---|--:|---|---|--:|--:|--:|--:|--:|")
    for skew in (0.5, 1.0):
        for case in CASES:
            runs = [CostlyStream(case, skew, seed) for seed in range(options.seeds)]
            for run in runs:
                run.run(options.batches)
            for aggregator in COSTS:
                print(_row(case, skew, aggregator, runs), flush=True)


def _row(case: str, skew: float, aggregator: str, runs: list[CostlyStream]) -> str:
    def mean(name: str) -> float:
        return float(np.mean([run.times[name, aggregator] for run in runs]))

    best = min(FIXED, key=mean)
    least = mean(best)
    even = min(float(np.mean([run.even[name, aggregator] for run in runs])) for name in FIXED)
    ratios = [mean(f"{name} x") / mean(name) for name in CHOICES]
    figures = [min(mean(f"{name} x") for name in CHOICES) / least, *ratios, even / least]
    return f"| {case} | {skew} | {aggregator} | `{best}` | " + " | ".join(f"{each:.2f}" for each in figures) + " |"


if __name__ == "__main__":
    main()
