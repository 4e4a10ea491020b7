"""Forecast of the time of batches with joins, whose hot keys are matched in their buckets, or by workers.

The work of a bucket is known from its rows and pairs, and that of a worker from the chunks that the partitioner itself
places there. How much longer it takes than expected is learned from the time of the tasks with state, and what batches
take beyond that from their time.
"""

from __future__ import annotations

import statistics
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np

from millrace_jobs.kernels.mixing import seeded_hashes
from millrace_jobs.partitioners.hash import Hash
from millrace_jobs.partitioners.hot_key_units import CHUNK, MOST_CHUNKS, UnitPlacement
from millrace_support.batch_cost import makespan

from .costs import TASK_SECONDS, BatchTime, JoinLoad, MeasuredBatch, Resources
from .forecast import ObservedTime, Residuals, StageSeconds
from .switch import Candidate

JOIN_CANDIDATES = (Hash.NAME, "shuffle", "pkg", "wchoices", "prompt")
"""Algorithms to choose among; ``hash`` matches every key in its bucket.

The others need no learning over batches, which the tasks of a join do not do.
"""

JOIN_MARGIN = 0.1
"""Predicted gain, as a share of the batch time, below which nothing changes for a join.

It is larger than for queries without joins, because only the sum of the costs below is measured in the query itself.
"""

ROW, MATCH, RESULT = 3e-6, 0.5e-6, 2.5e-6
"""Seconds of one core to store a row and read it, to match a pair, and to turn its result into a row of the sink.

They are those of a join of narrow rows. Wide rows or a slow sink make all of them a multiple of that.
"""

_LEAST, _MOST = 0.1, 10.0  # bounds of the multiple
_RECENT = 6  # batches that its median is taken of


