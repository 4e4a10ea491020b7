"""What Flink's autoscaler knows of a running job: its vertices, and their metrics over a window of time.

The rules are those of release 1.10.0 of the Flink Kubernetes operator, module flink-autoscaler (Apache License 2.0).
Arithmetic is that of IEEE 754: nothing is raised, an unknown number is NaN and a vertex without work is infinitely
fast.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from enum import StrEnum

from .flink_options import FlinkOptions

_EXACT = 1e15  # beyond it, a double has no third decimal


@dataclass(frozen=True)
class Vertex:
    """A vertex of the job's graph; ``keyed`` if any input comes by hash, ``partitions`` of its source, 0 if unknown."""

    name: str
    inputs: tuple[str, ...]
    keyed: bool
    parallelism: int
    max_parallelism: int
    partitions: int = 0


class FlinkMetric(StrEnum):
    """Metrics that are collected of a vertex.

    ``records_in``, ``records_out`` and ``busy`` (milliseconds over all subtasks) count from the start of the job.
    ``load`` is the share of time that the busiest subtask is busy; ``observed`` the records per second a source takes
    while it catches up; ``lag`` the records that wait at a source.
    """

    RECORDS_IN = "records_in"
    RECORDS_OUT = "records_out"
    LOAD = "load"
    BUSY = "busy"
    OBSERVED = "observed"
    LAG = "lag"


Sample = Mapping[FlinkMetric, float]


@dataclass(frozen=True)
class MetricWindow:
    """Samples of every vertex at ``times``, seconds; a metric that a sample lacks is unknown at that time."""

    times: Sequence[float]
    samples: Mapping[str, Sequence[Sample]]

    def rate(self, vertex: str, metric: FlinkMetric) -> float:
        """Growth per second of a metric, from its first known value to its last; NaN with fewer than two."""
        known = self._known(vertex, metric)
        if len(known) < 2:
            return math.nan
        (first, low), (last, high) = known[0], known[-1]
        return 1000 * (high - low) / round(1000 * (last - first))  # Flink's clock counts milliseconds

    def average(self, vertex: str, metric: FlinkMetric, at_least: int = 1) -> float:
        """Mean of the finite values: infinite if there are only infinite ones, NaN with fewer than ``at_least``."""
        values = [value for _, value in self._known(vertex, metric)]
        finite = [value for value in values if math.isfinite(value)]
        if values and not finite:
            return math.inf
        return sum(finite) / len(finite) if len(finite) >= at_least else math.nan

    def latest(self, vertex: str, metric: FlinkMetric, otherwise: float) -> float:
        """Value of the last sample, or ``otherwise`` if that lacks it."""
        return self.samples[vertex][-1].get(metric, otherwise)

    def _known(self, vertex: str, metric: FlinkMetric) -> list[tuple[float, float]]:
        """Times and values of a metric where it is known."""
        pairs = zip(self.times, self.samples.get(vertex, ()), strict=True)
        return [(time, sample[metric]) for time, sample in pairs if not math.isnan(sample.get(metric, math.nan))]


def observed_rate(rate: float, lag: float, held_up: float, before: float, options: FlinkOptions) -> float:
    """What a source would take per second if nothing held it up, seen while it catches up.

    ``rate`` is what it takes, records per second; ``held_up`` the share of time that its successors hold it up;
    ``before`` the mean of earlier observations, which stands in while there is nothing to catch up with.
    """
    if rate == 0:
        return math.inf
    if lag < options.observed_lag * rate or held_up >= 1:
        return before
    return rate / (1 - held_up)


def rounded(value: float) -> float:
    """To three decimals, halves away from zero, as metrics are kept; what would become 0 stays as it is."""
    if not abs(value) < _EXACT:
        return value
    return float(Decimal(repr(value)).quantize(Decimal("0.001"), ROUND_HALF_UP)) or value


def quotient(above: float, below: float) -> float:
    """``above`` / ``below`` by IEEE 754: over 0 it is infinite, or NaN where there is nothing above."""
    if below == 0:
        return math.nan if above == 0 or math.isnan(above) else math.copysign(math.inf, above)
    return above / below
