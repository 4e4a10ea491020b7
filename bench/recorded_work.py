"""The work of each task of a batch under an algorithm, recorded by routing a stream."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.mixing import Hashes, seeded
from millrace_jobs.partitioners.registry import NATIVE, make
from millrace_jobs.sketches.key_profile import KeyCounts, KeyProfile, decode, encode, profile, union


@dataclass(frozen=True, eq=False)
class RecordedWork:
    """Records and keys of each combine task, both of shape ``(tasks,)``, and the tasks' merged key profile.

    ``route_record`` is the time that the partitioner takes for a record, in seconds of one core.
    """

    rows: NDArray[np.int64]
    keys: NDArray[np.int64]
    profile: KeyProfile
    route_record: float


def zipf_stream(rows: int, keys: int, skew: float, seed: int) -> Hashes:
    """Return the hashes of a stream of ``rows`` records whose keys follow Zipf's law with exponent ``skew``."""
    shares = np.arange(1, keys + 1, dtype=np.float64) ** -skew
    drawn = np.random.default_rng(seed).choice(keys, size=rows, p=shares / shares.sum())
    return seeded(drawn.astype(np.uint64), 1)


def record(stream: Hashes, algorithm: str, workers: int, replicas: int) -> RecordedWork:
    """Route the stream in ``replicas`` slices and record the work. ``native`` combines each slice in place."""
    slices = np.array_split(stream, replicas)
    if algorithm == NATIVE:
        return _work(stream, np.repeat(np.arange(replicas), [len(piece) for piece in slices]), replicas, 0.0)
    _route(algorithm, [slices[0][:1000]], workers)  # compiles
    ids, seconds = _route(algorithm, slices, workers)
    return _work(stream, ids, workers, seconds / len(stream))


def _route(algorithm: str, slices: list[Hashes], workers: int) -> tuple[NDArray[np.int32], float]:
    placed, seconds = [], 0.0
    for replica, piece in enumerate(slices):
        partitioner = make(algorithm, workers=workers, replica=replica, replicas=len(slices), seed=0, parameters={})
        began = time.thread_time()
        placed.append(partitioner.route(piece))
        seconds += time.thread_time() - began
    return np.concatenate(placed), seconds


def _work(stream: Hashes, ids: NDArray[np.integer], tasks: int, route_record: float) -> RecordedWork:
    order = np.argsort(ids, kind="stable")
    ends = np.cumsum(np.bincount(ids, minlength=tasks))
    profiles, keys = [], []
    for part in np.split(stream[order], ends[:-1]):
        counts = KeyCounts(*np.unique(part, return_counts=True))
        profiles.append(decode(encode(profile(counts))))
        keys.append(len(counts))
    rows = np.bincount(ids, minlength=tasks)
    return RecordedWork(rows, np.array(keys), union(profiles), route_record)
