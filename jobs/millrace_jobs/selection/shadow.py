"""Shadow evaluation: where a partitioner would place a batch's records, determined on a sample of its stream."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.partitioners.base import Hashes, Partitioner, Workers
from millrace_jobs.partitioners.hash import Hash
from millrace_jobs.partitioners.registry import NATIVE, initial_states, is_cooperative, make
from millrace_jobs.sketches.key_profile import KeyProfile

from .key_stream import estimate_keys, sample_stream

RECORDS_PER_WORKER = 2000
FEWEST_RECORDS, MOST_RECORDS = 1 << 15, 1 << 17  # bounds of the sample, whatever the number of workers

_LEARNED_BATCHES = 2
_HIGH = 1e3  # panes per record of a pair, above which more panes make no difference
_HALVINGS = 40

Clock = Callable[[], float]
"""Function that returns the seconds since some fixed moment."""


@dataclass(frozen=True, eq=False)
class ShadowPlacement:
    """Placement that an algorithm would give a batch: what each combine task would get.

    ``rows`` is the number of records of each task, shape ``(tasks,)``. A *pair* is a key and a task that has records of
    it; ``pair_task``, ``pair_records`` and ``pair_keys`` (how many such pairs it stands for) have shape ``(pairs,)``.
    ``route_seconds`` is what the partitioner itself took for one record on this machine; 0 if no partitioner ran.
    """

    algorithm: str
    rows: NDArray[np.float64]
    pair_task: NDArray[np.integer[Any]]
    pair_records: NDArray[np.float64]
    pair_keys: NDArray[np.float64]
    route_seconds: float

    def groups(self, panes: float) -> NDArray[np.float64]:
        """Return the partial results of each task if a key's records are spread evenly over ``panes`` panes.

        The shape is ``(tasks,)``. The sum is Γ of paper 000, Eq. 2, with keys counted by pane.
        """
        each = self.pair_keys * _panes_hit(self.pair_records, panes)
        return _totals(self.pair_task, each, len(self.rows))

    def panes(self, groups: float) -> float:
        """Return the number of panes, at least 1, that leads to ``groups`` partial results in total."""
        low, high = 1.0, max(float(self.pair_records.max(initial=1.0)), 1.0) * _HIGH
        for _ in range(_HALVINGS):
            middle = (low * high) ** 0.5
            if float(self.pair_keys @ _panes_hit(self.pair_records, middle)) < groups:
                low = middle
            else:
                high = middle
        return low


def _panes_hit(records: NDArray[np.float64], panes: float) -> NDArray[np.float64]:
    """Return the expected number of panes with a record, if ``records`` fall into ``panes`` equally likely panes."""
    return np.ones(len(records)) if panes <= 1 else panes * -np.expm1(records * np.log1p(-1 / panes))


class Shadow:
    """The keys of one batch, on which any algorithm can be tried.

    ``clock`` counts CPU seconds, because wall-clock time would include what else the driver does meanwhile.
    """

    def __init__(
        self, profile: KeyProfile, *, workers: int, replicas: int, seed: int = 0, clock: Clock = time.thread_time
    ) -> None:
        most = min(max(workers * RECORDS_PER_WORKER, FEWEST_RECORDS), MOST_RECORDS)
        self._keys = estimate_keys(profile)
        self._stream = sample_stream(self._keys, workers, most, seed)
        self._workers, self._replicas, self._seed, self._clock = workers, replicas, seed, clock

    def place(self, algorithm: str) -> ShadowPlacement:
        """Return where the algorithm would place the batch.

        ``hash`` places a key regardless of earlier records, so it is tried on all keys, without the noise of a sample.
        ``native`` combines each replica's slice where it is.
        """
        if algorithm == Hash.NAME:
            return self._place_keys()
        stream = self._stream
        slices = np.array_split(stream.hashes[stream.keys], self._replicas)
        if algorithm == NATIVE:
            tasks = np.repeat(np.arange(len(slices)), [len(piece) for piece in slices])
            return self._counted(algorithm, tasks, len(slices), 0.0)
        began = self._begun(algorithm, slices)
        placed, seconds = [], 0.0
        for partitioner, piece in zip(began, slices, strict=True):
            ids, taken = self._route(partitioner, piece)
            placed.append(ids)
            seconds += taken
        each = seconds / max(len(stream.keys), 1)
        return self._counted(algorithm, np.concatenate(placed), self._workers, each)

    def _place_keys(self) -> ShadowPlacement:
        keys = self._keys
        (partitioner,) = self._begun(Hash.NAME, [keys.hashes])
        ids, seconds = self._route(partitioner, keys.hashes)
        rows = _totals(ids, keys.counts * keys.stands_for, self._workers)
        counts = keys.counts.astype(np.float64)
        return ShadowPlacement(Hash.NAME, rows, ids, counts, keys.stands_for, seconds / max(len(ids), 1))

    def _counted(
        self, algorithm: str, ids: NDArray[np.integer[Any]], tasks: int, route_seconds: float
    ) -> ShadowPlacement:
        stream = self._stream
        pairs, counts = np.unique(stream.keys * tasks + ids, return_counts=True)
        keys = pairs // tasks
        rows = _totals(ids, np.full(len(ids), stream.rows / max(len(ids), 1)), tasks)
        records = counts * stream.scale[keys]
        return ShadowPlacement(algorithm, rows, pairs % tasks, records, stream.stands_for[keys], route_seconds)

    def _begun(self, algorithm: str, slices: Sequence[Hashes]) -> list[Partitioner]:
        """Return the replicas that place the batch; cooperative ones have learned together from batches like it."""
        _compile(algorithm)
        at: dict[str, Any] = {
            "workers": self._workers,
            "replicas": self._replicas,
            "seed": self._seed,
            "parameters": {},
        }
        replicas = [make(algorithm, replica=replica, **at) for replica in range(len(slices))]
        for _ in range(_LEARNED_BATCHES if is_cooperative(algorithm, {}) else 0):
            for partitioner, piece in zip(replicas, slices, strict=True):
                partitioner.route(piece)
                partitioner.advance()
            states = initial_states(algorithm, [partitioner.save() for partitioner in replicas], **at)
            for partitioner, state in zip(replicas, states, strict=True):
                partitioner.restore(state)
        return replicas

    def _route(self, partitioner: Partitioner, keys: Hashes) -> tuple[Workers, float]:
        """Return worker ids and the seconds taken."""
        began = self._clock()
        ids = partitioner.route(keys)
        return ids, self._clock() - began


def _totals(tasks: NDArray[np.integer[Any]], amounts: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Return the sum of the amounts of each task, shape ``(size,)``."""
    totals: NDArray[np.float64] = np.bincount(tasks, amounts, size).astype(np.float64)
    return totals


@functools.cache
def _compile(algorithm: str) -> None:
    """Have Numba compile the algorithm's kernels before anything is timed."""
    partitioner = make(algorithm, workers=2, replica=0, replicas=1, seed=0, parameters={})
    partitioner.route(np.arange(16, dtype=np.uint64))
