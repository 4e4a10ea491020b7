"""The shape of a job, which scaling changes: its executors, parallelism and replicas, and the bounds of each."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from millrace_support.batch_cost import fitted_tasks

Vector = NDArray[np.float64]
"""An array of numbers; each use documents its shape."""


@dataclass(frozen=True, order=True)
class Shape:
    """The shape of a job: ``executors``, ``parallelism`` n of combine tasks, and ``replicas`` m of the partitioner."""

    executors: int
    parallelism: int
    replicas: int

    def fitted(self, ready: int, executor_cores: int) -> Shape:
        """Return the shape with the tasks that a driver runs while only so many of its executors are ready."""
        planned, cores = self.executors * executor_cores, ready * executor_cores
        parallelism, replicas = (fitted_tasks(tasks, planned, cores) for tasks in (self.parallelism, self.replicas))
        return replace(self, parallelism=parallelism, replicas=replicas)

    def runs_as(self, parallelism: int, replicas: int, executor_cores: int) -> bool:
        """Return whether these are the tasks of the shape, with all of its executors or with fewer that are ready.

        A driver may keep more replicas than fit, to read what waits.
        """
        if not self.executors:
            return (parallelism, replicas) == (self.parallelism, self.replicas)
        waves = math.ceil(self.parallelism / (self.executors * executor_cores))
        least = self.fitted(math.ceil(parallelism / (waves * executor_cores)), executor_cores)
        return least.parallelism == parallelism and least.replicas <= replicas <= self.replicas

    def __str__(self) -> str:
        return f"{self.executors}/{self.parallelism}/{self.replicas}"


@dataclass(frozen=True)
class Range:
    """The numbers from ``low`` to ``high``, both included."""

    low: int
    high: int

    def __post_init__(self) -> None:
        if not 1 <= self.low <= self.high:
            raise ValueError(f"a range goes from 1 or more upwards, not from {self.low} to {self.high}")

    def __contains__(self, value: int) -> bool:
        return self.low <= value <= self.high

    def nearest(self, value: int) -> int:
        """Return the number of the range that is nearest to ``value``."""
        return max(self.low, min(value, self.high))


@dataclass(frozen=True)
class Network:
    """The bytes per second that the network of an executor receives and sends at most; infinite if unknown."""

    receives: float = math.inf
    sends: float = math.inf


@dataclass(frozen=True)
class Bounds:
    """The bounds of shapes, and what shapes cost: each executor has ``executor_cores`` cores.

    ``replica_cores`` is what a partitioner replica takes in its own pod. It is 0 if replicas are tasks of the job's
    executors. ``network`` is None if nothing is known of an executor's network. ``rests`` says whether a job without
    records may also have no executor: never one that has batches, so that ``executors`` begins at 1.
    """

    executors: Range
    parallelism: Range
    replicas: Range
    executor_cores: int = 2
    replica_cores: float = 0.0
    network: Network | None = None
    rests: bool = False

    def __contains__(self, shape: Shape) -> bool:
        return self.nearest(shape) == shape

    @property
    def dedicated(self) -> bool:
        """Whether partitioner replicas have their own pods."""
        return self.replica_cores > 0

    def with_minimum(self, executors: int) -> Bounds:
        """Return the bounds with at least so many executors, as far as their maximum allows."""
        low, high = self.executors.low, self.executors.high
        return replace(self, executors=Range(min(max(low, executors), high), high), rests=self.rests and executors < 1)

    def nearest(self, shape: Shape) -> Shape:
        """Return the shape within bounds that is nearest to ``shape``."""
        return Shape(
            0 if self.rests and not shape.executors else self.executors.nearest(shape.executors),
            self.parallelism.nearest(shape.parallelism),
            self.replicas.nearest(shape.replicas),
        )

    def cores(self, shape: Shape) -> float:
        """Return the cores that a shape takes: those of its executors, and of replicas in their own pods."""
        return shape.executors * self.executor_cores + shape.replicas * self.replica_cores