@dataclass
class _Work:
    """Seconds of work by task of one join: for its state, for what buckets match, and for what workers do."""

    state: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    matching: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    workers: dict[int, float] = field(default_factory=dict)
    copies: int = 0

    @property
    def in_buckets(self) -> list[float]:
        """Seconds of work of the tasks with state."""
        return [seconds + self.matching[task] for task, seconds in self.state.items()]

    def time(self, cores: int, multiple: float) -> BatchTime:
        """Return the seconds of the stages; those of the shuffle to the workers count as routing."""
        state = multiple * makespan(list(self.state.values()), cores)
        buckets = multiple * makespan(self.in_buckets, cores)
        workers = multiple * makespan(list(self.workers.values()), cores)
        shuffle = TASK_SECONDS * -(-len(self.workers) // cores)
        return BatchTime(shuffle, buckets - state + workers, state, 0.0)

    def imbalance(self, cores: int) -> float:
        """Return by how much the matching of the busiest core exceeds an equal share of all cores, as a fraction."""
        tasks = list((self.workers or self.matching).values())
        share = sum(tasks) / cores
        return makespan(tasks, cores) / share - 1 if share else 0.0


class _JoinCandidate(Candidate):
    bearer, parts = "core", "units of hot keys"


class _Residuals(Residuals):
    """Residuals by form of Spark's query: ``hash`` has one, and all other algorithms share another."""

    def add(self, observed: ObservedTime) -> None:
        super().add(replace(observed, algorithm=_form(observed.algorithm)))

    def abandon(self, batch: int, algorithm: str) -> None:
        super().abandon(batch, _form(algorithm))

    def times_abandoned(self, algorithm: str, batch: int) -> int:
        return super().times_abandoned(_form(algorithm), batch)

    def rest(self, algorithm: str, batch: int, rows: float, stages: StageSeconds) -> float:
        return super().rest(_form(algorithm), batch, rows, stages)

    def scatter(self, algorithm: str, batch: int, rows: float, stages: StageSeconds) -> float | None:
        return super().scatter(_form(algorithm), batch, rows, stages)


def _form(algorithm: str) -> str:
    return algorithm if algorithm == Hash.NAME else "by workers"


class JoinForecaster:
    """Forecaster of the batch time of a query with joins; memory is bounded."""

    workers_measured = True

    def __init__(self, among: Sequence[str] = JOIN_CANDIDATES) -> None:
        self.residuals: Residuals = _Residuals()
        self._among = tuple(among)
        self._multiples: deque[float] = deque(maxlen=_RECENT)
        self._works: dict[int, list[_Work]] = {}

    def add(self, batch: MeasuredBatch) -> None:
        """Do nothing: ``forecast`` learns from the batches of its window."""

    def forecast(self, window: Sequence[MeasuredBatch], resources: Resources) -> dict[str, Candidate]:
        """Learn from the batches of ``window``, and return a prediction for each candidate for the last of them."""
        for batch in window:
            self._learn(batch, resources)
        known = self.residuals.batches
        self._works = {number: works for number, works in self._works.items() if number in known}
        return {name: self._predict(window[-1], name, resources) for name in self._among}

    def _learn(self, batch: MeasuredBatch, resources: Resources) -> None:
        works = _works(batch, batch.algorithm, resources)
        expected = sum(sum(work.in_buckets) for work in works)
        tasks = sum(len(work.state) for work in works)
        if expected and batch.merge_seconds:
            multiple = (batch.merge_seconds - tasks * TASK_SECONDS) / expected
            self._multiples.append(min(max(multiple, _LEAST), _MOST))
        self._works[batch.number] = works
        self.residuals.add(ObservedTime(batch.number, batch.algorithm, batch.seconds, float(batch.rows), None))

    def _predict(self, batch: MeasuredBatch, algorithm: str, resources: Resources) -> Candidate:
        multiple = statistics.median(self._multiples) if self._multiples else 1.0

        def time(works: Sequence[_Work]) -> BatchTime:
            each = [work.time(resources.cores, multiple) for work in works]
            return BatchTime(
                sum(one.route for one in each), sum(one.combine for one in each), sum(one.merge for one in each), 0.0
            )

        def stages(past: ObservedTime) -> float:
            return time(self._works[past.batch]).stages

        works = _works(batch, algorithm, resources)
        at = algorithm, batch.number, float(batch.rows), stages
        imbalance = max((work.imbalance(resources.cores) for work in works), default=0.0)
        copies = float(sum(work.copies for work in works))
        predicted = replace(time(works), rest=self.residuals.rest(*at))
        return _JoinCandidate(algorithm, predicted, imbalance, copies, False, self.residuals.scatter(*at))


def _works(batch: MeasuredBatch, algorithm: str, resources: Resources) -> list[_Work]:
    """Return the work of each join of the query."""
    joins = (list(loads) for _, loads in groupby(sorted(batch.joins, key=_order), lambda load: load.stage))
    if algorithm == Hash.NAME:
        return [_in_buckets(loads) for loads in joins]
    return [_by_workers(loads, algorithm, batch.workers, resources) for loads in joins]


def _order(load: JoinLoad) -> tuple[int, int, int]:
    return load.stage, load.task, load.bucket


def _in_buckets(loads: Iterable[JoinLoad]) -> _Work:
    work = _Work()
    for load in loads:
        work.state[load.task] += load.rows * ROW
        work.matching[load.task] += load.pairs * (MATCH + RESULT)
    return work


def _by_workers(loads: Iterable[JoinLoad], algorithm: str, workers: int, resources: Resources) -> _Work:
    work = _Work(workers=dict.fromkeys(range(workers), 0.0))
    tasks = resources.state_partitions
    parameters: Mapping[str, object] = {}
    for task, own in groupby(loads, lambda load: load.task):
        placement = UnitPlacement(
            algorithm, workers=workers, task=task % tasks, tasks=tasks, seed=0, parameters=parameters
        )
        for load in own:
            others = load.pairs - sum(load.hot)
            work.state[task] += load.rows * ROW
            work.matching[task] += others * MATCH
            work.workers[placement.place_bucket(load.bucket)] += others * RESULT
            _place_chunks(work, load, placement)
    return work


def _place_chunks(work: _Work, load: JoinLoad, placement: UnitPlacement) -> None:
    """Add the chunks of a bucket's hot keys to the workers, and the rows that are copied to them."""
    pairs = np.array(load.hot, dtype=np.int64)
    chunks = np.minimum(-(-pairs // CHUNK), MOST_CHUNKS)
    keys = np.repeat(np.arange(len(pairs)), chunks)
    hashes = seeded_hashes(np.arange(len(pairs), dtype=np.uint64), load.bucket)
    ids = placement.place(hashes[keys])
    for worker, seconds in zip(ids.tolist(), ((pairs / chunks)[keys] * (MATCH + RESULT)).tolist(), strict=True):
        work.workers[worker] += seconds
    units, owners = np.unique(np.stack([keys, ids]), axis=1)
    copied = np.sqrt(pairs)[units] * ROW  # a hot key has about as many rows on both sides
    work.copies += len(units)
    work.matching[load.task] += float(copied.sum())
    for worker, seconds in zip(owners.tolist(), copied.tolist(), strict=True):
        work.workers[worker] += seconds
