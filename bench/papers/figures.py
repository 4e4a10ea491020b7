"""The figures of a run, by what they belong to, so that claims, plots and tables can look them up."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self


class Key(NamedTuple):
    """Which figure: ``experiment`` on ``stream`` under ``algorithm``, by its name in the paper, on ``workers``."""

    experiment: str
    stream: str
    algorithm: str
    workers: int
    figure: str


@dataclass
class Figures:
    """All that was measured: numbers, and rows of numbers over the slides of a stream."""

    numbers: dict[Key, float] = field(default_factory=dict)
    series: dict[Key, list[float]] = field(default_factory=dict)

    def add(self, experiment: str, stream: str, algorithm: str, workers: int, **figures: float) -> None:
        """Note numbers of one run. Raises ValueError where one is there already."""
        for figure, number in figures.items():
            key = Key(experiment, stream, algorithm, workers, figure)
            if key in self.numbers:
                raise ValueError(f"there are two figures for {key}; give one of the experiments another name")
            self.numbers[key] = float(number)

    def of(self, experiment: str, stream: str, algorithm: str, workers: int, figure: str) -> float:
        """One number. Raises KeyError where it was not measured."""
        return self.numbers[Key(experiment, stream, algorithm, workers, figure)]

    def runs(self, experiment: str) -> list[tuple[str, int]]:
        """The streams of an experiment and the numbers of workers each was run on, in the order of the run."""
        return list(dict.fromkeys((key.stream, key.workers) for key in self.numbers if key.experiment == experiment))

    def each(self, experiment: str, algorithm: str, figure: str) -> list[float]:
        """The figure in each of ``runs``, in their order."""
        return [self.of(experiment, stream, algorithm, workers, figure) for stream, workers in self.runs(experiment)]

    def write(self, file: Path) -> None:
        """Write all as JSON, one row per number or series."""
        rows = [[*key, value] for key, value in (self.numbers | self.series).items()]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(rows, indent=0))

    @classmethod
    def read(cls, file: Path) -> Self:
        """The figures that ``write`` wrote."""
        figures = cls()
        for *key, value in json.loads(file.read_text()):
            if isinstance(value, list):
                figures.series[Key(*key)] = value
            else:
                figures.numbers[Key(*key)] = value
        return figures


def share(holds: Iterable[bool]) -> float:
    """The fraction of cases in which something holds."""
    cases = list(holds)
    return sum(cases) / len(cases)


def short(number: float) -> str:
    """Two significant digits, or whole from 100 on."""
    return f"{number:.2g}" if abs(number) < 100 else f"{number:,.0f}"


def spread(numbers: Iterable[float], form: Callable[[float], str] = short) -> str:
    """The least and the largest of some numbers, as text."""
    ordered = sorted(numbers)
    low, high = form(ordered[0]), form(ordered[-1])
    return low if low == high else f"{low} to {high}"
