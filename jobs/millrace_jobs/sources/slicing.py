"""Cutting a batch of files, or of rows, into slices of nearly equal size."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Extent:
    """A file: how long it is in units that can be cut, and whether it can be cut at all."""

    path: str
    size: int
    length: int
    divisible: bool


@dataclass(frozen=True)
class FilePiece:
    """Bytes (of Parquet: rows) ``[begin, end)`` of a file that had ``size`` bytes when it was seen."""

    path: str
    size: int
    begin: int
    end: int


def bounds(length: int, slices: int) -> list[int]:
    """``slices + 1`` cuts of ``range(length)`` into parts that differ by one at most."""
    return [length * i // slices for i in range(slices + 1)]


def cut(files: Sequence[Extent], slices: int) -> list[tuple[FilePiece, ...]]:
    """Cut files laid end to end into at most ``slices`` parts, in order, without empty ones.

    The parts are equal but for rounding; a file that cannot be cut goes whole to the part it begins in.
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
