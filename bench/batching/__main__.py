"""Rerun the figures of paper 002 about batches on this machine, and print what the paper has beside what was measured.

    python -m bench.batching [--rounds 3] [--seconds 4] [--only buffers|pair|spouts|flow] [--json FILE]

Producers and consumers are processes that send Arrow batches over TCP on the loopback, through the output buffers that
a partitioner's replica uses. Capacities of Figures 4.5, 4.6, 4.8 and 4.9 are records per second of processor time, so
that they do not depend on what else the machine does; those of 4.11 to 4.14 are rates of tasks with the costs of
Table 4.2, slowed down, of which they use a share as processor time and wait for the rest.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.batching.comparison import PaperComparison
from bench.batching.linear_road import linear_road, measure_linear_road, resources
from bench.batching.pair import bursts, live, measure_pair, predicted, with_batching, without_batching
from bench.batching.section_34 import buffer_kinds, buffer_times, layouts
from bench.batching.two_spouts import measure_two_spouts, two_spouts


def _buffers(rounds: int, seconds: float) -> Iterator[PaperComparison]:
    """Section 3.4."""
    yield from buffer_kinds()
    yield from layouts(rounds)
    yield from buffer_times(rounds)


def _pair(rounds: int, seconds: float) -> Iterator[PaperComparison]:
    """Figures 4.5 to 4.8."""
    pair = measure_pair(rounds, seconds)
    yield from without_batching(pair)
    yield from with_batching(pair)
    yield from live(pair, 2 * seconds)
    yield from bursts()
    yield from predicted(pair)


def _spouts(rounds: int, seconds: float) -> Iterator[PaperComparison]:
    """Figure 4.9."""
    yield from two_spouts(measure_two_spouts(rounds, seconds / 2))


def _flow(rounds: int, seconds: float) -> Iterator[PaperComparison]:
    """Figures 4.11 to 4.14."""
    yield from linear_road(measure_linear_road(max(1, rounds - 1), 4 * seconds))
    yield resources()


_PARTS = {"buffers": _buffers, "pair": _pair, "spouts": _spouts, "flow": _flow}


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m bench.batching")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each measurement")
    parser.add_argument("--seconds", type=float, default=4.0, help="seconds of a run of two tasks")
    parser.add_argument("--only", choices=list(_PARTS), help="run one part of the figures")
    parser.add_argument("--json", type=Path, help="write the lines of the table to this file, too")
    options = parser.parse_args()
    console = Console(width=140)
    console.print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} at the start")
    table = Table("figure", "what", "paper", "here", "order", box=None)
    lines = []
    parts = [_PARTS[options.only]] if options.only else list(_PARTS.values())
    for line in (line for part in parts for line in part(options.rounds, options.seconds)):
        lines.append(line)
        verdict = "-" if line.agrees is None else "agrees" if line.agrees else "disagrees"
        table.add_row(line.figure, line.what, line.paper, line.ours, verdict)
    console.print(table)
    if options.json:
        options.json.write_text(json.dumps([asdict(line) for line in lines], indent=1) + "\n")


if __name__ == "__main__":
    main()
