"""Placement of records: shares of combine tasks by partitioner, and of merge tasks by the hash of the key."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from millrace_research.arena.simulation.keys import Keys, frequencies

_SPLIT_RANKS = 4096
"""Most frequent keys that two-choice placement assigns one by one; the records of the rest level out the loads."""

_LEVEL = 0.01
"""Relative difference below which two loads count as level, so that keys go to either task in turn."""


class SimulatedPartitioner(StrEnum):
    """The partitioner that assigns records to combine tasks."""

    HASH = "hash"
    """Each key goes to one task, by its hash."""
    PKG = "pkg"
    """Each key has two candidate tasks; its records go to the less loaded one (partial key grouping, paper 001)."""
    SHUFFLE = "shuffle"
    """Records go to all tasks in turn."""

    def partials(self, keys: Keys, rows: float, n: int) -> float:
        """Return the expected number of distinct keys per combine task, summed over the ``n`` tasks.

        A key split over c tasks is treated as c streams, each with 1/c of the records.
        """
        if self is SimulatedPartitioner.SHUFFLE:
            return n * keys.appearing(rows / n)
        if self is SimulatedPartitioner.PKG and n > 1:
            split = _two_choices(keys, n).split
            return split * 2 * keys.appearing(rows / 2) + (1 - split) * keys.appearing(rows)
        return keys.appearing(rows)


@lru_cache(maxsize=4096)
def row_shares(partitioner: SimulatedPartitioner, keys: Keys, n: int) -> tuple[float, ...]:
    """Return the share of the records for each of ``n`` combine tasks; the sum is 1."""
    if partitioner is SimulatedPartitioner.SHUFFLE:
        return (1 / n,) * n
    if partitioner is SimulatedPartitioner.PKG and n > 1:
        return _two_choices(keys, n).rows
    return tuple(np.bincount(_places(keys, n, 1), weights=frequencies(keys), minlength=n).tolist())


@lru_cache(maxsize=4096)
def key_shares(partitioner: SimulatedPartitioner, keys: Keys, n: int) -> tuple[float, ...]:
    """Return the share of the partial results for each of ``n`` combine tasks; the sum is 1."""
    if partitioner is SimulatedPartitioner.HASH:
        return tuple((np.bincount(_places(keys, n, 1), minlength=n) / keys.distinct).tolist())
    if partitioner is SimulatedPartitioner.PKG and n > 1:
        return _two_choices(keys, n).keys
    return (1 / n,) * n


@lru_cache(maxsize=256)
def merge_shares(keys: Keys, partitions: int) -> tuple[float, ...]:
    """Return the share of the partial results for each of ``partitions`` state partitions; the sum is 1.

    The hash of the key differs from the hashes that assign keys to combine tasks.
    """
    return tuple((np.bincount(_places(keys, partitions, 3), minlength=partitions) / keys.distinct).tolist())


@dataclass(frozen=True)
class _TwoChoices:
    """Shares of the records and of the keys by task, and the share of keys split over both of their tasks."""

    rows: tuple[float, ...]
    keys: tuple[float, ...]
    split: float


@lru_cache(maxsize=4096)
def _two_choices(keys: Keys, n: int) -> _TwoChoices:
    """Split each key's records so that they level the loads of its two candidate tasks, heaviest key first.

    In the result, a key goes to the candidate with the smaller load, or to both in turn if their loads are level.
    """
    shares = frequencies(keys)
    first, second = _places(keys, n, 1), _places(keys, n, 2)
    second = np.where(first == second, (second + 1) % n, second)
    loads = np.zeros(n)
    for share, a, b in zip(shares[:_SPLIT_RANKS].tolist(), first.tolist(), second.tolist(), strict=False):
        to_a = min(max((share + loads[b] - loads[a]) / 2, 0.0), share)
        loads[a] += to_a
        loads[b] += share - to_a
    loads = _filled(loads, float(shares[_SPLIT_RANKS:].sum()))
    lighter = np.sign(np.where(np.isclose(loads[first], loads[second], rtol=_LEVEL), 0, loads[second] - loads[first]))
    of_first = np.bincount(first, weights=(1 + lighter) / 2, minlength=n)
    of_second = np.bincount(second, weights=(1 - lighter) / 2, minlength=n)
    return _TwoChoices(
        tuple(loads.tolist()),
        tuple(((of_first + of_second) / keys.distinct).tolist()),
        float((lighter == 0).mean()),
    )


def _filled(loads: NDArray[np.float64], more: float) -> NDArray[np.float64]:
    """Return ``loads`` after ``more`` is poured over the smallest ones so that they are level."""
    levels = np.sort(loads)
    poured = np.arange(1, len(levels) + 1) * np.append(levels[1:], np.inf) - np.cumsum(levels)
    filled = int(np.searchsorted(poured, more)) + 1
    level = (more + levels[:filled].sum()) / filled
    even: NDArray[np.float64] = np.maximum(loads, level)
    return even


def _places(keys: Keys, n: int, seed: int) -> NDArray[np.int64]:
    """Return one of ``n`` places for each key by its hash; shape (keys.distinct,)."""
    return (_hashes(keys, seed) % np.uint64(n)).astype(np.int64)


@lru_cache(maxsize=64)
def _hashes(keys: Keys, seed: int) -> NDArray[np.uint64]:
    """Return a 64-bit hash of each key: the finalizer of SplitMix64 on its rank, the salt and the seed."""
    start = np.uint64((keys.salt * 8 + seed) * 0x9E3779B97F4A7C15 % 2**64)
    bits = np.arange(keys.distinct, dtype=np.uint64) * np.uint64(0xD1342543DE82EF95) + start
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
