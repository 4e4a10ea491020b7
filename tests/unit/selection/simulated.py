"""A query of known costs, with reports of its batches for a selector that does not know the costs."""

from dataclasses import dataclass

import numpy as np

from millrace_jobs.kernels.mixing import seeded_hashes
from millrace_jobs.partitioners.registry import NATIVE, initial_states, is_cooperative, make
from millrace_jobs.selection.costs import CombineTask, MeasuredBatch
from millrace_jobs.sketches.key_profile import add_counts, profile, union
from millrace_support.batch_cost import makespan

BACKLOG_ROWS = (
    40_000,
    40_000,
    15_000,
    4_000,
    30_000,
    35_000,
    39_000,
    36_000,
    39_000,
    10_000,
    4_000,
    16_000,
    10_000,
    9_000,
)
"""Records of the batches of a backlog, a fifth of those of a run on a busy machine: admission lets in fewer at times."""

LEARNED = 2
"""Batches that cooperative replicas have seen before the one that counts."""


def zipf(rows, keys, skew, seed=1):
    shares = np.arange(1, keys + 1, dtype=np.float64) ** -skew
    drawn = np.random.default_rng(seed).choice(keys, size=rows, p=shares / shares.sum())
    return seeded_hashes(drawn.astype(np.uint64), 1)


def backlog(batches, keys=20_000, seed=1):
    """Return the streams of a backlog: one record in ten has a new key until all are there, others are even."""
    rng = np.random.default_rng(seed)
    known, streams = 0, []
    for number in range(batches):
        rows = BACKLOG_ROWS[number] if number < len(BACKLOG_ROWS) else BACKLOG_ROWS[-1]
        fresh = np.arange(known, min(known + rows // 10, keys))
        known += len(fresh)
        drawn = np.concatenate([fresh, rng.integers(0, known, rows - len(fresh))])
        streams.append(seeded_hashes(rng.permutation(drawn).astype(np.uint64), 1))
    return streams


def profile_of(stream):
    return profile(add_counts([(stream, np.ones(len(stream), np.int64))]))


def placed(stream, algorithm, workers, replicas):
    """Return the worker of every record; under native, its slice. Cooperative replicas know a few such batches."""
    slices = np.array_split(stream, replicas)
    if algorithm == NATIVE:
        return np.repeat(np.arange(replicas), [len(piece) for piece in slices])
    at = {"workers": workers, "replicas": replicas, "seed": 0, "parameters": {}}
    states = []
    for batch in range(LEARNED + 1):
        made = [make(algorithm, replica=replica, **at) for replica in range(replicas)]
        for partitioner, state in zip(made, states, strict=False):
            partitioner.restore(state)
        ids = [partitioner.route(piece) for partitioner, piece in zip(made, slices, strict=True)]
        if batch == LEARNED or not is_cooperative(algorithm, {}):
            break
        for partitioner in made:
            partitioner.advance()
        states = initial_states(algorithm, [partitioner.save() for partitioner in made], **at)
    return np.concatenate(ids)


@dataclass
class SimulatedQuery:
    """A query with known core seconds per record and per partial result, and a core for every worker."""

    record: float = 1e-6
    group: float = 5e-6
    merge: float = 5e-6
    route: float = 0.3e-6
    slice_record: float | None = None
    workers: int = 8
    replicas: int = 2
    overhead: float = 0.1
    read: float = 0.0  # seconds per record of every batch, outside the stages
    cold: float = 0.0  # seconds of batch 0 for compilation; half of it in the next one, and so on
    burden: float = 0.0  # seconds that batches of `burdened` take beyond what any model knows
    burdened: str = ""
    load: float = 1.0
    waiting: int = 0

    def batch(self, number, algorithm, stream):
        tasks = self.replicas if algorithm == NATIVE else self.workers
        ids = placed(stream, algorithm, self.workers, self.replicas)
        parts = [stream[ids == task] for task in range(tasks)]
        rows = np.array([len(part) for part in parts])
        groups = np.array([len(np.unique(part)) for part in parts])
        combine = 0.005 + self.record * rows + self.group * groups
        merge = 0.05 + self.merge * groups.sum()
        reports = algorithm != NATIVE or self.slice_record is None
        if algorithm != NATIVE:
            slices = [self.route * len(stream) / self.replicas] * self.replicas
            seconds = makespan(slices, self.workers) + makespan(combine + 0.04, self.workers)
        else:
            combine = combine + self.route * rows if reports else self.slice_record * rows
            seconds = makespan(combine, self.workers)
        seconds += self.overhead + self.read * len(stream) + self.cold / 2**number
        seconds += merge / self.workers + self.burden * (algorithm == self.burdened)
        return MeasuredBatch(
            number=number,
            algorithm=algorithm,
            workers=self.workers,
            replicas=self.replicas,
            rows=len(stream),
            seconds=seconds,
            route_seconds=self.route * len(stream) if reports else 0.0,
            merge_seconds=merge,
            state_updates=len(np.unique(stream)),
            tasks=tuple(map(CombineTask, rows.tolist(), groups.tolist(), combine.tolist())) if reports else (),
            profile=union([profile_of(part) for part in parts]) if reports else None,
            utilization=self.load,
            waiting=self.waiting,
        )

    def seconds(self, algorithm, stream):
        return self.batch(0, algorithm, stream).seconds
