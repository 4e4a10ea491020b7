"""Rows in Spark's binary form (``UnsafeRow``), in which its state stores keep keys and values.

A row has three parts: a bit per field that says whether it is NULL, in words of 64 bits; a word per field; and the
values that do not fit a word. The word of such a value has its place, as an offset from the row's first byte in the
upper half, and its length in the lower half.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from struct import pack, pack_into, unpack_from
from typing import Any, Self

_WORD = 8
_INTEGERS = {"byte": 1, "short": 2, "integer": 4, "long": 8}
"""Bytes of a word that an integer takes; the others are 0."""

_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
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
    """Function that joins rows of one shape with one row of another: all fields of the first, then the others.

    ``retyped`` has what becomes of the words of some fields of the first, by ``retyped_word``.
    """

    shape: RowShape
    added: RowShape
    row: bytes
    retyped: Mapping[int, Callable[[bytes], bytes]] = field(default_factory=dict)

    def __call__(self, row: bytes) -> bytes:
        """Return the joined row."""
        first, both = self.shape, self._both
        nulls = int.from_bytes(row[: first.start], "little") | self._added_nulls
        words, behind = row[first.start : first.end], row[first.end :]
        if first.behind:
            words = _moved(words, first, both.end - first.end)
        if self.retyped:
            words = self._retyped(words)
        added = self._added_words
        if self.added.behind:
            added = _moved(added, self.added, both.end + len(behind) - self.added.end)
        return b"".join((nulls.to_bytes(both.start, "little"), words, added, behind, self.row[self.added.end :]))

    def _retyped(self, words: bytes) -> bytes:
        result = bytearray(words)
        for index, change in self.retyped.items():
            word = slice(_WORD * index, _WORD * (index + 1))
            result[word] = change(words[word])
        return bytes(result)

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


def retyped_word(old: Any, new: Any) -> Callable[[bytes], bytes] | None:
    """Return how a word with a number of one type becomes a word with the same number in another type.

    The types are as in the JSON of Spark's schemas. None if values of one type are in general none of the other, or not
    in the words of both. The function raises OverflowError for a number that a narrower type does not have.
    """
    if old in _INTEGERS and new in _INTEGERS:
        return partial(_retyped_integer, size=_INTEGERS[old], wanted=_INTEGERS[new])
    if {old, new} == {"float", "double"}:
        return partial(_retyped_float, read="<f" if old == "float" else "<d", written="<d" if new == "double" else "<f")
    digits, more = (_DECIMAL.fullmatch(kind) if isinstance(kind, str) else None for kind in (old, new))
    if digits and more and digits[2] == more[2] and _fits_a_word(old) == _fits_a_word(new):
        return bytes
    return None


def _retyped_integer(word: bytes, *, size: int, wanted: int) -> bytes:
    number = int.from_bytes(word[:size], "little", signed=True)
    return number.to_bytes(wanted, "little", signed=True).ljust(_WORD, b"\0")


def _retyped_float(word: bytes, *, read: str, written: str) -> bytes:
    (number,) = unpack_from(read, word)
    retyped = pack(written, number)
    if unpack_from(written, retyped)[0] != number and number == number:
        raise OverflowError(f"{number!r} is no FLOAT")
    return retyped.ljust(_WORD, b"\0")


def row_of_zeros(fields: int) -> bytes:
    """Return a row of numbers that are 0."""
    return bytes(RowShape(fields).end)


def _fits_a_word(kind: Any) -> bool:
    if not isinstance(kind, str):
        return False  # a struct, an array or a map
    decimal = _DECIMAL.fullmatch(kind)
    if decimal is not None:
        return int(decimal[1]) <= _LARGEST_DECIMAL
    return kind != "interval" and not kind.startswith(("string", "binary", "varchar", "char", "variant"))
