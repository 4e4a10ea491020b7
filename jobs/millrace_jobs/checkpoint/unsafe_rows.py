"""Rows in Spark's binary form (``UnsafeRow``), in which its state stores keep keys and values.

A row has three parts: a bit per field that says whether it is NULL, in words of 64 bits; a word per field; and the
values that do not fit a word. The word of such a value has its place, as an offset from the row's first byte in the
upper half, and its length in the lower half.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from struct import pack_into, unpack_from
from typing import Any, Self

_WORD = 8
_LARGEST_DECIMAL = 18
"""Digits of a DECIMAL up to which its value fits a word."""


@dataclass(frozen=True)
class RowShape:
    """What the bytes of a row mean, as far as rows are joined: the number of fields, and which lie behind the words."""

    fields: int
    behind: tuple[int, ...] = ()

    @classmethod
    def of(cls, types: Sequence[Any]) -> Self:
        """Return the shape of rows whose fields have these types, as in the JSON of Spark's schemas."""
        return cls(len(types), tuple(index for index, kind in enumerate(types) if not _fits_a_word(kind)))

    @cached_property
    def start(self) -> int:
        """Offset of the first word of a field."""
        return _WORD * ((self.fields + 63) // 64)

    @cached_property
    def end(self) -> int:
        """Offset behind the last word, where the other values begin."""
        return self.start + _WORD * self.fields

    def joined(self, other: RowShape) -> RowShape:
        """Return the shape of rows that have the fields of this one, and then those of the other."""
        return RowShape(self.fields + other.fields, (*self.behind, *(self.fields + index for index in other.behind)))


@dataclass(frozen=True)
class Joiner:
    """Function that joins rows of one shape with one row of another: all fields of the first, then the others."""

    shape: RowShape
    added: RowShape
    row: bytes

    def __call__(self, row: bytes) -> bytes:
        """Return the joined row."""
        first, both = self.shape, self._both
        nulls = int.from_bytes(row[: first.start], "little") | self._added_nulls
        words, behind = row[first.start : first.end], row[first.end :]
        if first.behind:
            words = _moved(words, first, both.end - first.end)
        added = self._added_words
        if self.added.behind:
            added = _moved(added, self.added, both.end + len(behind) - self.added.end)
        return b"".join((nulls.to_bytes(both.start, "little"), words, added, behind, self.row[self.added.end :]))

    @cached_property
    def _both(self) -> RowShape:
        return self.shape.joined(self.added)

    @cached_property
    def _added_nulls(self) -> int:
        return int.from_bytes(self.row[: self.added.start], "little") << self.shape.fields

    @cached_property
    def _added_words(self) -> bytes:
        return self.row[self.added.start : self.added.end]


def _moved(words: bytes, shape: RowShape, distance: int) -> bytes:
    """Return the words of a row whose other values have moved by a distance; a word of 0 is of no value."""
    moved = bytearray(words)
    for index in shape.behind:
        (place,) = unpack_from("<Q", moved, _WORD * index)
        if place:
            pack_into("<Q", moved, _WORD * index, place + (distance << 32))
    return bytes(moved)


def row_of_zeros(fields: int) -> bytes:
    """Return a row of numbers that are 0."""
    return bytes(RowShape(fields).end)


def _fits_a_word(kind: Any) -> bool:
    if not isinstance(kind, str):
        return False  # a struct, an array or a map
    decimal = re.fullmatch(r"decimal\((\d+),\s*-?\d+\)", kind)
    if decimal is not None:
        return int(decimal[1]) <= _LARGEST_DECIMAL
    return kind != "interval" and not kind.startswith(("string", "binary", "varchar", "char", "variant"))
