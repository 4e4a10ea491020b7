"""The table of keys that Dalton follows individually, a row each: hot keys, and keys that may become hot.

A key gets a row when it has ``1 / FOLLOWED`` of the records that make a heavy hitter (Definition 3.3). From then on it
is counted in its row, and its fragmentation is known. Before, all of its records went to its hash worker. A row is
removed at the end of a STATS_WIN in which its key was rare, once it has no records in the window either.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.compiling import Scalar, inlined, kernel, read_only
from millrace_jobs.kernels.key_table import Rows, empty_table, fill, find

from .bandit import BanditPolicy, RewardBuffer, Whole, forget, search
from .windows import Fragmentation

FOLLOWED = 4
"""Divisor: a key is followed from ``1 / FOLLOWED`` of a heavy hitter's frequency on. Replicas report the keys that they
follow, so the reducer misses no global heavy hitter that exceeds the threshold by more than that part."""

COLD, EXPIRED, CARRIED, HOT = range(4)
"""Status of a row. ``COLD``: its key is hashed. ``EXPIRED``: the same, but the values of the last STATS_WIN are held
for the reducer. ``CARRIED``: the key is the bandit's, as it was hot in the last STATS_WIN. ``HOT``: the key is the
bandit's, as it is hot in this STATS_WIN."""

ROWS, LIVE, KEYS, SEEN, TOTAL, DRAWS = range(6)
"""Indices of the numbers that the kernels update, in this order: rows in use; rows among them that are the bandit's;
keys in the frequency map; records of this STATS_WIN; records in the window W; random numbers drawn."""

Numbers = NDArray[np.int64]


class Followed(NamedTuple):
    """What is known of each key, in arrays of shape ``(rows,)``, and the hash table that finds its row."""

    keys: NDArray[np.uint64]
    status: NDArray[np.int8]
    frequency: NDArray[np.int64]
    """Frequency f(k) in this STATS_WIN."""
    last: NDArray[np.int64]
    """Frequency f(k) in the STATS_WIN that ended last, until it was reported."""
    places: Rows
    """Hash table from a key to its row plus 1."""


class KeyTable:
    """Table of keys over ``workers`` workers, with the fragmentation of a window of ``slides`` slides."""

    def __init__(self, workers: int, slides: int) -> None:
        none = np.empty((0, workers))
        self.fragmentation = Fragmentation(slides, 0, workers)
        self.policy = BanditPolicy(none, _none(np.int32), _none(np.float64), _none(np.int32))
        self.buffer = RewardBuffer(none, none)
        self.followed = Followed(_none(np.uint64), _none(np.int8), _none(np.int64), _none(np.int64), empty_table(0, 1))
        self.numbers: Numbers = np.zeros(6, np.int64)
        self.fit(np.arange(0))

    @property
    def count(self) -> int:
        """Number of rows in use; the arrays have room for more."""
        return int(self.numbers[ROWS])

    @property
    def full(self) -> bool:
        """Whether there is no room for another row."""
        return self.count == len(self.followed.keys)

    @property
    def keys(self) -> NDArray[np.uint64]:
        """Shape ``(count,)``: the keys of the rows; a view."""
        return self.followed.keys[: self.count]

    @property
    def status(self) -> NDArray[np.int8]:
        """Shape ``(count,)``: the status of the rows; a view."""
        return self.followed.status[: self.count]

    @property
    def split(self) -> NDArray[np.bool_]:
        """Shape ``(count,)``: which keys are the bandit's, or have records in the window away from their home."""
        return (self.status >= CARRIED) | self.fragmentation.elsewhere(self.policy.homes[: self.count])

    def rows_of(self, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the rows of ``keys``, -1 for a key without one; same shape."""
        return _rows_of(self.followed.places, read_only(keys))

    def fit(self, kept: NDArray[np.intp], room: int = 0) -> None:
        """Keep the rows ``kept``, renumbered; every row with records must be kept.

        Afterwards the table has room for ``room`` more rows, and then for as many again.
        """
        size = 2 * max(len(kept) + room, 32)
        self.policy = BanditPolicy._make(_fitted(array, kept, size) for array in self.policy)
        if len(self.buffer.decay):
            self.buffer = RewardBuffer._make(_fitted(array, kept, size) for array in self.buffer)
        columns = (_fitted(column, kept, size) for column in self.followed[:-1])
        self.followed = Followed._make([*columns, empty_table(size, 1)])
        self.fragmentation.fit(kept, size)
        self.numbers[ROWS] = len(kept)
        fill(self.followed.places, self.keys, np.arange(1, len(kept) + 1))

    def append(self, keys: NDArray[np.uint64], homes: NDArray[np.int32]) -> None:
        """Add rows for ``keys`` that have none, with their hash workers ``homes``."""
        if self.count + len(keys) > len(self.followed.keys):
            self.fit(np.arange(self.count), len(keys))
        _append_all(self.followed, self.policy, self.buffer, self.numbers, read_only(keys), read_only(homes))

    def search(self) -> None:
        """Find the best worker of every row, after values were written."""
        _search_all(self.policy, self.count)

    def count_live(self) -> None:
        """Count the bandit's keys, after statuses were written."""
        self.numbers[LIVE] = np.count_nonzero(self.status >= CARRIED)


@inlined
def row_of(places: Rows, key: np.uint64) -> np.int64:
    """Return the row of ``key``, or -1 if it has none."""
    return np.int64(places[find(places, key), 1]) - np.int64(1)


@kernel
def append(
    followed: Followed,
    policy: BanditPolicy,
    buffer: RewardBuffer,
    numbers: Numbers,
    key: np.uint64,
    home: Whole,
    frequency: Whole,
) -> np.int64:
    """Add a row for ``key``, which has none, and return it; there must be room."""
    row = np.int64(numbers[ROWS])
    numbers[ROWS] += 1
    followed.keys[row] = key
    followed.status[row] = COLD
    followed.frequency[row] = frequency
    followed.last[row] = 0
    policy.homes[row] = home
    forget(policy, buffer, row)
    slot = find(followed.places, key)
    followed.places[slot, 0] = key
    followed.places[slot, 1] = np.uint64(row + 1)
    return row


@kernel
def _append_all(
    followed: Followed,
    policy: BanditPolicy,
    buffer: RewardBuffer,
    numbers: Numbers,
    keys: NDArray[np.uint64],
    homes: NDArray[np.int32],
) -> None:
    for at in range(len(keys)):
        append(followed, policy, buffer, numbers, keys[at], homes[at], 0)


@kernel
def _search_all(policy: BanditPolicy, rows: int) -> None:
    for row in range(rows):
        search(policy, row)


@kernel
def _rows_of(places: Rows, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    out = np.empty(len(keys), np.int64)
    for at in range(len(keys)):
        out[at] = row_of(places, keys[at])
    return out


def _none(dtype: type[Scalar]) -> NDArray[Scalar]:
    return np.empty(0, dtype)


def _fitted(array: NDArray[Any], kept: NDArray[np.intp], size: int) -> NDArray[Any]:
    fitted = np.zeros((size, *array.shape[1:]), array.dtype)
    fitted[: len(kept)] = array[kept]
    return fitted
