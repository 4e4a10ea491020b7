"""Cutting a micro-batch of files or rows into slices of nearly equal size."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Extent:
    """A file of ``size`` bytes: its length in the units that are cut, and whether it can be cut at all."""

    path: str
    size: int
    length: int
    divisible: bool


@dataclass(frozen=True)
class FilePiece:
    """The bytes (Parquet: rows) ``[begin, end)`` of a file that had ``size`` bytes when it was first seen."""

    path: str
    size: int
    begin: int
    end: int


def bounds(length: int, slices: int) -> list[int]:
    """Return the ``slices + 1`` bounds that cut ``range(length)`` into parts whose sizes differ by at most one."""
    return [length * i // slices for i in range(slices + 1)]


def cut(files: Sequence[Extent], slices: int) -> list[tuple[FilePiece, ...]]:
    """Cut files laid end to end into at most ``slices`` parts, in order and without empty parts.

    The parts are equal except for rounding. A file that cannot be cut belongs entirely to the part that it begins in.
    """
    cuts = bounds(sum(file.length for file in files), slices)
    parts = []
    for low, high in itertools.pairwise(cuts):
        pieces, offset = [], 0
        for file in files:
            begin, end = max(low - offset, 0), min(high - offset, file.length)
            if not file.divisible:
                begin, end = (0, file.length) if low <= offset < high else (0, 0)
            if begin < end:
                pieces.append(FilePiece(file.path, file.size, begin, end))
            offset += file.length
        if pieces:
            parts.append(tuple(pieces))
    return parts
