"""The figures of the benchmark: medians over the rounds of one run, with minimum and maximum."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

TITLES = {
    "latency": "steady rate: seconds to the first result; milliseconds from record to visible result",
    "backlog": "full topic: seconds until the first result, and all results, are visible",
    "fixed": "milliseconds of a batch of 1,000 records: the median, and by step on average",
    "empty": "milliseconds of a batch without records: the median",
}


@dataclass(frozen=True)
class PeerFigure:
    """The figures of one turn of a contender. ``interval`` is in milliseconds."""

    part: str
    engine: str
    interval: int
    values: Mapping[str, float | None]


def show(figures: Sequence[PeerFigure], console: Console) -> None:
    """Print a table for each part and interval."""
    for part, interval in dict.fromkeys((figure.part, figure.interval) for figure in figures):
        turns = [figure for figure in figures if (figure.part, figure.interval) == (part, interval)]
        columns = list(dict.fromkeys(name for figure in turns for name in figure.values))
        table = Table(title=f"{TITLES[part]} (interval {interval} ms)")
        table.add_column("")
        for name in columns:
            table.add_column(name, justify="right")
        for engine in dict.fromkeys(figure.engine for figure in turns):
            rounds = [figure.values for figure in turns if figure.engine == engine]
            table.add_row(engine, *(spread([values.get(name) for values in rounds]) for name in columns))
        console.print(table)


def spread(values: Sequence[float | None], digits: int | None = None) -> str:
    """Return the median of some rounds with minimum and maximum, or ``-`` if a round has no value."""
    known = [value for value in values if value is not None]
    if len(known) < len(values) or not known:
        return "-"
    if digits is None:
        digits = 1 if max(known) < 100 else 0
    text = f"{statistics.median(known):,.{digits}f}"
    return text if len(known) == 1 else f"{text} ({min(known):,.{digits}f} to {max(known):,.{digits}f})"
