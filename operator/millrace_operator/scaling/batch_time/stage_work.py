"""The stages of a micro-batch, the work of their tasks under a shape, and when the last task of a stage is done.

Each stage is an operator of paper 002. Its task fetches its share of the batch at once and emits one block for each
task of the next stage. A record costs c_p = c_fetch / b_in + c_cpu + s * c_emit / b_out (equation 3.8), with b_in the
records of a task and b_out those of a block. Multiplied by the records of a task (3.7), that is ``task + record *
records + block * blocks``. Partial results, of which there are fewer than records, cost ``group`` each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from ..shape import Vector
from .skew import Skew, chance

_TINY = 1e-12

TASK, RECORD, BLOCK, GROUP = range(4)
"""The kinds of cost of a stage, in this order: seconds of one core for a task, a record, a block sent, a group."""


class Tasks(StrEnum):
    """The setting that a stage's number of tasks follows."""

    REPLICAS = "replicas"
    PARALLELISM = "parallelism"
    PARTITIONS = "partitions"


class Skewed(StrEnum):
    """The cause of uneven tasks in a stage: the records of its keys, or the chance that places its groups."""

    EVEN = "even"
    KEYS = "keys"
    PLACEMENT = "placement"


@dataclass(frozen=True)
class JobStage:
    """A stage of a job: what its number of tasks follows, and what makes its tasks uneven.

    A job's stages run one after the other. Each sends blocks to the tasks of the next.
    """

    name: str
    tasks: Tasks
    skewed: Skewed = Skewed.EVEN


ROUTE = JobStage("route", Tasks.REPLICAS)
COMBINE = JobStage("combine", Tasks.PARALLELISM, Skewed.KEYS)
MERGE = JobStage("merge", Tasks.PARTITIONS, Skewed.PLACEMENT)


@dataclass(frozen=True, eq=False)
class BatchWork:
    """The amounts of work in batches, one batch for each shape of the job.

    Attributes:
        tasks, blocks: tasks of a stage, and blocks that each of them sends; arrays ``(shapes, stages)``.
        imbalance: largest over mean amount of a task, minus 1, of what is uneven; array ``(shapes, stages)``.
        uneven: the kind of cost whose amount is uneven; array ``(stages,)``.
        cores, rows, groups: cores, records and partial results; arrays ``(shapes,)``.
    """

    tasks: Vector
    blocks: Vector
    imbalance: Vector
    uneven: NDArray[np.intp]
    cores: Vector
    rows: Vector
    groups: Vector

    @property
    def scheduled(self) -> Vector:
        """Tasks that the driver schedules, one after the other; array ``(shapes,)``."""
        return np.asarray(self.tasks.sum(axis=1))

    @property
    def beyond_one(self) -> Vector:
        """Busy cores in each stage beyond the first one; array ``(shapes, stages)``."""
        return np.asarray(np.minimum(self.tasks, self.cores[:, None]) - 1)

    @property
    def amounts(self) -> Vector:
        """Amounts of a mean task, by kind of cost; array ``(shapes, stages, 4)``."""
        amounts = np.empty((*self.tasks.shape, 4))
        amounts[..., TASK] = 1.0
        amounts[..., RECORD] = self.rows[:, None] / self.tasks
        amounts[..., BLOCK] = self.blocks
        amounts[..., GROUP] = self.groups[:, None] / self.tasks
        return amounts

    def features(self, costs: Vector) -> Vector:
        """Return how often each cost counts in its stage's time, without contention; array ``(shapes, stages, 4)``.

        The hot task has ``1 + imbalance`` times the mean of what is uneven, and the others have correspondingly less.
        ``costs``, an array ``(stages, 4)``, decide how much the hot task delays its stage.
        """
        counts = self.amounts
        stages = np.arange(len(self.uneven))
        more = self.imbalance * counts[:, stages, self.uneven]
        hot_seconds = more * costs[stages, self.uneven]
        others = np.maximum(self.tasks - 1, 1)
        ordinary = np.einsum("psk,sk->ps", counts, costs) - hot_seconds / others
        ratio = 1 + hot_seconds * (1 + 1 / others) / np.maximum(ordinary, _TINY)
        of_ordinary, of_hot = finishing(self.tasks, self.cores[:, None], ratio)
        counts *= (of_ordinary + of_hot)[..., None]
        counts[:, stages, self.uneven] += (of_hot - of_ordinary / others) * more
        return counts


