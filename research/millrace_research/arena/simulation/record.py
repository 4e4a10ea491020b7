"""The record of a simulated run: its batches, its rescales, its cost, and the latencies of its records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from millrace_operator.scaling.shape import Shape

LATE_INTERVALS = 2
"""Batch intervals of latency beyond which a record is late."""
REVERSED_WITHIN = 900.0
"""Seconds within which a rescale in the other direction is a reversal."""


class SimulatedBatch(NamedTuple):
    """One finished batch.

    Attributes:
        planned: start time, seconds.
        seconds: processing time, including a failed attempt.
        rows: number of records.
        oldest, newest: arrival times of the first and the last record, seconds.
        backlog: records waiting at the source when the batch ended.
        distinct: number of distinct keys.
        epoch, plan: epoch and plan that the batch ran under.
        executors: executors that were ready when the batch began.
    """

    planned: float
    seconds: float
    rows: int
    oldest: float
    newest: float
    backlog: int
    distinct: int
    epoch: int
    plan: Shape
    executors: int


class Rescale(NamedTuple):
    """A change of plan that the policy requested at ``time``, seconds.

    ``dedicated`` is whether replicas run in pods of their own from then on, which some policies decide.
    """

    time: float
    before: Shape
    after: Shape
    dedicated: bool = False


class Latencies:
    """Latencies of groups of records, from arrival at the source to the end of the batch.

    Each group is uniformly distributed from ``low`` to ``high`` seconds.
    """

    def __init__(self, low: NDArray[np.float64], high: NDArray[np.float64], records: NDArray[np.float64]) -> None:
        """Take three arrays of shape (groups,); groups without records are dropped."""
        some = records > 0
        self.low = low[some]
        self.high = np.maximum(high[some], self.low + 1e-9)  # no span is empty
        self.records = records[some]

    def above(self, seconds: float) -> float:
        """Return the number of records with a latency of more than ``seconds``."""
        share = np.clip((self.high - seconds) / (self.high - self.low), 0.0, 1.0)
        return float((share * self.records).sum())

    def quantiles(self, shares: Sequence[float]) -> NDArray[np.float64]:
        """Return the latency quantiles in seconds for ``shares`` between 0 and 1; NaN without records."""
        if not len(self.records):
            return np.full(len(shares), np.nan)
        density = self.records / (self.high - self.low)
        edges = np.concatenate((self.low, self.high))
        order = np.argsort(edges, kind="stable")
        edges = edges[order]
        height = np.cumsum(np.concatenate((density, -density))[order])
        below = np.concatenate(([0.0], np.cumsum(np.maximum(height[:-1], 0.0) * np.diff(edges))))
        found: NDArray[np.float64] = np.interp(np.asarray(shares) * below[-1], below, edges)
        return found


@dataclass(frozen=True, eq=False)
class SimulatedRun:
    """A simulated run.

    Arrays have the shape (batches,), in batch order; ``SimulatedBatch`` says what their values mean.

    Attributes:
        policy: name of the policy.
        duration: simulated time, seconds; the last batch may end later.
        interval: batch interval, seconds.
        batches: all finished batches.
        rescales: changes of plan, in order of time.
        core_seconds: core seconds of executors and dedicated partitioner pods until ``duration``.
        arrived: records that arrived until ``duration``.
        unfinished: arrived records that are in no finished batch.
        unfinished_since: arrival time of the first of those records, seconds.
    """

    policy: str
    duration: float
    interval: float
    batches: tuple[SimulatedBatch, ...]
    rescales: tuple[Rescale, ...]
    core_seconds: float
    arrived: int
    unfinished: int
    unfinished_since: float

    @cached_property
    def start(self) -> NDArray[np.float64]:
        """Start times of the batches, seconds."""
        return self._column("planned")

    @cached_property
    def seconds(self) -> NDArray[np.float64]:
        """Processing times of the batches, seconds."""
        return self._column("seconds")

    @cached_property
    def end(self) -> NDArray[np.float64]:
        """End times of the batches, seconds."""
        return self.start + self.seconds

    @cached_property
    def rows(self) -> NDArray[np.float64]:
        """Records per batch."""
        return self._column("rows")

    @cached_property
    def backlog(self) -> NDArray[np.float64]:
        """Records waiting at the source at the end of each batch."""
        return self._column("backlog")

    @cached_property
    def executors(self) -> NDArray[np.float64]:
        """Executors that were ready at the start of each batch."""
        return self._column("executors")

    @property
    def utilization(self) -> NDArray[np.float64]:
        """Processing time over batch interval: W of paper 004, Algorithm 4."""
        return self.seconds / self.interval

    @property
    def core_hours(self) -> float:
        """Core hours of executors and dedicated partitioner pods."""
        return self.core_seconds / 3600

    @property
    def largest_backlog(self) -> int:
        """Largest backlog at the end of a batch, or the unfinished records of the run if they are more."""
        return max([self.unfinished, *(batch.backlog for batch in self.batches)])

    @cached_property
    def latencies(self) -> Latencies:
        """Latencies of all records; unfinished ones count as if their batch ended with the run."""
        low = self.end - self._column("newest")
        high = self.end - self._column("oldest")
        waited = max(self.duration - self.unfinished_since, 0.0)
        return Latencies(np.append(low, 0.0), np.append(high, waited), np.append(self.rows, self.unfinished))

    @property
    def late_rows(self) -> float:
        """Records with a latency of more than ``LATE_INTERVALS`` batch intervals."""
        return self.latencies.above(LATE_INTERVALS * self.interval)

    def _column(self, name: str) -> NDArray[np.float64]:
        return np.array([getattr(batch, name) for batch in self.batches], dtype=np.float64)
