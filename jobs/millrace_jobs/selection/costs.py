"""Costs of a query's stages, learned from its batches (``fit_costs``), and the batch time they predict."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.partitioners.registry import NATIVE
from millrace_jobs.sketches.key_profile import KeyProfile
from millrace_support.batch_cost import COMBINE_TASK_SECONDS, HUBER, MEDIAN_ERROR, makespan

from .shadow import ShadowPlacement

_Floats = NDArray[np.float64]

TASK_SECONDS = 0.04
"""Seconds of one core that Spark takes for a task that has nothing to do."""


@dataclass(frozen=True, eq=False)
class Prior:
    """Costs of the stages before they are measured, in seconds of one core.

    ``combine`` is per task, per record and per partial result; ``merge`` is per batch and per partial result.
    ``route`` is per record and includes projection and cutting into blocks. ``slice_record`` is what Spark's own plan
    takes per record in the source's tasks; it is None if replicas combine their slices with the same code as workers.
    ``windows`` is the number of windows that a record is in.
    """

    route: float
    combine: _Floats
    merge: _Floats
    slice_record: float | None
    windows: int


def sql_prior(windows: int) -> Prior:
    """Return the prior for SQL with ``windows`` windows per record, which workers assemble from partial results."""
    return Prior(
        route=0.35e-6,
        combine=np.array([COMBINE_TASK_SECONDS, 0.1e-6, 0.5e-6 + 0.1e-6 * windows]),
        merge=np.array([0.05, 4e-6 + 0.5e-6 * windows]),
        slice_record=0.5e-6 + 0.12e-6 * windows,
        windows=windows,
    )


def python_prior() -> Prior:
    """Return the prior for Python aggregators, whose costs vary most: medium costs until they are measured."""
    return Prior(
        route=0.35e-6,
        combine=np.array([COMBINE_TASK_SECONDS, 0.6e-6, 15e-6]),
        merge=np.array([0.05, 25e-6]),
        slice_record=None,
        windows=1,
    )


@dataclass(frozen=True)
class CombineTask:
    """Work of one combine task: its records, its partial results by key and pane, and the seconds it took."""

    rows: int
    groups: int
    seconds: float


@dataclass(frozen=True)
class JoinLoad:
    """What a bucket of a join had to do in a batch.

    ``stage`` is the number of the join in the query, and ``task`` that of the task that has the bucket. ``rows`` came
    in, and ``pairs`` of rows matched; ``hot`` has the pairs of each hot key.
    """

    stage: int
    task: int
    bucket: int
    rows: int
    pairs: int
    hot: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class TaskLoads:
    """Loads that combine tasks would have in a batch of which ``read`` records are read.

    ``rows`` are the records that pass the filter and ``groups`` the partial results, both of shape ``(tasks,)``.
    """

    rows: _Floats
    groups: _Floats
    read: float

    def scaled(self, read: float) -> TaskLoads:
        """Return the loads of a batch of another size."""
        return TaskLoads(self.rows * (read / self.read), self.groups * (read / self.read), read)

    @property
    def imbalance(self) -> float:
        """Imbalance as a fraction: the largest load over the mean, less 1 (paper 000, Eq. 1)."""
        mean = float(self.rows.mean())
        return float(self.rows.max()) / mean - 1 if mean else 0.0


BATCHES = 32
"""Number of batches whose measurements each cost remembers."""

_MAX_TASKS = 64
"""Maximum number of tasks per batch whose measurements are used; they are spread evenly over all tasks."""

LOW_UTILIZATION = 0.5
"""Processing time, as a share of the batch interval, below which batches are far from filling the interval."""


@dataclass(frozen=True)
class MeasuredBatch:
    """Measurements of a finished batch.

    ``rows`` is the number of records read. ``seconds`` is the processing time; ``route_seconds`` and ``merge_seconds``
    are totals over all tasks. ``state_updates`` is the number of results that changed. ``tasks`` did the combining, and
    ``profile`` summarizes their keys; under Spark's own plan they are empty and None. ``utilization`` is W, and
    ``waiting`` is the backlog that the batch left. ``joins`` are the loads of a join's buckets.
    """

    number: int
    algorithm: str
    workers: int
    replicas: int
    rows: int
    seconds: float
    route_seconds: float
    merge_seconds: float
    state_updates: int
    tasks: tuple[CombineTask, ...]
    profile: KeyProfile | None
    utilization: float = 1.0
    waiting: int = 0
    joins: tuple[JoinLoad, ...] = ()

    @property
    def has_slack(self) -> bool:
        """Whether a shorter time would gain little.

        That is so if the time is far below the interval, or above it without a backlog larger than the batch. In the
        latter case a batch takes that long whatever its size, and could have held more records.
        """
        return self.utilization < LOW_UTILIZATION or (self.utilization > 1 and self.waiting <= self.rows)

    @property
    def groups(self) -> int:
        """Number of partial results that the tasks reported."""
        return sum(task.groups for task in self.tasks)


@dataclass(frozen=True)
class Resources:
    """Resources of a job: cores that run tasks, and state partitions, which are the tasks of the merge."""

    cores: int
    state_partitions: int


@dataclass(frozen=True)
class BatchTime:
    """Predicted seconds of a batch, by stage; ``rest`` is everything outside the stages."""

    route: float
    combine: float
    merge: float
    rest: float

    @property
    def stages(self) -> float:
        """Seconds of all stages together."""
        return self.route + self.combine + self.merge

    @property
    def total(self) -> float:
        """Seconds of the whole batch."""
        return max(self.stages + self.rest, 1e-3)


@dataclass(frozen=True, eq=False)
class AlgorithmCosts:
    """Costs of the stages, in seconds of one core.

    ``combine``, ``merge`` and ``slice_record`` are as in ``Prior``; ``route``, ``own`` and ``route_base`` are per
    record. ``route`` has the algorithms that were measured. ``own`` is what each partitioner alone takes, and
    ``route_base`` is what routing takes besides it.
    """

    combine: _Floats
    merge: _Floats
    route: Mapping[str, float]
    own: Mapping[str, float]
    route_base: float
    slice_record: float | None
    resources: Resources

    def route_record(self, algorithm: str) -> float:
        """Return the seconds to project, route and cut a record: as measured, or from the partitioner's own speed."""
        return self.route.get(algorithm, self.route_base + self.own.get(algorithm, 0.0))

    def predict(self, algorithm: str, loads: TaskLoads, replicas: int, rest: float) -> BatchTime:
        """Predict the time of a batch whose combine tasks have these loads; ``rest`` is seconds outside the stages."""
        cores = self.resources.cores
        merge = float(self.merge @ [1.0, loads.groups.sum()]) / min(cores, self.resources.state_partitions)
        combine = self.combine[0] + self.combine[1] * loads.rows + self.combine[2] * loads.groups
        route = self.route_record(algorithm)
        if algorithm != NATIVE:
            slices = [route * float(loads.rows.sum()) / replicas] * replicas
            return BatchTime(makespan(slices, cores), makespan(combine + TASK_SECONDS, cores), merge, rest)
        each = combine + route * loads.rows if self.slice_record is None else self.slice_record * loads.rows
        return BatchTime(0.0, makespan(each, cores), merge, rest)


