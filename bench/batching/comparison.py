"""What a figure of the paper shows, beside what was measured here."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bench.batching.tasks import TaskFigures
from millrace_operator.capacity.flow import Flow, FlowOperator, StreamConnection


@dataclass(frozen=True)
class PaperComparison:
    """One line of the report.

    Attributes:
        figure: number of the figure.
        what: the ratio, or other number without a unit of the machine.
        paper: its value in the paper.
        ours: its value here, with the spread of the rounds.
        agrees: whether the order, or the statement, is the paper's; None where the paper states nothing.
    """

    figure: str
    what: str
    paper: str
    ours: str
    agrees: bool | None = None


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Return the median of some rounds and their range."""
    low, high = f"{min(values):,.{digits}f}", f"{max(values):,.{digits}f}"
    middle = f"{statistics.median(values):,.{digits}f}"
    return middle if low == high else f"{middle} ({low} to {high})"


def capacity(figures: TaskFigures) -> float:
    """Return the records that a task takes in for each second of processor time (equation 3.5).

    It is what the task would do with a processor of its own, however busy the machine is with other things.
    """
    return figures.records / figures.processor


def spouts_and_bolt(spouts: Sequence[str]) -> Flow:
    """Return a flow of some sources and one consumer of all of them."""
    sources = [FlowOperator(name) for name in spouts]
    return Flow([*sources, FlowOperator("bolt", dict.fromkeys(spouts, StreamConnection.HASH))])
