"""A hash table of 64-bit keys for kernels: open addressing with linear probing, in one array that grows.

A table has shape ``(capacity, 1 + words)``: each slot is a key, then its value of ``words`` words. No value is zero, so
a slot of zeros is empty, even if 0 is a key. At most 3 of 4 slots are taken; capacities are powers of two. With one
word that makes 21 to 43 bytes per key, and half as much again while the table grows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .compiling import inlined, kernel
from .mixing import Hashes, splitmix64

Rows = NDArray[np.uint64]
"""Shape ``(keys, 1 + words)``: keys, each with its value."""

Slot = int | np.int64
"""An index of the first dimension of a table."""

_MIN_CAPACITY = 1024  # slots


def empty_table(keys: int, words: int) -> Rows:
    """Return a table with room for ``keys`` keys whose values have ``words`` words."""
    capacity = _MIN_CAPACITY
    while is_full(capacity, keys):
        capacity *= 2
    return np.zeros((capacity, 1 + words), np.uint64)


def rows_of(table: Rows) -> Rows:
    """Return the keys in the table and their values, in ascending order of the keys."""
    taken = table[table[:, 1:].any(axis=1)]
    return taken[np.argsort(taken[:, 0])]


@inlined
def find(table: Rows, key: np.uint64) -> Slot:
    """Return the slot of ``key``, or the empty one where it belongs. To insert it, write key and value there."""
    return find_from(table, key, np.int64(splitmix64(key) & np.uint64(len(table) - 1)))


@inlined
def find_from(table: Rows, key: np.uint64, slot: Slot) -> Slot:
    """Continue a ``find`` from the slot that it returned before other keys were inserted into the same table."""
    while table[slot, 0] != key and not is_empty(table, slot):
        slot = (slot + 1) & (len(table) - 1)
    return slot


@inlined
def is_empty(table: Rows, slot: Slot) -> bool:
    """Whether no key is in the slot."""
    words = np.uint64(0)
    for word in range(table.shape[1]):
        words |= table[slot, word]
    return bool(words == 0)


@kernel
def is_full(capacity: int, keys: int) -> bool:
    """Whether a table of ``capacity`` slots must grow to hold ``keys`` keys."""
    return 4 * keys > 3 * capacity


@kernel
def grown(table: Rows) -> Rows:
    """Return the same keys and values in a table of twice the capacity."""
    twice = np.zeros((2 * len(table), table.shape[1]), np.uint64)
    for slot in range(len(table)):
        if not is_empty(table, slot):
            twice[find(twice, table[slot, 0])] = table[slot]
    return twice


@kernel
def fill(table: Rows, keys: Hashes, values: NDArray[np.int64]) -> None:
    """Set the value of each of ``keys`` in a table with one word per value, which must have room."""
    for row in range(len(keys)):
        slot = find(table, keys[row])
        table[slot, 0] = keys[row]
        table[slot, 1] = np.uint64(values[row])
