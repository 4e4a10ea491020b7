"""How well Dedicated replicas place records together, by what they exchange over the control topic.

    python -m bench.cooperation [--write]

Each stream is cut into intervals, and each interval into slices for 1, 2, 4 and 8 replicas, which get every m-th
record. A replica places its slice in ``BLOCKS`` blocks, one after the other in time; ``prompt`` places it whole. What a
replica publishes can be read ``DELAY`` of an interval later. ``--write`` puts the tables into
docs/dedicated-cooperation.md. Placements are the same on every run.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from bench.agreement import JobReplicas, mean
from bench.simulated_replicas import INTERVAL, SimulatedReplica, a_pin, replicas
from millrace_jobs.dedicated.cooperation.protocol import Cooperation
from millrace_jobs.partitioners.base import BatchPartitioner, Hashes, Workers
from millrace_jobs.partitioners.parameters import Value
from millrace_jobs.partitioners.placement_cost import PlacementCost
from millrace_research.comparison.replaying import Codes, PlacedStream, key_codes
from millrace_research.docs_pages import replace_between
from millrace_research.papers.streams import real, zipf

_Item = TypeVar("_Item", np.int32, np.uint64)

REPLICAS = (1, 2, 4, 8)
MOST = REPLICAS[-1]
WORKERS, ROWS, INTERVALS = 32, 100_000, 12
BLOCKS, DELAY = 16, 0.05
_BEFORE = 4
"""First intervals, which are not counted: replicas know nothing in the first two."""

WINDOW = 4
"""Slides of a window, in the table of windows."""

STREAMS = ("w106", "orm-busy", "gcm-jobs")
COMPARED: dict[str, tuple[str, dict[str, Value]]] = {
    "prompt": ("prompt", {}),
    "am": ("am", {}),
    "cam": ("cam", {}),
    "dalton": ("dalton", {}),
    "pkg": ("pkg", {}),
    "pkg, slides 0": ("pkg", {"slides": 0}),
    "pkg, slides 0, probing 1": ("pkg", {"slides": 0, "probing": 1}),
    "hash": ("hash", {}),
}

PAGE = Path(__file__).parents[1] / "docs" / "dedicated-cooperation.md"
MARKS = "<!-- cooperation: written by python -m bench.cooperation --write -->", "<!-- end of cooperation -->"


@dataclass
class DedicatedReplicas:
    """The replicas of an algorithm over a stream's intervals; if they do not ``cooperate``, they exchange nothing."""

    algorithm: str
    number: int
    parameters: dict[str, Value]
    cooperate: bool = True
    published_bytes: int = 0

    def place(self, batches: Sequence[Hashes]) -> list[Workers]:
        """Return the workers of each interval's records."""
        pin, now = a_pin(self.algorithm, self.number, WORKERS, **self.parameters), 1000.0
        _, members = replicas(pin, now)
        for member in [] if self.cooperate else members:
            member.cooperation = Cooperation()
        placed = []
        for batch in batches:
            placed.append(self._place_interval(members, batch, now))
            now += INTERVAL
            for member in members:
                member.catch_up(now, DELAY * INTERVAL)
            for member in members:
                member.end_interval(now)
        self.published_bytes = sum(member.published_bytes for member in members)
        return placed

    def _place_interval(self, members: Sequence[SimulatedReplica], batch: Hashes, now: float) -> Workers:
        ids = np.empty(len(batch), np.int32)
        blocks = 1 if isinstance(members[0].partitioner, BatchPartitioner) else BLOCKS
        for block in range(blocks):
            for member in members:
                rows = np.array_split(np.arange(member.index, len(batch), self.number), blocks)[block]
                member.catch_up(now + INTERVAL * block / blocks, DELAY * INTERVAL)
                ids[rows] = member.route(batch[rows], now + INTERVAL * (block + 1) / blocks)
        return ids


def costs_of(ids: Sequence[Workers], coded: Sequence[tuple[Codes, int]], before: int) -> list[PlacementCost]:
    """Return the cost of each interval or window but the first ones; ``coded`` has their keys."""
    return [
        PlacedStream(placed, codes, keys, WORKERS).total()
        for placed, (codes, keys) in list(zip(ids, coded, strict=True))[before:]
    ]


