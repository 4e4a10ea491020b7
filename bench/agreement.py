"""How well replicas agree where keys go, and what it costs them to.

    python -m bench.agreement [--write]

Each stream is cut into batches, and each batch into slices for 1, 2, 4 and 8 replicas, whose states go from batch to
batch as in a job. ``--write`` puts the table into docs/partitioning.md. Placements are the same on every run; times are
processor time of one thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench.key_streams import hashed, zipf_shares
from millrace_jobs.partitioners.base import Hashes, Workers
from millrace_jobs.partitioners.placement_cost import PlacementCost
from millrace_jobs.partitioners.registry import initial_states, make
from millrace_jobs.plan.policies import state_text
from millrace_research.comparison.replaying import PlacedStream, key_codes
from millrace_research.docs_pages import replace_between
from millrace_research.papers.streams import real

ALGORITHMS = ("prompt", "am", "cam", "lm", "dalton")
REPLICAS = (1, 2, 4, 8)
WORKERS, ROWS, BATCHES = 32, 100_000, 10
_BEFORE = 2
"""First batches, which are not counted: replicas know nothing in the first one."""

_REAL = ("w106", "orm-busy", "gcm-jobs")

PAGE = Path(__file__).parents[1] / "docs" / "partitioning.md"
MARKS = "<!-- agreement: written by python -m bench.agreement --write -->", "<!-- end of agreement -->"


@dataclass
class JobReplicas:
    """The replicas of an algorithm over a job's batches; ``dealt`` slices get every m-th record, others a range."""

    algorithm: str
    number: int
    workers: int = WORKERS
    dealt: bool = False
    agree: bool = True
    states: Sequence[bytes] = ()
    route_seconds: float = 0.0
    join_seconds: list[float] = field(default_factory=list)

    def place(self, batch: Hashes) -> Workers:
        """Return the workers of a batch's records."""
        made = [
            make(self.algorithm, workers=self.workers, replica=replica, replicas=self.number, seed=1, parameters={})
            for replica in range(self.number)
        ]
        began = time.thread_time()
        given = {"workers": self.workers, "replicas": self.number, "seed": 1}
        begun = initial_states(self.algorithm, self.states, parameters={}, **given) if self.agree else []
        self.join_seconds.append(time.thread_time() - began)
        for partitioner, state in zip(made, begun, strict=False):
            partitioner.restore(state)
        ids = np.empty(len(batch), np.int32)
        for partitioner, rows in zip(made, self._slices(len(batch)), strict=True):
            piece = np.ascontiguousarray(batch[rows])
            began = time.thread_time()
            ids[rows] = partitioner.route(piece)
            partitioner.advance()
            self.route_seconds += time.thread_time() - began
        self.states = tuple(partitioner.save() for partitioner in made)
        return ids

    def costs(self, batches: Sequence[Hashes]) -> list[PlacementCost]:
        """Return the cost of each batch."""
        costs = []
        for batch in batches:
            codes, keys = key_codes(batch)
            costs.append(PlacedStream(self.place(batch), codes, keys, self.workers).total())
        return costs

    def _slices(self, rows: int) -> Iterator[slice]:
        for replica in range(self.number):
            if self.dealt:
                yield slice(replica, rows, self.number)
            else:
                yield slice(rows * replica // self.number, rows * (replica + 1) // self.number)


def mean(costs: Sequence[PlacementCost], figure: str) -> float:
    """Return the mean of a figure over batches."""
    return float(np.mean([getattr(cost, figure) for cost in costs]))


def streams() -> dict[str, list[Hashes]]:
    """Return the batches of each stream."""
    drawn = np.random.default_rng(7)
    found = {
        f"zipf {skew}, {keys:,} keys": hashed(drawn.choice(keys, ROWS * BATCHES, p=zipf_shares(skew, keys)))
        for skew, keys in ((0.5, 10_000), (0.5, 100_000), (1.0, 100_000), (1.5, 100_000))
    }
    found |= {name: real(name).keys[: ROWS * BATCHES] for name in _REAL}
    return {name: np.array_split(keys, BATCHES) for name, keys in found.items()}


def rows_of(name: str, batches: list[Hashes]) -> Iterator[list[str]]:
    """Yield the rows of the table for one stream."""
    for dealt in (False, True) if name in _REAL else (False,):  # Zipf streams are the same throughout
        for algorithm in ALGORITHMS:
            runs = {m: JobReplicas(algorithm, m, dealt=dealt).costs(batches)[_BEFORE:] for m in REPLICAS}
            alone = JobReplicas(algorithm, REPLICAS[-1], dealt=dealt, agree=False).costs(batches)[_BEFORE:]
            factors = [f"{mean(runs[m], 'replication_factor'):.3f}" for m in REPLICAS]
            ends = runs[1], runs[REPLICAS[-1]], alone
            loads = [f"{1 + mean(costs, 'load_imbalance_ratio'):.2f}" for costs in ends]
            yield [
                f"{name}, {'dealt' if dealt else 'in ranges'}",
                f"`{algorithm}`",
                *factors,
                f"{mean(alone, 'replication_factor'):.3f}",
                *loads,
            ]


def costs_of_agreeing(batches: list[Hashes]) -> Iterator[list[str]]:
    """Yield the rows of the table of what the exchange costs, on one stream."""
    for algorithm in ("prompt", "am", "cam"):
        many, alone = JobReplicas(algorithm, 8), JobReplicas(algorithm, 8, agree=False)
        for replicas in (many, alone):  # compiles the kernels
            replicas.costs(batches[:3])
        for replicas in (many, alone):
            replicas.route_seconds, replicas.join_seconds = 0.0, []
            replicas.costs(batches)
        text = [len(state_text(state) or "") for state in many.states]
        added = (many.route_seconds - alone.route_seconds) / sum(map(len, batches))
        yield [
            f"`{algorithm}`",
            f"{np.mean(text) / 1024:.0f}",
            f"{np.median(many.join_seconds) * 1000:.1f}",
            f"{added * 1e9:.0f}",
            f"{many.route_seconds / sum(map(len, batches)) * 1e9:.0f}",
        ]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---", "---", *["--:"] * (len(heads) - 2)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Measure, print, and write the page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/partitioning.md")
    arguments = parser.parse_args()
    found = streams()
    heads = ["slices of", "", *(f"m = {m}" for m in REPLICAS), "8 alone", "load: 1", "8", "8 alone"]
    placed = _table(heads, [row for name, batches in found.items() for row in rows_of(name, batches)])
    heads = ["", "KB of state per replica", "ms to join eight", "ns per record added", "ns per record in all"]
    cost = _table(heads, list(costs_of_agreeing(found["zipf 1.0, 100,000 keys"])))
    text = f"{placed}\n\n{cost}"
    print(text)
    if arguments.write:
        replace_between(PAGE, *MARKS, text)


if __name__ == "__main__":
    main()
