"""What a simulated run leaves behind: its batches, its rescales, what it cost, and what the policy was told."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from millrace_operator.scaling.observation import Answer
from millrace_operator.scaling.plans import Shape

from .latency import Latencies

LATE_INTERVALS = 2
"""Records are late whose latency is more than so many batch intervals."""


class SimulatedBatch(NamedTuple):
    """One finished batch.

    Attributes:
        planned: when it began, seconds.
        seconds: its processing time; a failed attempt is part of it.
        rows: its records.
        oldest, newest: when the first and the last of them came, seconds.
        backlog: records that waited at the source when it ended.
        distinct: its distinct keys.
        epoch, plan: what it ran under.
        executors: those that were ready when it began.
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
    """A change of plan which the policy asked for at ``time``, seconds."""

    time: float
    before: Shape
    after: Shape


class PolicyAnswer(NamedTuple):
    """What the policy was told at ``time``, seconds."""

    time: float
    answer: Answer | None


@dataclass(frozen=True, eq=False)
class Run:
    """A simulated run.

    Arrays have the shape (batches,) and are in the order of the batches; their meaning is that of ``SimulatedBatch``.

    Attributes:
        scenario: its name.
        policy: its name.
        seed: of all that was random.
        duration: seconds that were simulated; the last batch may end later.
        interval: batch interval, seconds.
        batches: all that ended.
        rescales: changes of plan, in the order of time.
        core_seconds: of executors, and of dedicated partitioner pods, until ``duration``.
        arrived: records that came until ``duration``.
        unfinished: those of them that are in no finished batch, and when the first of them came, seconds.
        told: what the policy was told, at each of its steps.
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
    told: tuple[PolicyAnswer, ...]

    @cached_property
    def start(self) -> NDArray[np.float64]:
        """When batches began, seconds."""
        return self._column("planned")

    @cached_property
    def seconds(self) -> NDArray[np.float64]:
        """Processing times, seconds."""
        return self._column("seconds")

    @cached_property
    def end(self) -> NDArray[np.float64]:
        """When batches ended, seconds."""
        return self.start + self.seconds

    @cached_property
    def rows(self) -> NDArray[np.float64]:
        """Records of batches."""
        return self._column("rows")

    @cached_property
    def backlog(self) -> NDArray[np.float64]:
        """Records that waited at the source when batches ended."""
        return self._column("backlog")

    @cached_property
    def distinct(self) -> NDArray[np.float64]:
        """Distinct keys of batches."""
        return self._column("distinct")

    @cached_property
    def epoch(self) -> NDArray[np.float64]:
        """Epochs of the plans that batches ran under."""
        return self._column("epoch")

    @cached_property
    def executors(self) -> NDArray[np.float64]:
        """Executors that were ready when batches began."""
        return self._column("executors")

    @property
    def utilization(self) -> NDArray[np.float64]:
        """W of paper 004, Algorithm 4: processing time over batch interval."""
        return self.seconds / self.interval

    @property
    def core_hours(self) -> float:
        """Core seconds in hours."""
        return self.core_seconds / 3600

    @cached_property
    def largest_backlog(self) -> int:
        """Most records that waited at the source at the end of a batch, or were in no finished batch in the end."""
        return max([self.unfinished, *(batch.backlog for batch in self.batches)])

    @cached_property
    def latencies(self) -> Latencies:
        """Latency of all records; those in no finished batch have what it would be if it ended with the run."""
        low = self.end - self._column("newest")
        high = self.end - self._column("oldest")
        waited = max(self.duration - self.unfinished_since, 0.0)
        return Latencies(np.append(low, 0.0), np.append(high, waited), np.append(self.rows, self.unfinished))

    @property
    def late_rows(self) -> float:
        """Records with a latency over ``LATE_INTERVALS`` batch intervals."""
        return self.latencies.above(LATE_INTERVALS * self.interval)

    def _column(self, name: str) -> NDArray[np.float64]:
        return np.array([getattr(batch, name) for batch in self.batches], dtype=np.float64)
