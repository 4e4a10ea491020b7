"""The simulated job: the true costs of its batches, the work of each task, its noise, and how long a stage takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from millrace_operator.scaling.shape import Bounds
from millrace_research.arena.simulation.keys import Keys
from millrace_research.arena.simulation.placement import SimulatedPartitioner, key_shares, merge_shares, row_shares
from millrace_research.arena.simulation.source import AdmissionPolicy, TwoIntervals


@dataclass(frozen=True)
class StageCost:
    """Cost of a stage in core seconds.

    Attributes:
        task: fixed cost of each task.
        row: cost of each record.
        block: cost of each block; every route task has one block for every combine task.
        partial: cost of each partial result.
    """

    task: float
    row: float = 0.0
    block: float = 0.0
    partial: float = 0.0


@dataclass(frozen=True)
class Noise:
    """Random differences between batches with the same work.

    Attributes:
        task: standard deviation of the logarithm of a task's time factor; the factor's mean is 1.
        batch: the same for a whole batch, fixed part included.
        slow: probability that a batch is held up (garbage collection, a slow commit).
        slow_seconds: mean delay of such a batch, exponentially distributed.
        failing: probability that a batch fails in one of its stages and is retried from the start.
        retry_seconds: time from the failure to the retry.
    """

    task: float = 0.10
    batch: float = 0.04
    slow: float = 0.001
    slow_seconds: float = 1.0
    failing: float = 0.0
    retry_seconds: float = 1.0


QUIET = Noise(task=0.0, batch=0.0, slow=0.0)
"""No noise at all."""


@dataclass(frozen=True)
class JobProfile:
    """Costs of a job whose stages are route (m tasks), combine (n tasks) and merge (one task per state partition).

    Attributes:
        interval: batch interval, seconds.
        fixed: time of every batch outside its stages, seconds.
        schedule: time the driver takes to launch a task, seconds; it launches tasks one after the other.
        contention: share by which each further busy core slows all of them down (memory, network): c cores do the work
            of c / (1 + contention * (c - 1)). This is Gunther's Universal Scalability Law without its coherency term.
        route, combine, merge: costs of the stages.
        pod_row: seconds that a dedicated partitioner pod needs for a record; None for those of ``route``.
        state_partitions: number of merge tasks.
        partitioner: assignment of records to combine tasks.
        panes: event-time panes over which the records of a batch are spread evenly; each has its own results.
        noise: random differences between batches.
        max_rows: most records of a batch; None for no limit.
        admission: factory of a further limit on batches, called with the interval.
    """

    interval: float = 2.0
    fixed: float = 0.25
    schedule: float = 0.002
    contention: float = 0.005
    route: StageCost = field(default=StageCost(task=0.015, row=1.5e-6, block=3e-4))
    combine: StageCost = field(default=StageCost(task=0.015, row=3e-6, block=3e-4, partial=2e-6))
    merge: StageCost = field(default=StageCost(task=0.010, partial=1e-5))
    pod_row: float | None = None
    state_partitions: int = 8
    partitioner: SimulatedPartitioner = SimulatedPartitioner.HASH
    panes: int = 1
    noise: Noise = field(default=Noise())
    max_rows: int | None = None
    admission: Callable[[float], AdmissionPolicy] = TwoIntervals


@dataclass(frozen=True)
class StageWork:
    """Core seconds of each task of a stage: ``constant + rows * per_row + partials * per_partial``."""

    name: str
    constant: tuple[float, ...]
    per_row: tuple[float, ...]
    per_partial: tuple[float, ...]

    def tasks(self, rows: float, partials: float) -> list[float]:
        """Return the noise-free seconds of each task, for ``rows`` records and ``partials`` partial results."""
        return [
            constant + rows * row + partials * partial
            for constant, row, partial in zip(self.constant, self.per_row, self.per_partial, strict=True)
        ]


@dataclass(frozen=True)
class SimulatedWork:
    """Work of the batches under one plan and with the same keys.

    Attributes:
        stages: stages in the order in which they run; a job with dedicated partitioners has no route stage.
        imbalance: largest record share of a combine task over the mean share, less 1.
    """

    stages: tuple[StageWork, ...]
    imbalance: float


class SimulatedJob:
    """The simulated job on executors of a known size; ``dedicated`` says whether its replicas run in pods now."""

    def __init__(self, profile: JobProfile, bounds: Bounds) -> None:
        self.profile = profile
        self.executor_cores = bounds.executor_cores
        self.dedicated = bounds.dedicated
        self._cached = cache(self._work)

    def work(self, n: int, m: int, keys: Keys) -> SimulatedWork:
        """Return the work of a batch with ``n`` combine tasks and ``m`` replicas."""
        return self._cached(n, m, keys, self.dedicated)

    def slowdown(self, tasks: int, cores: int) -> float:
        """Return the factor by which contention lengthens ``tasks`` tasks on ``cores`` cores."""
        return 1 + self.profile.contention * (min(tasks, cores) - 1)

    def partials(self, n: int, keys: Keys, rows: float) -> float:
        """Return the expected partial results of a batch: distinct keys per pane and combine task, summed."""
        return self.profile.panes * self.profile.partitioner.partials(keys, rows / self.profile.panes, n)

    def results(self, keys: Keys, rows: float) -> float:
        """Return the expected results of a batch: distinct keys per pane, summed."""
        return self.profile.panes * keys.appearing(rows / self.profile.panes)

    def _work(self, n: int, m: int, keys: Keys, dedicated: bool) -> SimulatedWork:
        profile = self.profile
        shares, merges = row_shares(profile.partitioner, keys, n), profile.state_partitions
        stages = (
            _stage("route", profile.route, n, (1 / m,) * m, (0.0,) * m),
            _stage("combine", profile.combine, m, shares, key_shares(profile.partitioner, keys, n)),
            _stage("merge", profile.merge, 0, (0.0,) * merges, merge_shares(keys, merges)),
        )
        return SimulatedWork(stages[1:] if dedicated else stages, max(shares) * n - 1)


def _stage(name: str, cost: StageCost, blocks: int, rows: tuple[float, ...], partials: tuple[float, ...]) -> StageWork:
    """Return the work of a stage whose tasks have these shares of the records and partial results, and these blocks."""
    return StageWork(
        name,
        (cost.task + blocks * cost.block,) * len(partials),
        tuple(share * cost.row for share in rows),
        tuple(share * cost.partial for share in partials),
    )


_BLOCK = 65_536
"""Number of random draws made at once, because single draws would dominate the simulation time."""


class BatchNoise:
    """Random factors and delays of one batch after another.

    Noise of a whole batch depends only on the trigger at which the batch began. It is therefore the same for every
    policy, regardless of how many batches and tasks ran before.

    Attributes:
        factors, delays: factor and delay of a batch that begins at each trigger.
        batch: factor applied to all times of the current batch.
        delay: time by which the current batch is held up, seconds.
    """

    def __init__(self, noise: Noise, triggers: int, rng: np.random.Generator) -> None:
        """Draw the batch-level noise for ``triggers`` triggers."""
        self._noise = noise
        batches, self._rng = rng.spawn(2)
        scatter = noise.batch * batches.standard_normal(triggers) - noise.batch**2 / 2
        self.factors: list[float] = np.exp(scatter).tolist()
        slow = batches.random(triggers) < noise.slow
        self.delays: list[float] = np.where(slow, batches.exponential(noise.slow_seconds, triggers), 0.0).tolist()
        self._fails = (batches.random(triggers) < noise.failing).tolist()
        self._where = batches.random(triggers).tolist()
        self._factors: list[float] = []
        self._used = 0
        self._trigger = 0
        self.batch = 1.0
        self.delay = 0.0

    def next_batch(self, trigger: int) -> None:
        """Move on to the batch that begins at this trigger, or between it and the next one."""
        self._trigger = trigger
        self.batch, self.delay = self.factors[trigger], self.delays[trigger]

    def failing(self, stages: int) -> int:
        """Return the stage, 1 to ``stages``, in which this batch fails; 0 if it does not fail."""
        return int(self._where[self._trigger] * stages) + 1 if self._fails[self._trigger] else 0

    def scatter(self, tasks: list[float], factor: float) -> list[float]:
        """Return the actual seconds of ``tasks``: each one times its own random factor and the common ``factor``."""
        if not self._noise.task:
            return [task * factor for task in tasks]
        end = self._used + len(tasks)
        if end > len(self._factors):
            scatter = self._noise.task
            draws = self._rng.standard_normal(max(_BLOCK, len(tasks)))
            self._factors = np.exp(scatter * draws - scatter**2 / 2).tolist()
            self._used, end = 0, len(tasks)
        factors = self._factors[self._used : end]
        self._used = end
        return [task * own * factor for task, own in zip(tasks, factors, strict=True)]


def makespans(tasks: NDArray[np.float64], cores: int, gap: float = 0.0) -> NDArray[np.float64]:
    """Return the makespan of many stages at once: seconds of shape (..., tasks) in, of shape (...) out."""
    count = tasks.shape[-1]
    free = np.zeros((*tasks.shape[:-1], min(cores, count)))
    for task in range(count):
        first = free.argmin(axis=-1)[..., np.newaxis]
        start = np.maximum(np.take_along_axis(free, first, axis=-1), (task + 1) * gap)
        np.put_along_axis(free, first, start + tasks[..., task, np.newaxis], axis=-1)
    last: NDArray[np.float64] = free.max(axis=-1, initial=0.0)
    return last
