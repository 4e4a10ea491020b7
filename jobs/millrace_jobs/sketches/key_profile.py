"""Profile of a stream's keys: a uniform sample of keys with their counts, and the heaviest keys.

The sample holds the keys with the smallest hashes (bottom-k; Beyer, Haas, Reinwald, Sismanis, Gemulla: On Synopses
for Distinct-Value Estimation Under Multiset Operations, SIGMOD 2007). All workers sample by the same hash, so a key
that several of them saw is in all their samples, and its counts add up. The keys below the smallest of the workers'
thresholds are then a uniform sample of the keys of all workers.

Up to ``K`` distinct keys, a profile is exact. Above, the relative standard error of the number of keys is at most about
1 / sqrt(K - 1), and less if the workers have different keys.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.mixing import Hashes


@dataclass(frozen=True, eq=False)
class KeyCounts:
    """Distinct keys and their numbers of records.

    ``hashes`` has shape ``(keys,)`` and holds each key's hash once; ``counts`` has the same shape.
    """

    hashes: Hashes
    counts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.hashes)

    @classmethod
    def none(cls) -> Self:
        """Return the counts of no keys."""
        return cls(np.empty(0, np.uint64), np.empty(0, np.int64))

    @property
    def rows(self) -> int:
        """Number of records of all keys."""
        return int(self.counts.sum())

    def take(self, wanted: NDArray[np.bool_] | NDArray[np.intp]) -> KeyCounts:
        """Return the keys that a mask or an array of positions selects."""
        return KeyCounts(self.hashes[wanted], self.counts[wanted])

    def counts_of(self, hashes: Hashes) -> NDArray[np.int64]:
        """Return the number of records of each of these keys, 0 for unknown ones; same shape as ``hashes``.

        ``self.hashes`` must be ascending.
        """
        if not len(self):
            return np.zeros(len(hashes), np.int64)
        at = np.minimum(np.searchsorted(self.hashes, hashes), len(self) - 1)
        return np.where(self.hashes[at] == hashes, self.counts[at], 0)


def add_counts(parts: Sequence[tuple[Hashes, NDArray[np.int64]]]) -> KeyCounts:
    """Add up the counts of all parts by key, in ascending order of hash.

    A key may be in several parts, and several times in one part.
    """
    if not parts:
        return KeyCounts.none()
    hashes = np.concatenate([part[0] for part in parts])
    counts = np.concatenate([part[1] for part in parts])
    order = np.argsort(hashes)
    hashes, counts = hashes[order], counts[order]
    first = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)])
    return KeyCounts(hashes[first], np.add.reduceat(counts, first) if len(first) else counts)


K = 256
"""Number of keys in the sample of one worker."""

HEAVY = 32
"""Number of heaviest keys that one worker names."""

EVERY = 1 << 64
"""Threshold of a sample that holds every key."""

_HEAD = 8
"""Number of the heaviest keys that show over how many workers a heavy key is spread."""


@dataclass(frozen=True, eq=False)
class KeyProfile:
    """Summary of the keys of a stream, whose size does not grow with the stream.

    ``sample`` has the keys with a hash below ``threshold``, by ascending hash. ``heavy`` has the keys with the most
    records, the heaviest first; it is empty if the sample holds every key.
    """

    rows: int
    sample: KeyCounts
    threshold: int
    heavy: KeyCounts

    @property
    def complete(self) -> bool:
        """Whether the sample holds every key."""
        return self.threshold == EVERY

    @property
    def distinct(self) -> int:
        """Number of distinct keys; an unbiased estimate unless the profile is complete."""
        return len(self.sample) if self.complete else round(len(self.sample) * (EVERY / self.threshold))


def profile(keys: KeyCounts) -> KeyProfile:
    """Return the profile of one worker's keys, given in ascending order of hash."""
    if len(keys) <= K:
        return KeyProfile(keys.rows, keys, EVERY, KeyCounts.none())
    heaviest = np.argpartition(keys.counts, len(keys) - HEAVY)[-HEAVY:]
    heavy = keys.take(heaviest[np.argsort(-keys.counts[heaviest], kind="stable")])
    return KeyProfile(keys.rows, keys.take(np.arange(K)), int(keys.hashes[K]), heavy)


def union(profiles: Sequence[KeyProfile]) -> KeyProfile:
    """Return the common profile of the workers' streams."""
    threshold = min((part.threshold for part in profiles), default=EVERY)
    sample = add_counts([(part.sample.hashes, part.sample.counts) for part in profiles])
    if threshold != EVERY:
        sample = sample.take(sample.hashes < np.uint64(threshold))
    rows = sum(part.rows for part in profiles)
    heavy = KeyCounts.none() if threshold == EVERY else _heaviest(profiles, sample, threshold)
    return KeyProfile(rows, sample, threshold, heavy)


def _heaviest(profiles: Sequence[KeyProfile], sample: KeyCounts, threshold: int) -> KeyCounts:
    """Return the keys that any worker names, heaviest first, with estimates for the workers that do not name them.

    The heaviest keys show how many workers share a heavy key: one if each key has its worker, all under round robin.
    A key that fewer workers name is about as frequent, on those that do not, as the last key they name.
    """
    named = [part.sample if part.complete else part.heavy for part in profiles]
    keys = add_counts([(part.hashes, part.counts) for part in named])
    lists = add_counts([(part.hashes, np.ones(len(part), np.int64)) for part in named]).counts
    last = float(np.mean([part.heavy.counts[-1] for part in profiles if not part.complete]))
    spread = int(np.median(lists[np.argsort(-keys.counts, kind="stable")[:_HEAD]]))
    counts = keys.counts + np.rint(np.maximum(spread - lists, 0) * last).astype(np.int64)
    counts = np.where(keys.hashes < np.uint64(threshold), sample.counts_of(keys.hashes), counts)
    order = np.argsort(-counts, kind="stable")
    return KeyCounts(keys.hashes[order], counts[order])


def encode(given: KeyProfile) -> str:
    """Return a profile as text for JSON, 3 kB at most.

    Numbers are stored byte plane by byte plane, so that zlib finds the zeros of small ones.
    """
    head = [given.rows, len(given.sample), len(given.heavy), given.threshold % EVERY]
    parts = (np.diff(given.sample.hashes, prepend=np.uint64(0)), given.heavy.hashes)
    counts = (given.sample.counts.astype(np.uint64), given.heavy.counts.astype(np.uint64))
    words = np.concatenate([np.array(head, np.uint64), *parts, *counts]).astype("<u8")
    planes = np.ascontiguousarray(words.view(np.uint8).reshape(-1, 8).T)
    return base64.b85encode(zlib.compress(planes.tobytes())).decode("ascii")


def decode(text: str) -> KeyProfile:
    """Return the profile that ``encode`` turned into this text."""
    planes = np.frombuffer(zlib.decompress(base64.b85decode(text)), np.uint8).reshape(8, -1)
    words: NDArray[np.uint64] = np.ascontiguousarray(planes.T).view("<u8").reshape(-1).astype(np.uint64)
    rows, sampled, heavy, threshold = words[:4].tolist()
    hashes, heaviest, counts = np.split(words[4:], [sampled, sampled + heavy])
    numbers = counts.astype(np.int64)
    sample = KeyCounts(np.cumsum(hashes, dtype=np.uint64), numbers[:sampled])
    return KeyProfile(rows, sample, threshold or EVERY, KeyCounts(heaviest, numbers[sampled:]))
