"""Versions of groups in order: where they meet rows, where their periods end, and sums over all earlier ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millrace_jobs.changes import FOREVER
from millrace_jobs.queries.tables.operators.merging import MergeUfunc

Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]


def group_numbers(keys: list[pa.Array], rows: int) -> Integers:
    """Return a number for each row, from 0, that only rows with equal keys share; NULL is equal to NULL."""
    numbers = np.zeros(rows, np.int64)
    for column in keys:
        encoded = column.dictionary_encode(null_encoding="encode")
        pairs = numbers * len(encoded.dictionary) + encoded.indices.to_numpy()
        numbers = pa.array(pairs).dictionary_encode().indices.to_numpy().astype(np.int64)
    return numbers


class Timeline:
    """The versions that rows begin: the distinct pairs of a group and a start, ordered by group and then by start.

    Arrays and masks of the versions have shape ``(versions,)``.

    Attributes:
        of_row: the version of each row, shape ``(rows,)``.
        row: the first row of each version.
        group: the number of its group.
        start: the start of its period.
        first: the first version of its group.
    """

    def __init__(self, groups: Integers, starts: Integers) -> None:
        order = np.lexsort((starts, groups))
        group, start = groups[order], starts[order]
        new = np.ones(len(order), bool)
        new[1:] = (group[1:] != group[:-1]) | (start[1:] != start[:-1])
        self.of_row = np.empty(len(order), np.int64)
        self.of_row[order] = np.cumsum(new) - 1
        self.row, self.group, self.start = order[new], group[new], start[new]
        self._index = np.arange(len(self.row))
        self.first = self._previous(self.leading(np.ones(len(self.row), bool)))

    def leading(self, mask: Mask) -> Mask:
        """Return which versions are the first of their group in ``mask``."""
        found = np.zeros(len(mask), bool)
        at = np.flatnonzero(mask)
        found[at] = np.append(True, self.group[at[1:]] != self.group[at[:-1]])[: len(at)]
        return found

    def ends(self, mask: Mask) -> Integers:
        """Return, for versions in ``mask``, the start of the next one of the group in it; FOREVER without one."""
        ends = np.full(len(mask), FOREVER)
        at = np.flatnonzero(mask)
        together = self.group[at[1:]] == self.group[at[:-1]]
        ends[at[:-1][together]] = self.start[at[1:][together]]
        return ends

    def last(self, mask: Mask) -> Integers:
        """Return the index of the last version of the group in ``mask`` so far, itself included; -1 without one."""
        found = self._previous(mask)
        return np.where(found >= self.first, found, -1)

    def merged(self, ufunc: Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]], values: NDArray[Any]) -> NDArray[Any]:
        """Return, for each version, the values of its group's versions so far, itself included, merged by ``ufunc``.

        Step k merges what lies 2^k versions before, so the longest group decides how many steps there are.
        """
        merged, behind, step = values.copy(), self._index - self.first, 1
        while (reached := np.flatnonzero(behind >= step)).size:
            merged[reached] = ufunc(merged[reached - step], merged[reached])
            step *= 2
        return merged

    def from_start(self, groups: Integers, starts: Integers) -> Integers:
        """Return, for pairs of a group and a time, the index of the group's first version that begins then or later."""
        codes = np.unique(np.concatenate([self.start, starts]), return_inverse=True)[1]
        many = len(codes) + 1
        versions = self.group * many + codes[: len(self.start)]
        return np.searchsorted(versions, groups * many + codes[len(self.start) :])

    def begin(self, groups: Integers) -> Integers:
        """Return the index of the first version of each of these groups."""
        return np.searchsorted(self.group, groups)

    def end(self, groups: Integers) -> Integers:
        """Return the index after the last version of each of these groups."""
        return np.searchsorted(self.group, groups, side="right")

    def covered(self, ufunc: MergeUfunc, identity: int, first: Integers, last: Integers, values: Integers) -> Integers:
        """Return, for each version, the values whose ranges of versions, ``[first, last)``, have it, merged by a ufunc.

        It has to be idempotent: each range is cut into two overlapping ones of length 2^k, which are then halved.
        """
        levels = np.frexp(last - first)[1] - 1
        merged = np.full(len(self.row), identity)
        for level in range(int(levels.max(initial=0)), -1, -1):
            if level < int(levels.max(initial=0)):
                half = 1 << level
                halved = merged.copy()
                halved[half:] = ufunc(halved[half:], merged[: len(merged) - half])
                merged = halved
            of_level = levels == level
            ufunc.at(merged, first[of_level], values[of_level])
            ufunc.at(merged, last[of_level] - (1 << level), values[of_level])
        return merged

    def numbers(self, first: Integers, last: Integers) -> Integers:
        """Return, for each version, the number of ranges of versions, ``[first, last)``, that have it."""
        return self.sums(first, last, np.ones(len(first), np.int64))

    def sums(self, first: Integers, last: Integers, values: Integers) -> Integers:
        """Return, for each version, the sum of the values whose ranges of versions, ``[first, last)``, have it."""
        steps = np.zeros(len(self.row) + 1, np.int64)
        np.add.at(steps, first, values)
        np.add.at(steps, last, -values)
        return np.cumsum(steps)[:-1]

    def _previous(self, mask: Mask) -> Integers:
        return np.maximum.accumulate(np.where(mask, self._index, -1))
