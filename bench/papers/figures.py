"""The figures of a run, and the papers' claims beside them.

Figures have keys under which claims, plots and tables look them up. Claims make the table of ``docs/partitioning.md``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self


class FigureKey(NamedTuple):
    """The key of a figure: ``experiment`` on ``stream`` and ``workers``, and ``algorithm`` by its name in the paper."""

    experiment: str
    stream: str
    algorithm: str
    workers: int
    figure: str


@dataclass
class PaperFigures:
    """All measured figures: numbers, and series of numbers over the slides of a stream."""

    numbers: dict[FigureKey, float] = field(default_factory=dict)
    series: dict[FigureKey, list[float]] = field(default_factory=dict)

    def add(self, experiment: str, stream: str, algorithm: str, workers: int, **figures: float) -> None:
        """Add the numbers of one run. Raise ValueError if one of them is already known."""
        for figure, number in figures.items():
            key = FigureKey(experiment, stream, algorithm, workers, figure)
            if key in self.numbers:
                raise ValueError(f"there are two figures for {key}; give one of the experiments another name")
            self.numbers[key] = float(number)

    def of(self, experiment: str, stream: str, algorithm: str, workers: int, figure: str) -> float:
        """Return one number. Raise KeyError if it was not measured."""
        return self.numbers[FigureKey(experiment, stream, algorithm, workers, figure)]

    def runs(self, experiment: str) -> list[tuple[str, int]]:
        """Return the pairs of stream and number of workers of an experiment, in the order of the run."""
        return list(dict.fromkeys((key.stream, key.workers) for key in self.numbers if key.experiment == experiment))

    def each(self, experiment: str, algorithm: str, figure: str) -> list[float]:
        """Return the figure in each of ``runs``, in their order."""
        return [self.of(experiment, stream, algorithm, workers, figure) for stream, workers in self.runs(experiment)]

    def write(self, file: Path) -> None:
        """Write all figures as JSON, one row per number or series."""
        rows = [[*key, value] for key, value in (self.numbers | self.series).items()]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(rows, indent=0))

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read the figures that ``write`` wrote."""
        figures = cls()
        for *key, value in json.loads(file.read_text()):
            if isinstance(value, list):
                figures.series[FigureKey(*key)] = value
            else:
                figures.numbers[FigureKey(*key)] = value
        return figures


def share(holds: Iterable[bool]) -> float:
    """Return the fraction of cases in which something holds."""
    cases = list(holds)
    return sum(cases) / len(cases)


def short(number: float) -> str:
    """Format a number with two significant digits, or as a whole number from 100 on."""
    # two digits of 99.5 would be 1e+02
    return f"{number:.2g}" if abs(number) < 99.5 else f"{number:,.0f}"


def spread(numbers: Iterable[float], form: Callable[[float], str] = short) -> str:
    """Format the range from the smallest to the largest of some numbers."""
    ordered = sorted(numbers)
    low, high = form(ordered[0]), form(ordered[-1])
    return low if low == high else f"{low} to {high}"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a check: our figures as text, and the share of the checked cases in which the claim holds."""

    ours: str
    holds: float

    @property
    def verdict(self) -> str:
        """The verdict on the claim: "agrees", "disagrees" or "in part"."""
        return "agrees" if self.holds == 1 else "disagrees" if self.holds == 0 else "in part"


@dataclass(frozen=True)
class Claim:
    """A paper's claim about a partitioner's placement, and the check of whether it holds here."""

    name: str
    """The paper and a number, such as ``000.3``."""
    place: str
    """Where the paper makes the claim."""
    says: str
    """The claim in our words, with the paper's figure where its text has one."""
    check: Callable[[PaperFigures], Outcome]
    because: str = ""
    """Why our figure differs, if it does, or what it cannot show."""


def table(claims: Iterable[Claim], figures: PaperFigures) -> str:
    """Return the claims as a table in Markdown, with the papers' figures beside ours."""
    rows = ["| claim | the paper: figure, and where | ours | |", "|---|---|---|---|"]
    for claim in claims:
        outcome = claim.check(figures)
        verdict = f"**{outcome.verdict}**" + (f". {claim.because}" if claim.because else "")
        rows.append(f"| {claim.name} | {claim.says} ({claim.place}) | {outcome.ours} | {verdict} |")
    return "\n".join(rows)