def batch_work(
    stages: Sequence[JobStage],
    shapes: Vector,
    executor_cores: int,
    state_partitions: int,
    rows: Vector,
    groups: Vector,
    skew: Skew | Vector,
) -> BatchWork:
    """Return the work of batches with ``rows`` records and ``groups`` partial results, both arrays ``(shapes,)``.

    Args:
        shapes: executors, parallelism and replicas; array ``(shapes, 3)``.
        skew: skew of records among combine tasks; or their imbalance, array ``(shapes,)``.
    """
    executors, parallelism, replicas = shapes.T
    counts = {
        Tasks.REPLICAS: replicas,
        Tasks.PARALLELISM: parallelism,
        Tasks.PARTITIONS: np.full(len(shapes), float(state_partitions)),
    }
    imbalance = {}
    for skewed, tasks in {(stage.skewed, stage.tasks) for stage in stages}:
        of_tasks = np.zeros(len(shapes))
        if skewed is Skewed.KEYS:
            of_tasks = skew.imbalance(counts[tasks]) if isinstance(skew, Skew) else skew
        elif skewed is Skewed.PLACEMENT:
            of_tasks = chance(groups, counts[tasks])
        imbalance[skewed, tasks] = np.minimum(np.maximum(of_tasks, 0.0), counts[tasks] - 1)
    each = np.stack([counts[stage.tasks] for stage in stages], axis=1)
    return BatchWork(
        tasks=each,
        blocks=np.concatenate([each[:, 1:], np.zeros((len(shapes), 1))], axis=1),
        imbalance=np.stack([imbalance[stage.skewed, stage.tasks] for stage in stages], axis=1),
        uneven=np.array([GROUP if stage.skewed is Skewed.PLACEMENT else RECORD for stage in stages]),
        cores=executors * executor_cores,
        rows=rows,
        groups=groups,
    )


def finishing(tasks: Vector, cores: Vector, hot_ratio: Vector) -> tuple[Vector, Vector]:
    """Return a and b, the weights of an ordinary and of the hot task in the time of a stage, ``a * u + b * h``.

    u is the seconds of an ordinary task, h those of the hot task. Cores take the next task when they are free (list
    scheduling: Graham, Bounds on Multiprocessing Timing Anomalies, 1969). Every task takes u except one, which takes h
    and is as likely to be launched first as last. Cores launch in waves while tasks are alike. The hot task is in wave
    q of Q = ceil(tasks / cores) with probability cores / tasks; the last wave gets the rest. The stage ends with the
    hot task, at q * u + h, or with the others: after Q waves, with the hot task's excess spread over all cores. The
    expectation over q is a sum of few terms.

    The time is homogeneous in u and h, so a and b are its derivatives too (Euler).

    Args:
        tasks: number of tasks, at least 1.
        cores: number of cores, at least 1.
        hot_ratio: h / u, at least 1. All arguments have one shape, which is also the shape of a and b.
    """
    waves = np.ceil(tasks / cores)
    share = cores / tasks
    others = waves + (hot_ratio - 1) / cores
    late = np.minimum(np.maximum(np.floor(others - hot_ratio + 1e-9) + 1, 0), waves)
    before = np.minimum(late * share, 1.0)
    full = _sum_below(waves - 1) - _sum_below(np.minimum(late, waves - 1))
    start = share * full + np.where(late < waves, (waves - 1) * (1 - (waves - 1) * share), 0.0)
    return before * (waves - 1 / cores) + start, before / cores + (1 - before)


def _sum_below(high: Vector) -> Vector:
    """Return 0 + 1 + ... + (high - 1)."""
    return high * (high - 1) / 2
