"""Figure 4.9 and Table 4.1: a consumer of two sources with their own rates and batches."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator

from bench.batching.comparison import PaperComparison, capacity, spouts_and_bolt, spread
from bench.batching.running import FlowRun
from millrace_operator.capacity.cost_model import inflow
from millrace_operator.capacity.flow import Sizing

BATCHES = ((1, 1), (1, 5), (1, 10), (5, 5))
SHARES = (10, 30, 50, 70, 90)
"""Percent of all records that the first source emits."""

_RATE = 20_000
"""Records per second of both sources together: few enough for both to emit their share even one by one."""

_FLOW = spouts_and_bolt(["first", "second"])
_PAPER = {(1, 1): 25.0, (1, 5): 87.0, (1, 10): 100.0, (5, 5): 100.0}
"""The bolt's thousand records per second in the paper, of a workload of 100, where the first source has 10 % of it."""

_OVERLOAD = 4.0
"""The paper's workload over the bolt's capacity for single records, 100,000 over 25,000."""

Cell = tuple[tuple[int, int], int]


def measure_two_spouts(rounds: int, seconds: float) -> dict[Cell, list[tuple[float, float]]]:
    """Return the bolt's capacity and its records per batch over those of equation 3.21.

    Both are for each pair of batches and each share, by round. The equation is given what the sources really emitted.
    """
    measured: dict[Cell, list[tuple[float, float]]] = {(pair, share): [] for pair in BATCHES for share in SHARES}
    for _ in range(rounds):
        for (pair, share), cell in measured.items():
            configuration = {"first": Sizing(1, pair[0]), "second": Sizing(1, pair[1]), "bolt": Sizing()}
            rates = {"first": _RATE * share / 100, "second": _RATE * (100 - share) / 100}
            figures = FlowRun(_FLOW, configuration, rates, seconds, seconds / 4).run()
            bolt = figures["bolt"][0]
            sent = {name: figures[name][0].records / figures[name][0].seconds for name in rates}
            wanted = inflow(_FLOW, configuration, _FLOW.operators["bolt"], sent, {}).batch_records
            cell.append((capacity(bolt), bolt.records / bolt.batches / wanted))
    return measured


def two_spouts(measured: dict[Cell, list[tuple[float, float]]]) -> Iterator[PaperComparison]:
    """Figure 4.9: what the bolt would take in of a workload four times its capacity for single records."""
    alone = [statistics.mean(measured[(1, 1), share][r][0] for share in SHARES) for r in range(_rounds(measured))]
    taken = {
        cell: [min(_OVERLOAD, rate / one) for (rate, _), one in zip(values, alone, strict=True)]
        for cell, values in measured.items()
    }
    single, less = _PAPER[1, 1], 1.0
    for pair in BATCHES[1:]:
        ratio, paper = taken[pair, 10], _PAPER[pair] / single
        what = f"throughput with batches of {pair[0]} and {pair[1]} at 10 and 90 %, over 1 and 1"
        yield PaperComparison("4.9", what, f"{paper:.1f}", spread(ratio), statistics.median(ratio) > less)
        less = statistics.median(taken[(1, 5), 10])  # the smallest effective batch of the three
    for pair in ((1, 5), (1, 10)):
        middle = [statistics.median(taken[pair, share]) for share in SHARES]
        falls = all(after < before * 1.05 for before, after in itertools.pairwise(middle))
        ours = ", ".join(f"{value:.1f}" for value in middle)
        what = f"the same for {pair[0]} and {pair[1]} as the first source grows from 10 to 90 %"
        yield PaperComparison("4.9", what, "falls", ours, falls)
    full = [statistics.median(taken[(5, 5), share]) for share in SHARES]
    yield PaperComparison("4.9", "the same for 5 and 5, least over most of all shares", "1.0",
                     f"{min(full) / max(full):.2f}", min(full) > 0.8 * max(full))  # fmt: skip
    yield _input_batches(measured)


def _input_batches(measured: dict[Cell, list[tuple[float, float]]]) -> PaperComparison:
    """Compare the observed records per batch with equation 3.21."""
    errors = [abs(statistics.median(ratio for _, ratio in values) - 1) for values in measured.values()]
    return PaperComparison("4.9", "error of the effective input batch (3.21), mean and most of 20 cases", "not stated",
                      f"{statistics.mean(errors):.1%} (to {max(errors):.1%})".replace("%", " %"),
                      max(errors) < 0.1)  # fmt: skip


def _rounds(measured: dict[Cell, list[tuple[float, float]]]) -> int:
    return len(next(iter(measured.values())))
