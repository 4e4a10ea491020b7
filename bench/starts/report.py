"""The figures of the benchmark: medians over the starts of a run, by what used the processor time."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from bench.starts.minute import PERIOD
from bench.starts.turns import Start


@dataclass(frozen=True)
class StartFigure:
    """One start of a variant."""

    variant: str
    source: str
    algorithm: str
    start: Start


@dataclass(frozen=True)
class MinuteFigure:
    """The first minutes of one run of a variant, from a topic."""

    variant: str
    algorithm: str
    minutes: Mapping[int, float]


def show(figures: Sequence[StartFigure], console: Console) -> None:
    """Print a table with a column for each variant and query: processor seconds by part, and before each step."""
    if not figures:
        return
    kinds = list(dict.fromkeys((each.source, each.algorithm, each.variant) for each in figures))
    starts = {kind: [each.start for each in figures if _kind(each) == kind] for kind in kinds}
    table = Table(title="processor seconds to the first result: medians, and the range of their sum")
    table.add_column("")
    for kind in kinds:
        table.add_column("\n".join(kind), justify="right")
    totals = {kind: [each.processor for each in starts[kind]] for kind in kinds}
    table.add_row(
        "all", *(f"{_median(totals[kind])} ({min(totals[kind]):.1f} to {max(totals[kind]):.1f})" for kind in kinds)
    )
    table.add_row("seconds on the clock", *(_median([each.wall for each in starts[kind]]) for kind in kinds))
    table.add_section()
    for part in dict.fromkeys(part for each in figures for part in sorted(each.start.parts)):
        table.add_row(part, *(_median([each.parts.get(part, 0.0) for each in starts[kind]]) for kind in kinds))
    table.add_section()
    for step in dict.fromkeys(step for each in figures for step in each.start.steps):
        medians = ([each.steps[step] for each in starts[kind] if step in each.steps] for kind in kinds)
        table.add_row(f"before: {step}", *map(_median, medians))
    console.print(table)


def show_minutes(figures: Sequence[MinuteFigure], console: Console) -> None:
    """Print a table with a row for each variant: milliseconds of batches without records, by the time of the batch."""
    periods = sorted({period for each in figures for period in each.minutes})
    if not periods:
        return
    table = Table(title="milliseconds of a batch without records: medians, by seconds after the first batch")
    for column in ("", *(f"{period * PERIOD:.0f} to {(period + 1) * PERIOD:.0f} s" for period in periods)):
        table.add_column(column, justify="right" if column else "left")
    for kind in dict.fromkeys((each.algorithm, each.variant) for each in figures):
        runs = [each.minutes for each in figures if (each.algorithm, each.variant) == kind]
        table.add_row(" ".join(kind), *(_median([run[p] for run in runs if p in run]) for p in periods))
    console.print(table)


def _kind(figure: StartFigure) -> tuple[str, str, str]:
    return figure.source, figure.algorithm, figure.variant


def _median(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f}" if values else "-"
