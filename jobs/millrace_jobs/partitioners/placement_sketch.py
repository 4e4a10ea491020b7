"""Placement metrics from what n workers report of a window: their counts and key profiles.

All workers sample the keys with the smallest hashes (``sketches.key_profile``). Below the smallest of their thresholds,
each worker has sampled every key that it has. The union of the samples therefore holds a uniform sample of the keys
*with all their workers*. It gives unbiased estimates of the share of keys that moved and of the number of workers per
key.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.sketches.key_profile import EVERY, HEAVY, K, KeyProfile, profile, union

from .base import Hashes, Workers
from .placement_cost import MovedKeys, PlacementCost, cost_of_counts, moved_keys


@dataclass(frozen=True, eq=False)
class PlacementSketch:
    """A window as its workers report it: one profile per worker, in a size that does not grow with the window."""

    profiles: tuple[KeyProfile, ...]

    @classmethod
    def of_workers(cls, profiles: Iterable[tuple[int, KeyProfile]], workers: int) -> Self:
        """Return the sketch of profiles that workers report with their ids; a worker without one had no records."""
        own: dict[int, list[KeyProfile]] = {worker: [] for worker in range(workers)}
        for worker, reported in profiles:
            own.setdefault(worker, []).append(reported)
        return cls(tuple(_bounded(union(own[worker])) for worker in range(workers)))

    def cost(self, keys: NDArray[np.int64] | None = None) -> PlacementCost:
        """Return the metrics of the window; they are exact if the profiles hold all of its keys.

        ``keys``, shape ``(n,)``, are the workers' own counts of distinct keys, if they have them, as combiners do. Then
        only ‖S‖, and with it the replication factor, is an estimate. Without ``keys``, each worker's count is an
        estimate too, with the relative standard error of its profile, so the largest count tends to be too large. ‖S‖
        is Γ over the mean number of workers of a sampled key, within max ‖L_w‖ ≤ ‖S‖ ≤ Γ.
        """
        rows = np.array([own.rows for own in self.profiles])
        counts = np.minimum([own.distinct for own in self.profiles], rows) if keys is None else keys
        cost = int(counts.sum())
        places = self._sample()[1]
        keys_per_place = len(np.unique(places)) / len(places) if len(places) else 0.0
        distinct = min(max(round(cost * keys_per_place), int(counts.max())), cost)
        return cost_of_counts(rows, counts, distinct_keys=distinct)

    def moved_since(self, before: PlacementSketch) -> MovedKeys:
        """Return the moved keys among those that both windows sampled; ``share`` estimates the share of all keys.

        Its standard error is sqrt(share · (1 - share) / keys). The numbers of workers may differ.
        """
        return moved_keys(before._sample(), self._sample())

    def _sample(self) -> tuple[Workers, Hashes]:
        """Return each key below the smallest threshold, once for each worker that has it."""
        hashes = np.concatenate([own.sample.hashes for own in self.profiles])
        lengths = [len(own.sample) for own in self.profiles]
        ids = np.repeat(np.arange(len(self.profiles), dtype=np.int32), lengths)
        threshold = min(own.threshold for own in self.profiles)
        if threshold == EVERY:
            return ids, hashes
        chosen = hashes < np.uint64(threshold)
        return ids[chosen], hashes[chosen]


def _bounded(given: KeyProfile) -> KeyProfile:
    """Return a union of one worker's profiles, cut down to the size of a single profile."""
    if given.complete:
        return profile(given.sample)
    sample = given.sample
    return replace(
        given,
        sample=sample.take(np.arange(min(K, len(sample)))),
        threshold=given.threshold if len(sample) <= K else int(sample.hashes[K]),
        heavy=given.heavy.take(np.arange(min(HEAVY, len(given.heavy)))),
    )
