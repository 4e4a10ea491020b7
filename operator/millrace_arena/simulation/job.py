"""The simulated job: the true costs of its batches and the work of each task of a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from millrace_arena.simulation.admission import AdmissionPolicy, TwoIntervals
from millrace_arena.simulation.keys import Keys
from millrace_arena.simulation.placement import SimulatedPartitioner, key_shares, merge_shares, row_shares
from millrace_operator.scaling.shape import Bounds


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
        idle: time of a batch without records, seconds.
        schedule: time the driver takes to launch a task, seconds; it launches tasks one after the other.
        contention: share by which each further busy core slows all of them down (memory, network): c cores do the work
            of c / (1 + contention * (c - 1)). This is Gunther's Universal Scalability Law without its coherency term.
        route, combine, merge: costs of the stages.
        state_partitions: number of merge tasks.
        partitioner: assignment of records to combine tasks.
        panes: event-time panes over which the records of a batch are spread evenly; each has its own results.
        noise: random differences between batches.
        max_rows: most records of a batch; None for no limit.
        admission: factory of a further limit on batches, called with the interval.
    """

    interval: float = 2.0
    fixed: float = 0.25
    idle: float = 0.02
    schedule: float = 0.002
    contention: float = 0.005
    route: StageCost = field(default=StageCost(task=0.015, row=1.5e-6, block=3e-4))
    combine: StageCost = field(default=StageCost(task=0.015, row=3e-6, block=3e-4, partial=2e-6))
    merge: StageCost = field(default=StageCost(task=0.010, partial=1e-5))
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
        """Return the noise-free seconds of each task for a batch with ``rows`` records and ``partials`` results."""
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
    """The simulated job on executors of a known size."""

    def __init__(self, profile: JobProfile, bounds: Bounds) -> None:
        self.profile = profile
        self.executor_cores = bounds.executor_cores
        self.dedicated = bounds.dedicated
        self._work: dict[tuple[int, int, Keys], SimulatedWork] = {}

    def work(self, n: int, m: int, keys: Keys) -> SimulatedWork:
        """Return the work of a batch with ``n`` combine tasks and ``m`` replicas."""
        work = self._work.get((n, m, keys))
        if work is None:
            work = self._work[n, m, keys] = self._new_work(n, m, keys)
        return work

    def slowdown(self, tasks: int, cores: int) -> float:
        """Return the factor by which contention lengthens ``tasks`` tasks on ``cores`` cores."""
        return 1 + self.profile.contention * (min(tasks, cores) - 1)

    def partials(self, n: int, keys: Keys, rows: float) -> float:
        """Return the expected partial results of a batch: distinct keys per pane and combine task, summed."""
        return self.profile.panes * self.profile.partitioner.partials(keys, rows / self.profile.panes, n)

    def results(self, keys: Keys, rows: float) -> float:
        """Return the expected results of a batch: distinct keys per pane, summed."""
        return self.profile.panes * keys.appearing(rows / self.profile.panes)

    def _new_work(self, n: int, m: int, keys: Keys) -> SimulatedWork:
        profile = self.profile
        shares = row_shares(profile.partitioner, keys, n)
        stages = (
            _stage("route", profile.route, n, (1 / m,) * m, (0.0,) * m),
            _stage("combine", profile.combine, m, shares, key_shares(profile.partitioner, keys, n)),
            _stage("merge", profile.merge, 0, None, merge_shares(keys, profile.state_partitions)),
        )
        return SimulatedWork(stages[1:] if self.dedicated else stages, max(shares) * n - 1)


def _stage(
    name: str, cost: StageCost, blocks: int, rows: tuple[float, ...] | None, partials: tuple[float, ...]
) -> StageWork:
    """Return the work of a stage whose tasks have the given shares of the records and of the partial results.

    Each task writes or reads ``blocks`` blocks; ``rows`` is None if the stage gets no records.
    """
    return StageWork(
        name,
        (cost.task + blocks * cost.block,) * len(partials),
        tuple(share * cost.row for share in rows) if rows is not None else (0.0,) * len(partials),
        tuple(share * cost.partial for share in partials),
    )
