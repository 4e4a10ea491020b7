"""The processing time of a batch under shapes that have not run: Sax's costs, applied to a micro-batch's stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..shape import Shape, Vector
from .partials import Partials
from .record_sizes import RecordSizes
from .skew import Skew
from .stage_work import GROUP, ROUTE, BatchWork, JobStage, batch_work

FIXED = "fixed"
"""Name of the bottleneck if every stage takes less than the time that belongs to no stage."""

_Z = 1.645
"""Standard deviations around the mean that contain 90 % of a normal distribution."""

_WIDEST = 14.0
"""Largest distance of an end of an interval from its middle, as a logarithm: a factor of a million says nothing."""


@dataclass(frozen=True)
class BatchLoad:
    """The load of a batch: ``rows`` records in an ``interval`` of seconds, with ``keys`` distinct keys, if known."""

    rows: float
    interval: float
    keys: float | None = None


@dataclass(frozen=True, eq=False)
class Prediction:
    """Predicted seconds of one batch under each shape, ``(shapes,)``; ``low`` to ``high`` is their 90 % interval.

    ``least`` to ``most`` is the interval without what is added to it where few plans have run. ``fixed`` is the time
    outside the stages. ``stages`` is an array ``(shapes, stages)``, in the order of ``names``.
    """

    seconds: Vector
    low: Vector
    high: Vector
    least: Vector
    most: Vector
    fixed: Vector
    stages: Vector
    names: tuple[str, ...]

    def bottleneck(self, index: int) -> str:
        """Return the stage that takes longest under a shape, or ``fixed``."""
        stages = self.stages[index]
        longest = int(np.argmax(stages)) if len(stages) else 0
        return self.names[longest] if len(stages) and stages[longest] >= self.fixed[index] else FIXED


@dataclass(frozen=True, eq=False)
class BatchModel:
    """A model of what a job's batches cost, as last learned.

    Attributes:
        stages: the stages, S of them.
        costs: seconds of one core, array ``(S, 4)``.
        fixed: seconds that a batch takes outside its stages.
        schedule: seconds that the driver takes for each task, one after the other.
        contention: slowdown of all busy cores by each further one (sigma of Gunther's Universal Scalability Law,
            Guerrilla Capacity Planning, 2007): c cores do the work of c / (1 + contention * (c - 1)).
        spread: how the costs may vary together: changes of (fixed, schedule, contention, *costs) for independent normal
            deviates of 1; array ``(3 + 4 * S, deviates)``.
        scatter: standard deviation of a batch's seconds about the model's, as a share of them.
        few_plans: factor by which the costs are less certain than ``spread`` says, since few plans have run; 1 or more.
        executor_cores, state_partitions: cores of an executor, and state partitions of the job.
        skew, partials: skew and partial results of its newest batches; ``partials`` is None if unknown.
        dedicated: busy seconds of a partitioner pod for a record; None if replicas are tasks of the batch.
        keys: distinct keys of the newest batches, None if unknown.
        sizes: sizes of its records, None if unknown.
    """

    stages: tuple[JobStage, ...]
    costs: Vector
    fixed: float
    schedule: float
    contention: float
    spread: Vector
    scatter: float
    executor_cores: int
    state_partitions: int
    skew: Skew = field(default_factory=Skew)
    partials: Partials | None = None
    dedicated: float | None = None
    keys: float | None = None
    sizes: RecordSizes | None = None
    few_plans: float = 1.0

    def predict(self, shapes: Sequence[Shape], load: BatchLoad) -> Prediction:
        """Predict the time of a batch with this load under each of the shapes."""
        return self._predict(*self.work(shapes, load))

    def seconds(self, shape: Shape, rows: Sequence[float]) -> Prediction:
        """Predict the time of each of several batches under one shape, by their records."""
        each = np.array(rows, dtype=np.float64)
        return self._predict(*self._work(np.tile(_given([shape]), (len(rows), 1)), each, None))

    def _predict(self, work: BatchWork, deviation: Vector) -> Prediction:
        features = work.features(self.costs)
        beyond = work.beyond_one
        alone = np.einsum("psk,sk->ps", features, self.costs)
        stages = alone * (1 + self.contention * beyond)
        fixed = self.fixed + self.schedule * work.scheduled
        seconds = fixed + stages.sum(axis=1)
        features *= (1 + self.contention * beyond)[..., None]
        common = np.stack([np.ones_like(fixed), work.scheduled, (alone * beyond).sum(axis=1)], axis=1)
        # einsum: for products this small, the threads of a BLAS cost more time than they save
        deviates = np.einsum("pc,cd->pd", common, self.spread[:3])
        deviates += np.einsum("pk,kd->pd", features.reshape(len(fixed), self.costs.size), self.spread[3:])
        by_groups = features[..., GROUP] @ self.costs[:, GROUP] * deviation
        unsure = np.sqrt(np.sum(deviates**2, axis=1) + by_groups**2) / np.maximum(seconds, 1e-9)
        spreads = (np.hypot(unsure * more, self.scatter) for more in (1.0, self.few_plans))
        narrow, width = (np.exp(np.minimum(_Z * spread, _WIDEST)) for spread in spreads)
        return Prediction(
            seconds=seconds,
            low=seconds / width,
            high=seconds * width,
            least=seconds / narrow,
            most=seconds * narrow,
            fixed=fixed,
            stages=stages,
            names=tuple(stage.name for stage in self.stages),
        )

    def cost_interval(self, parts: Vector) -> tuple[float, float, float]:
        """Return a sum of costs in seconds with its 90 % interval, as wide as where few plans have run.

        ``parts`` are the multiples of (fixed, schedule, contention, *costs) that it has; array ``(3 + 4 * S,)``.
        """
        values = np.concatenate([[self.fixed, self.schedule, self.contention], self.costs.reshape(-1)])
        seconds = float(parts @ values)
        unsure = float(np.linalg.norm(parts @ self.spread)) / max(seconds, 1e-15) * self.few_plans
        factor = float(np.exp(min(_Z * unsure, _WIDEST)))
        return seconds, seconds / factor, seconds * factor

    def partitioner_load(self, replicas: NDArray[np.number], records_per_second: float) -> Vector:
        """Return the busy share of each of ``replicas`` partitioner pods; 0 if there are none or nothing is known."""
        return (self.dedicated or 0.0) * records_per_second / np.asarray(replicas, dtype=np.float64)

    def traffic(self, shapes: Sequence[Shape], load: BatchLoad) -> tuple[Vector, Vector] | None:
        """Return the bytes per second that each executor receives and sends, ``(shapes,)`` each; None if unknown."""
        if self.sizes is None:
            return None
        work, _ = self.work(shapes, load)
        executors = np.array([one.executors for one in shapes], dtype=np.float64)
        rates = work.rows / load.interval, work.groups / load.interval
        return self.sizes.traffic(*rates, executors, routes=ROUTE in self.stages)

    def work(self, shapes: Sequence[Shape], load: BatchLoad) -> tuple[BatchWork, Vector]:
        """Return the work under each shape, and the standard deviation of the logarithm of its groups."""
        return self._work(_given(shapes), np.full(len(shapes), load.rows), load.keys)

    def _work(self, given: Vector, rows: Vector, keys: float | None) -> tuple[BatchWork, Vector]:
        groups, deviation = np.zeros(len(rows)), np.zeros(len(rows))
        if self.partials is not None:
            groups = self.partials.predict(rows, given[:, 1])
            deviation = self.partials.deviation(rows, given[:, 1])
            if keys is not None and self.keys:
                groups = np.minimum(groups * keys / self.keys, rows)
        work = batch_work(self.stages, given, self.executor_cores, self.state_partitions, rows, groups, self.skew)
        return work, deviation


def _given(shapes: Sequence[Shape]) -> Vector:
    """Return executors, parallelism and replicas of the shapes; array ``(shapes, 3)``."""
    return np.array([(one.executors, one.parallelism, one.replicas) for one in shapes], dtype=np.float64).reshape(-1, 3)