_WorkSeconds = tuple[_Floats, _Floats]
"""Amounts of work and the seconds that they took, as ``fit_costs`` takes them."""


class Measurements:
    """Measurements from which costs are learned, of the last ``BATCHES`` batches for each cost."""

    def __init__(self, prior: Prior) -> None:
        self._prior = prior
        self._combine: deque[_WorkSeconds] = deque(maxlen=BATCHES)
        self._slices: deque[_WorkSeconds] = deque(maxlen=BATCHES)
        self._merge: deque[_WorkSeconds] = deque(maxlen=BATCHES)
        self._route: dict[str, deque[float]] = {}
        self._own: dict[str, float] = {}

    def add(self, batch: MeasuredBatch) -> None:
        """Add the measurements of a batch.

        Under ``native`` the tasks also read and route. Only the time for routing is known and subtracted, so their
        times count for combining only until workers have been measured.
        """
        if not batch.tasks:
            return
        native = batch.algorithm == NATIVE
        seconds = np.array([task.seconds for task in batch.tasks])
        if native:
            seconds = np.maximum(seconds - batch.route_seconds / len(seconds), 0.0)
        else:
            rates = self._route.setdefault(batch.algorithm, deque(maxlen=BATCHES))
            rates.append(batch.route_seconds / max(sum(task.rows for task in batch.tasks), 1))
        sampled = slice(None, None, -(-len(seconds) // _MAX_TASKS))
        work = np.array([[1.0, task.rows, task.groups] for task in batch.tasks[sampled]])
        (self._slices if native else self._combine).append((work, seconds[sampled]))

    @property
    def routed(self) -> bool:
        """Whether any batch so far was routed."""
        return bool(self._route)

    def add_merge(self, groups: float, seconds: float) -> None:
        """Add the seconds that all tasks of a merge of ``groups`` partial results took together."""
        if seconds > 0:
            self._merge.append((np.array([[1.0, groups]]), np.array([seconds])))

    def add_partitioners(self, placements: Iterable[ShadowPlacement]) -> None:
        """Add the partitioners' own times in a shadow run; the fastest run of each counts."""
        for placed in placements:
            self._own[placed.algorithm] = min(placed.route_seconds, self._own.get(placed.algorithm, np.inf))

    def costs(self, resources: Resources) -> AlgorithmCosts:
        """Return all costs: from the measurements, or from the prior if there are none."""
        prior = self._prior
        route = {name: float(np.median(rates)) for name, rates in self._route.items()}
        beside = [max(seconds - self._own.get(name, 0.0), 0.0) for name, seconds in route.items()]
        base = float(np.median(beside)) if beside else prior.route
        slowness = base / prior.route
        return AlgorithmCosts(
            combine=_fitted(prior.combine, self._combine or self._slices, slowness),
            merge=_fitted(prior.merge, self._merge, slowness),
            route=route,
            own=dict(self._own),
            route_base=base,
            slice_record=None if prior.slice_record is None else prior.slice_record * slowness,
            resources=resources,
        )


def _fitted(prior: _Floats, measured: Collection[_WorkSeconds], slowness: float) -> _Floats:
    """Fit costs to measurements; without any, return the prior times ``slowness``, this machine's factor to it."""
    if not measured:
        return prior * slowness
    work, seconds = (np.concatenate(parts) for parts in zip(*measured, strict=True))
    return fit_costs(work, seconds, prior)


_PRIOR_WEIGHT = 0.1
"""Weight of the prior: a cost of twice the prior's is as unlikely as measurements that are all off by this share."""

_ROUNDS = 8
"""Number of least-squares fits; each uses the weights and the prior that the previous one determines."""

_SHRINK = 0.01
"""Lower bound on a cost's prior in a round, as a share of its previous value, so that the cost can grow again."""

_TINY = 1e-12


def fit_costs(work: _Floats, seconds: _Floats, prior: _Floats) -> _Floats:
    """Return the costs c >= 0, shape ``(kinds,)``, for which ``work @ c`` comes closest to ``seconds``.

    If the measurements leave open which kind of work costs what, costs have the ratios of the prior, which is first
    scaled to this machine's speed. Errors count relative to the expected time, and large ones linearly (Huber, Robust
    Estimation of a Location Parameter, Annals of Mathematical Statistics 1964). The costs of each round are the prior
    of the next one (iterated Tikhonov regularization). User code may cost thousands of times the prior; a fixed time
    per task would otherwise be mistaken for the time of its records.

    Args:
        work: amounts, shape ``(measurements, kinds)``; the columns must be few, because all sets of them are tried.
        seconds: shape ``(measurements,)``.
        prior: seconds per unit of each kind, above 0; shape ``(kinds,)``.
    """
    expected = work @ prior
    known = expected > 0
    if not known.any():
        return prior
    slowness = max(float(np.median(seconds[known] / expected[known])), _TINY)
    units = work[known] * (prior * slowness)
    size = np.maximum(expected[known] * slowness, _TINY)
    weights = np.ones(len(size))
    costs, before = np.ones(len(prior)), np.ones(len(prior))
    for _ in range(_ROUNDS):
        scale = np.sqrt(weights) / size
        rows = np.vstack([units * scale[:, None], _PRIOR_WEIGHT * np.diag(1 / before)])
        costs = _non_negative(rows, np.concatenate([seconds[known] * scale, np.full(len(prior), _PRIOR_WEIGHT)]))
        before = np.maximum(costs, _SHRINK * before)
        errors = np.abs(units @ costs - seconds[known]) / size
        typical = max(float(np.median(errors)) / MEDIAN_ERROR, _TINY)
        weights = np.minimum(1.0, HUBER * typical / np.maximum(errors, _TINY))
    return costs * prior * slowness


def _non_negative(rows: _Floats, wanted: _Floats) -> _Floats:
    """Return the least squares solution without negative entries: the best over all sets of free entries."""
    kinds = rows.shape[1]
    best, least = np.zeros(kinds), float(wanted @ wanted)
    for free in itertools.chain.from_iterable(itertools.combinations(range(kinds), k) for k in range(1, kinds + 1)):
        found = np.linalg.lstsq(rows[:, free], wanted, rcond=None)[0]
        error = float(np.sum((rows[:, free] @ found - wanted) ** 2))
        if found.min() >= 0 and error < least:
            best, least = np.zeros(kinds), error
            best[list(free)] = found
    return best
