"""The figures of the benchmark: medians over the rounds of one run with their spread, and ratios within each round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from bench.joins.judge import RIGHT
from bench.peers.report import spread

TITLES = {
    "backlog": "full topics: seconds until the first result, and all, are visible, and of processor time by then",
    "latency": "steady rate: seconds to the first result; milliseconds from the newer of two records to their result",
}
COMPARED = {"backlog": "all", "latency": "p50"}
"""The value whose ratios are shown, by part."""


@dataclass(frozen=True)
class JoinFigure:
    """The figures of one turn of a contender, whose ``interval`` is in milliseconds, and ``JoinTurn.verdict``."""

    part: str
    case: str
    engine: str
    interval: int
    verdict: str
    values: Mapping[str, float | None]

    @property
    def is_right(self) -> bool:
        """Whether the results were right."""
        return self.verdict == RIGHT

    @property
    def compared(self) -> float | None:
        """The value whose ratios are shown; None if the results were not right."""
        return self.values[COMPARED[self.part]] if self.is_right else None


def show(figures: Sequence[JoinFigure], console: Console) -> None:
    """Print a table for each part and case, with how many times as fast a contender was as the others of each round."""
    for part, case, interval in dict.fromkeys((each.part, each.case, each.interval) for each in figures):
        turns = [each for each in figures if (each.part, each.case, each.interval) == (part, case, interval)]
        by_engine: dict[str, list[JoinFigure]] = {}
        for each in turns:
            by_engine.setdefault(each.engine, []).append(each)
        columns, peers = list(turns[0].values), list(by_engine)[1:]
        compared = f"x: times as fast by {COMPARED[part]}" if peers else ""
        table = Table(title=f"{case}, {TITLES[part]} (interval {interval} ms)", caption=compared)
        for name in ("", *columns, *(f"x {peer}" for peer in peers), "results"):
            table.add_column(name, justify="right" if name else "left")
        for engine, rounds in by_engine.items():
            values = [spread([each.values[name] for each in rounds]) for name in columns]
            ratios = ["" if peer == engine else _ratios(rounds, by_engine[peer]) for peer in peers]
            table.add_row(engine, *values, *ratios, next((each.verdict for each in rounds if not each.is_right), RIGHT))
        console.print(table)


def _ratios(rounds: Sequence[JoinFigure], others: Sequence[JoinFigure]) -> str:
    pairs = zip((each.compared for each in rounds), (each.compared for each in others), strict=True)
    return spread([other / own if own and other else None for own, other in pairs], digits=2)
