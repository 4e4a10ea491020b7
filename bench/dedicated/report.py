"""The figures of a run: medians of its rounds with minimum and maximum, and ratios within rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from bench.peers.report import spread


@dataclass(frozen=True)
class Figure:
    """The figures of one turn of a contender, in one round of one case of a part."""

    part: str
    case: str
    contender: str
    turn: int
    values: Mapping[str, float]


def ratios(figures: Sequence[Figure], base: str) -> dict[tuple[str, str], list[float]]:
    """Return the figures of each contender over those of ``base`` in the same round, by contender and name."""
    found: dict[tuple[str, str], list[float]] = {}
    bases = {each.turn: each.values for each in figures if each.contender == base}
    for figure in figures:
        for name, value in figure.values.items():
            under = bases.get(figure.turn, {}).get(name)
            if figure.contender != base and under:
                found.setdefault((figure.contender, name), []).append(value / under)
    return found


def show(figures: Sequence[Figure], base: str | None, console: Console) -> None:
    """Print a table of the figures for each case, and below it their ratios to ``base``."""
    for part, case in dict.fromkeys((figure.part, figure.case) for figure in figures):
        turns = [figure for figure in figures if (figure.part, figure.case) == (part, case)]
        names = list(dict.fromkeys(name for figure in turns for name in figure.values))
        table = Table(title=f"{part}: {case}")
        table.add_column("")
        for name in names:
            table.add_column(name, justify="right")
        contenders = list(dict.fromkeys(figure.contender for figure in turns))
        for contender in contenders:
            rounds = [figure.values for figure in turns if figure.contender == contender]
            cells = [spread([values.get(name) for values in rounds], _digits(name)) for name in names]
            table.add_row(contender, *cells)
        compared = ratios(turns, base) if base is not None else {}
        for contender in contenders if compared else ():
            if contender != base:
                over = [spread(compared.get((contender, name), []), 2) for name in names]
                table.add_row(f"{contender} / {base}", *over)
        console.print(table)


def _digits(name: str) -> int | None:
    return 2 if name.startswith("µs") else None
