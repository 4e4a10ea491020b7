"""The record of a simulated run: its batches, its rescales, its cost, and the metrics the policy received."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from millrace_arena.simulation.latency import Latencies
from millrace_operator.scaling.observation import Answer
from millrace_operator.scaling.shape import Shape

LATE_INTERVALS = 2
"""Batch intervals of latency beyond which a record is late."""


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
    """A change of plan that the policy requested at ``time``, seconds."""

    time: float
    before: Shape
    after: Shape


class PolicyAnswer(NamedTuple):
    """The metrics that the policy received at ``time``, seconds."""

    time: float
    answer: Answer | None


@dataclass(frozen=True, eq=False)
class Run:
    """A simulated run.

    Arrays have the shape (batches,), in batch order; ``SimulatedBatch`` says what their values mean.

    Attributes:
        scenario: name of the scenario.
        policy: name of the policy.
        seed: seed of all random draws.
        duration: simulated time, seconds; the last batch may end later.
        interval: batch interval, seconds.
        batches: all finished batches.
        rescales: changes of plan, in order of time.
        core_seconds: core seconds of executors and dedicated partitioner pods until ``duration``.
        arrived: records that arrived until ``duration``.
        unfinished: arrived records that are in no finished batch.
        unfinished_since: arrival time of the first of those records, seconds.
        answers: metrics that the policy received, one entry for each of its steps.
    """

    scenario: str
    policy: str
    seed: int
    duration: float
    interval: float
    batches: tuple[SimulatedBatch, ...]
    rescales: tuple[Rescale, ...]
    core_seconds: float
    arrived: int
    unfinished: int
    unfinished_since: float
    answers: tuple[PolicyAnswer, ...]

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
    def distinct(self) -> NDArray[np.float64]:
        """Distinct keys per batch."""
        return self._column("distinct")

    @cached_property
    def epoch(self) -> NDArray[np.float64]:
        """Epochs of the plans that the batches ran under."""
        return self._column("epoch")

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

    @cached_property
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
