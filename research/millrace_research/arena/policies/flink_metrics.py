"""Input of Flink's autoscaler: its options, the vertices of a running job, and their metrics over a window of time.

Rules and defaults of release 1.10.0 of the Flink Kubernetes operator, module flink-autoscaler (Apache License 2.0).
Arithmetic follows IEEE 754: nothing is raised, an unknown number is NaN, and a vertex without work is infinitely fast.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from enum import StrEnum


@dataclass(frozen=True)
class FlinkOptions:
    """Options of the autoscaler, each with its published name after ``job.autoscaler.`` in a comment.

    Times are whole seconds. ``busy_from_total`` selects AVG as the aggregator of busy time instead of MAX.
    """

    target_utilization: float = 0.7  # target.utilization
    utilization_boundary: float = 0.3  # target.utilization.boundary
    metrics_window: int = 900  # metrics.window
    stabilization: int = 300  # stabilization.interval
    scale_down_interval: int = 3600  # scale-down.interval
    min_parallelism: int = 1  # vertex.min-parallelism
    max_parallelism: int = 200  # vertex.max-parallelism
    max_scale_down: float = 0.6  # scale-down.max-factor
    max_scale_up: float = 100_000.0  # scale-up.max-factor
    catch_up: int = 1800  # catch-up.duration
    restart: int = 300  # restart.time
    backlog_lag: int = 300  # backlog-processing.lag-threshold
    observed_lag: int = 30  # observed-true-processing-rate.lag-threshold
    observed_switch: float = 0.15  # observed-true-processing-rate.switch-threshold
    observed_samples: int = 2  # observed-true-processing-rate.min-observations
    block_ineffective: bool = False  # scaling.effectiveness.detection.enabled
    effectiveness: float = 0.1  # scaling.effectiveness.threshold
    history_age: int = 86_400  # history.max.age
    busy_from_total: bool = False  # metrics.busy-time.aggregator
    excluded: frozenset[str] = frozenset()  # vertex.exclude.ids


@dataclass(frozen=True)
class Vertex:
    """A vertex of the job graph.

    ``keyed`` says whether any input is hash-partitioned; ``partitions`` are those of its source, 0 if unknown.
    """

    name: str
    inputs: tuple[str, ...]
    keyed: bool
    parallelism: int
    max_parallelism: int
    partitions: int = 0


class FlinkMetric(StrEnum):
    """Metrics collected for a vertex.

    ``records_in``, ``records_out`` and ``busy`` (milliseconds over all subtasks) count from the start of the job.
    ``load`` is the busy share of the busiest subtask. ``observed`` is the records per second that a source reads while
    it catches up. ``lag`` is the number of records that wait at a source.
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
    """Samples of every vertex at ``times``, seconds; a metric missing from a sample is unknown at that time."""

    times: Sequence[float]
    samples: Mapping[str, Sequence[Sample]]

    def rate(self, vertex: str, metric: FlinkMetric) -> float:
        """Return the growth per second of a metric between its first and last known value; NaN with fewer than two."""
        known = self._known(vertex, metric)
        if len(known) < 2:
            return math.nan
        (first, low), (last, high) = known[0], known[-1]
        return 1000 * (high - low) / round(1000 * (last - first))  # Flink's clock counts milliseconds

    def average(self, vertex: str, metric: FlinkMetric, at_least: int = 1) -> float:
        """Return the mean of the finite values; infinity if all are infinite, NaN with fewer than ``at_least``."""
        values = [value for _, value in self._known(vertex, metric)]
        finite = [value for value in values if math.isfinite(value)]
        if values and not finite:
            return math.inf
        return sum(finite) / len(finite) if len(finite) >= at_least else math.nan

    def latest(self, vertex: str, metric: FlinkMetric, otherwise: float) -> float:
        """Return the value in the last sample, or ``otherwise`` if it is missing there."""
        return self.samples[vertex][-1].get(metric, otherwise)

    def _known(self, vertex: str, metric: FlinkMetric) -> list[tuple[float, float]]:
        """Return the times and values at which a metric is known."""
        pairs = zip(self.times, self.samples.get(vertex, ()), strict=True)
        return [(time, sample[metric]) for time, sample in pairs if not math.isnan(sample.get(metric, math.nan))]


def observed_rate(rate: float, lag: float, held_up: float, before: float, options: FlinkOptions) -> float:
    """Return the records per second that a source would read without back pressure, observed while it catches up.

    ``rate`` is its actual rate, records per second, and ``held_up`` the share of time it is back-pressured. ``before``
    is the mean of earlier observations, which is returned while there is no lag to catch up with.
    """
    if rate == 0:
        return math.inf
    if lag < options.observed_lag * rate or held_up >= 1:
        return before
    return rate / (1 - held_up)


def rounded(value: float) -> float:
    """Round to three decimals, halves away from zero, as Flink stores metrics, unless that would make the value 0."""
    if not abs(value) < 1e15:  # beyond it, a double has no third decimal
        return value
    return float(Decimal(repr(value)).quantize(Decimal("0.001"), ROUND_HALF_UP)) or value


def quotient(above: float, below: float) -> float:
    """Return ``above`` / ``below`` by IEEE 754: division by 0 gives infinity, or NaN if ``above`` is 0 or NaN."""
    if below == 0:
        return math.nan if above == 0 or math.isnan(above) else math.copysign(math.inf, above)
    return above / below


class Collector:
    """Samples of the vertices of a job that has been running since ``running_since``, seconds.

    A restart of the job discards its samples. After a restart the job stabilizes, and then a whole window has to pass
    before the first decision.
    """

    def __init__(self, running_since: float, options: FlinkOptions) -> None:
        self._stable_since = running_since + options.stabilization
        self._length = options.metrics_window
        self._times: list[float] = []
        self._samples: list[Mapping[str, Sample]] = []

    def add(self, time: float, samples: Mapping[str, Sample]) -> MetricWindow | None:
        """Return the window up to ``time``; None until the window is full and has at least two samples."""
        stable = (earlier for earlier in self._times if earlier >= self._stable_since)
        full_at = next(stable, time) + self._length
        self._times.append(time)
        self._samples.append(samples)
        if time < max(self._stable_since, full_at):
            return None
        old = sum(earlier < time - self._length for earlier in self._times)
        del self._times[:old], self._samples[:old]
        return self.window if len(self._times) > 1 else None

    @property
    def window(self) -> MetricWindow:
        """All samples of the window so far."""
        names = self._samples[0] if self._samples else {}
        return MetricWindow(tuple(self._times), {name: [sample[name] for sample in self._samples] for name in names})
