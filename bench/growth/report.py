"""The figures of the benchmark in a file of JSON lines, and the tables that show them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.growth.cases import AXES
from bench.growth.judge import RIGHT, GrowthMark
from bench.peers.report import spread

SETTLED = 0.4
"""Share of the records before the first mark from which settled costs are taken."""

_QUARTERS = 4


@dataclass(frozen=True)
class GrowthRestart:
    """A restart with the state: seconds until the first result and all results, and what it used by then."""

    first: float
    all: float
    processor: float
    peak: int


@dataclass(frozen=True)
class GrowthFigure:
    """One turn of a contender.

    Attributes:
        part, size, engine, round: the axis, the size on it, the contender and the number of the round.
        records, results: number of records, and of results that the contender wrote of them.
        verdict: ``right``, or how the results differ from those that are due.
        peak: most memory in bytes.
        marks: how far the contender was when, and at which cost.
        restart: its restart, where there was one.
    """

    part: str
    size: int
    engine: str
    round: int
    records: int
    results: int
    verdict: str
    peak: int
    marks: tuple[GrowthMark, ...]
    restart: GrowthRestart | None = None

    @property
    def turn(self) -> tuple[str, int, str, int]:
        """What is measured once: the part, the size, the contender and the round."""
        return self.part, self.size, self.engine, self.round

    @property
    def cold(self) -> float | None:
        """Processor seconds per million records, from the start of the process."""
        return _per_million(GrowthMark(0, 0.0, 0.0, 0.0), self.marks[-1], "processor") if self.marks else None

    @property
    def settled(self) -> float | None:
        """Processor seconds per million records over the rest of the records, once 40 % were done."""
        return self.between(SETTLED, 1.0, "processor")

    @property
    def broker(self) -> float | None:
        """Processor seconds of the broker per million records."""
        return _per_million(GrowthMark(0, 0.0, 0.0, 0.0), self.marks[-1], "broker") if self.marks else None

    def between(self, begin: float, end: float, value: str) -> float | None:
        """Return what a million records took between two shares of the records, or None without marks there.

        Args:
            begin, end: the shares.
            value: ``seconds``, ``processor`` or ``broker``.
        """
        total = self.marks[-1].records if self.marks else 0
        inside = [mark for mark in self.marks if begin * total <= mark.records <= end * total]
        return _per_million(inside[0], inside[-1], value) if len(inside) > 1 else None

    @classmethod
    def from_json(cls, line: str) -> GrowthFigure:
        """Read a figure from a line of the file."""
        fields: dict[str, Any] = json.loads(line)
        fields["marks"] = tuple(GrowthMark(**mark) for mark in fields["marks"])
        fields["restart"] = fields["restart"] and GrowthRestart(**fields["restart"])
        return cls(**fields)


def read(file: Path) -> list[GrowthFigure]:
    """Return the figures of a file; none if it does not exist. A last line that was cut off is left out."""
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.exists() else []
    return [GrowthFigure.from_json(line) for line in lines if line.endswith("\n")]


def append(file: Path, figure: GrowthFigure) -> None:
    """Add a figure to a file, after removing what an interrupted run left of a line."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    if not text.endswith("\n"):
        file.write_text(text[: text.rfind("\n") + 1], encoding="utf-8")
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(asdict(figure)) + "\n")


def show(figures: Sequence[GrowthFigure], console: Console) -> None:
    """Print all tables."""
    for table in _tables(figures):
        console.print(table)


def markdown(figures: Sequence[GrowthFigure]) -> str:
    """Return all tables in Markdown, each below its title."""
    return "\n\n".join(f"{table.title}:\n\n{_markdown(table)}" for table in _tables(figures))


