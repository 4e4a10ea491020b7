"""The figures of a run, under keys by which claims, plots and tables look them up, and how they are written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple, Self

REPLICAS = (1, 2, 4, 8)
"""Numbers of partitioners, m, that experiments with several sources have."""

_DIGITS = 6
"""Significant digits that are kept: verdicts must come out alike from a run and from its file."""


class Run(NamedTuple):
    """A run of an ``experiment`` on a ``stream``, with ``algorithm`` by its name in the paper."""

    experiment: str
    stream: str
    algorithm: str
    workers: int
    replicas: int = 1


@dataclass
class PaperFigures:
    """All measured figures: numbers, and series of numbers over the slides of a stream.

    Figures are looked up for ``replicas`` partitioners unless a call says otherwise.
    """

    numbers: dict[Run, dict[str, float]] = field(default_factory=dict)
    series: dict[Run, dict[str, list[float]]] = field(default_factory=dict)
    replicas: int = 1

    def with_replicas(self, replicas: int) -> PaperFigures:
        """Return the same figures, looked up for another number of partitioners."""
        return replace(self, replicas=replicas)

    def add(self, run: Run, **figures: float) -> None:
        """Add the numbers of one run. Raise ValueError if one of them is already known."""
        known = self.numbers.setdefault(run, {})
        for figure, number in figures.items():
            if figure in known:
                raise ValueError(f"there are two figures {figure} for {run}; give one of the experiments another name")
            known[figure] = _rounded(number)

    def add_series(self, run: Run, **series: Sequence[float]) -> None:
        """Add figures by slide of one run."""
        self.series.setdefault(run, {}).update({name: [_rounded(x) for x in values] for name, values in series.items()})

    def update(self, others: PaperFigures) -> None:
        """Add the figures of another experiment. Raise ValueError if one of them is already known."""
        for run, found in others.numbers.items():
            self.add(run, **found)
        self.series.update(others.series)

    def renew(self, others: PaperFigures) -> None:
        """Add figures, in place of those that are known of the same runs. Other known runs stay."""
        self.numbers |= others.numbers
        self.series |= others.series

    def of(
        self, experiment: str, stream: str, algorithm: str, workers: int, figure: str, *, replicas: int | None = None
    ) -> float:
        """Return one number. Raise KeyError if it was not measured."""
        return self.numbers[Run(experiment, stream, algorithm, workers, replicas or self.replicas)][figure]

    def runs(self, experiment: str) -> list[tuple[str, int]]:
        """Return the pairs of stream and number of workers of an experiment, in the order of the run."""
        runs = (run for run in self.numbers if run.experiment == experiment and run.replicas == self.replicas)
        return list(dict.fromkeys((run.stream, run.workers) for run in runs))

    def each(self, experiment: str, algorithm: str, figure: str) -> list[float]:
        """Return the figure in each of ``runs``, in their order."""
        return [self.of(experiment, stream, algorithm, workers, figure) for stream, workers in self.runs(experiment)]

    def write(self, file: Path) -> None:
        """Write all figures as JSON, one line per run."""
        rows = [json.dumps([*run, found]) for kind in (self.numbers, self.series) for run, found in kind.items()]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("[\n" + ",\n".join(rows) + "\n]\n")

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read the figures that ``write`` wrote."""
        figures = cls()
        for *run, found in json.loads(file.read_text()):
            kind = figures.series if isinstance(next(iter(found.values())), list) else figures.numbers
            kind[Run(*run)] = found
        return figures


def _rounded(number: float) -> float:
    return float(f"{float(number):.{_DIGITS}g}")


def short(number: float) -> str:
    """Format a number with two significant digits, or as a whole number from 100 on."""
    # two digits of 99.5 would be 1e+02
    return f"{number:.2g}" if abs(number) < 99.5 else f"{number:,.0f}"


def spread(numbers: Iterable[float], form: Callable[[float], str] = short) -> str:
    """Format the range from the smallest to the largest of some numbers."""
    ordered = sorted(numbers)
    low, high = form(ordered[0]), form(ordered[-1])
    return low if low == high else f"{low} to {high}"


def flat(lists: Iterable[Iterable[float]]) -> list[float]:
    """Return the numbers of several lists in one."""
    return list(chain.from_iterable(lists))


def row(values: Iterable[float], form: str = "{:.2f}") -> str:
    """Format numbers one after the other."""
    return ", ".join(form.format(value) for value in values)