def rows_of(name: str, batches: list[Hashes]) -> Iterator[list[str]]:
    """Yield the rows of the first table for one stream."""
    coded = [key_codes(batch) for batch in batches]
    for label, (algorithm, parameters) in COMPARED.items():
        costs, kilobytes = {}, 0.0
        for number in REPLICAS:
            runs = DedicatedReplicas(algorithm, number, parameters)
            costs[number] = costs_of(runs.place(batches), coded, _BEFORE)
            kilobytes = runs.published_bytes / number / len(batches) / 1024
        apart = DedicatedReplicas(algorithm, MOST, parameters, cooperate=False)
        alone = costs_of(apart.place(batches), coded, _BEFORE)
        inline = JobReplicas(algorithm, MOST, WORKERS, dealt=True).costs(batches)[_BEFORE:] if not parameters else None
        runs_in_order = [*(costs[number] for number in REPLICAS), alone, inline]
        yield [
            name,
            f"`{label}`" if not parameters else f"`{algorithm}`{label.removeprefix(algorithm)}",
            *(f"{mean(found, 'replication_factor'):.3f}" if found else "" for found in runs_in_order),
            *(
                f"{1 + mean(found, 'load_imbalance_ratio'):.2f}" if found else ""
                for found in (costs[1], costs[MOST], alone, inline)
            ),
            f"{kilobytes:.0f}",
        ]


def rows_of_windows(name: str, batches: list[Hashes]) -> Iterator[list[str]]:
    """Yield the rows of the table of windows for one stream."""
    coded = [key_codes(window) for window in _windows(batches)]
    for algorithm in ("am", "cam", "dalton"):
        given: dict[str, Value] = {"fragmentation": "window"} if algorithm == "dalton" else {}
        found = []
        for slides in (1, WINDOW):
            for number, cooperate in ((1, True), (MOST, True), (MOST, False)):
                runs = DedicatedReplicas(algorithm, number, given | {"slides": slides}, cooperate)
                ids = runs.place(batches)
                found.append(costs_of(_windows(ids), coded, 1))
        yield [
            name,
            f"`{algorithm}`",
            *(f"{mean(costs, 'replication_factor'):.3f}" for costs in found),
            *(f"{1 + mean(costs, 'load_imbalance_ratio'):.2f}" for costs in found[3:]),
        ]


def _windows(intervals: Sequence[NDArray[_Item]]) -> list[NDArray[_Item]]:
    """Join what belongs to each interval to what belongs to each window."""
    return [np.concatenate(intervals[at : at + WINDOW]) for at in range(0, len(intervals), WINDOW)]


def streams() -> dict[str, list[Hashes]]:
    """Return the intervals of each stream."""
    rows = ROWS * INTERVALS
    found = {name: real(name).keys[:rows] for name in STREAMS} | {"zipf 1.5": zipf(1.5, rows).keys}
    # As in Figure 13 of paper 003: with an even number of replicas, half of them get each source.
    sources = zipf(0.0, rows // 2).keys, zipf(1.5, rows // 2).keys
    found["uniform, zipf 1.5"] = np.stack(sources, axis=1).reshape(-1)
    return {name: np.array_split(keys, INTERVALS) for name, keys in found.items()}


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---", "---", *["--:"] * (len(heads) - 2)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Measure, print, and write the page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/dedicated-cooperation.md")
    arguments = parser.parse_args()
    found = streams()
    ends = [f"load: {REPLICAS[0]}", f"{MOST}", f"{MOST} alone", f"{MOST} inline"]
    heads = ["", "", *(f"m = {m}" for m in REPLICAS), f"{MOST} alone", f"{MOST} inline", *ends, "KB"]
    placed = _table(heads, [row for name, batches in found.items() for row in rows_of(name, batches)])
    numbers = ["1", f"{MOST}", f"{MOST} alone"]
    heads = ["", "", *numbers, *(f"{WINDOW} slides: {number}" for number in numbers), "load: 1", *numbers[1:]]
    windows = _table(heads, [row for name, batches in found.items() for row in rows_of_windows(name, batches)])
    text = f"{placed}\n\n{windows}"
    print(text)
    if arguments.write:
        replace_between(PAGE, *MARKS, text)


if __name__ == "__main__":
    main()