def _markdown(table: Table) -> str:
    rows = [
        [str(column.header) for column in table.columns],
        ["--:" if column.justify == "right" else "---" for column in table.columns],
        *zip(*(map(str, column.cells) for column in table.columns), strict=True),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


Value = Callable[[GrowthFigure], float | None]


def _tables(figures: Sequence[GrowthFigure]) -> Iterator[Table]:
    for part, axis in AXES.items():
        own = [figure for figure in figures if figure.part == part]
        if own:
            yield _costs(axis.title, own)
    states = [figure for figure in figures if figure.restart is not None]
    if states:
        yield _quarters(states)
        yield _restarts(states)


def _costs(title: str, figures: Sequence[GrowthFigure]) -> Table:
    table = _table(
        f"By {title}: processor seconds per million records, peak memory",
        (title, ""),
        ("from the start", "settled", "x smallest", "broker", "peak MB", "results / record", "seconds", "results"),
    )
    for size, engine, rounds in _groups(figures):
        table.add_row(
            f"{size:,}",
            engine,
            _spread(rounds, lambda each: each.cold),
            _spread(rounds, lambda each: each.settled),
            spread([_ratio(each, figures) for each in rounds], digits=2),
            _spread(rounds, lambda each: each.broker),
            _spread(rounds, lambda each: each.peak / 1e6),
            spread([each.results / each.records for each in rounds], digits=2),
            _spread(rounds, lambda each: each.marks[-1].seconds if each.marks else None),
            next((each.verdict for each in rounds if each.verdict != RIGHT), RIGHT),
        )
    return table


def _quarters(figures: Sequence[GrowthFigure]) -> Table:
    names = [f"{number}/{_QUARTERS}" for number in range(1, _QUARTERS + 1)]
    table = _table(
        "While the state grows: seconds, and processor seconds, per million records by quarter",
        ("keys", ""),
        [f"{name} {unit}" for unit in ("s", "processor") for name in names],
    )
    for size, engine, rounds in _groups(figures):
        cells = [
            spread([each.between(number / _QUARTERS, (number + 1) / _QUARTERS, value) for each in rounds], digits=1)
            for value in ("seconds", "processor")
            for number in range(_QUARTERS)
        ]
        table.add_row(f"{size:,}", engine, *cells)
    return table


def _restarts(figures: Sequence[GrowthFigure]) -> Table:
    columns = ("first s", "all s", "processor s", "peak MB")
    table = _table("Restart with that state, until results of new records are visible", ("keys", ""), columns)
    for size, engine, rounds in _groups(figures):
        found = [each.restart for each in rounds if each.restart is not None]
        table.add_row(
            f"{size:,}",
            engine,
            spread([each.first for each in found], digits=1),
            spread([each.all for each in found], digits=1),
            spread([each.processor for each in found], digits=1),
            spread([each.peak / 1e6 for each in found], digits=0),
        )
    return table


def _table(title: str, names: Iterable[str], columns: Iterable[str]) -> Table:
    table = Table(title=title)
    for name in names:
        table.add_column(name, justify="left" if name == "" else "right")
    for name in columns:
        table.add_column(name, justify="right")
    return table


def _groups(figures: Sequence[GrowthFigure]) -> Iterator[tuple[int, str, Sequence[GrowthFigure]]]:
    for size, engine in dict.fromkeys((each.size, each.engine) for each in sorted(figures, key=lambda each: each.size)):
        yield size, engine, [each for each in figures if (each.size, each.engine) == (size, engine)]


def _ratio(figure: GrowthFigure, figures: Sequence[GrowthFigure]) -> float | None:
    """Return settled costs over those of the smallest size in the same round."""
    same = [each for each in figures if (each.engine, each.round) == (figure.engine, figure.round)]
    smallest = min(same, key=lambda each: each.size).settled
    return figure.settled / smallest if figure.settled and smallest else None


def _spread(rounds: Sequence[GrowthFigure], value: Value) -> str:
    return spread([value(each) for each in rounds])


def _per_million(begin: GrowthMark, end: GrowthMark, value: str) -> float | None:
    records = end.records - begin.records
    taken: float = getattr(end, value) - getattr(begin, value)
    return taken / records * 1e6 if records > 0 else None
