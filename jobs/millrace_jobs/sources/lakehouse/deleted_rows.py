"""Rows of a data file that a table marks as deleted, as one bit for each row, compressed."""

from __future__ import annotations

import zlib

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def packed(is_deleted: NDArray[np.bool_]) -> bytes:
    """Return a mask of all rows of a file, in short. Shape ``(rows,)``."""
    return zlib.compress(np.packbits(is_deleted).tobytes(), 1)


def packed_places(places: NDArray[np.int64]) -> bytes:
    """Return the numbers of the deleted rows, in short. Shape ``(deleted rows,)``."""
    return packed(_mask(places))


class DeletedRows:
    """The deleted rows of one file.

    Args:
        mask: which rows are deleted; those behind its end are not. Shape ``(rows,)``.
    """

    def __init__(self, mask: NDArray[np.bool_]) -> None:
        self._mask = mask

    @classmethod
    def of_packed(cls, content: bytes) -> DeletedRows:
        """Return the rows that were packed."""
        return cls(np.unpackbits(np.frombuffer(zlib.decompress(content), np.uint8)).astype(np.bool_))

    @classmethod
    def of_places(cls, places: NDArray[np.int64]) -> DeletedRows:
        """Return the rows with these numbers. Shape ``(deleted rows,)``."""
        return cls(_mask(places))

    @property
    def extent(self) -> range:
        """The rows from the first deleted one to the last one; empty if there is none."""
        return range(int(np.argmax(self._mask)) if self._mask.any() else len(self._mask), len(self._mask))

    def marked(self, first: int, count: int) -> NDArray[np.bool_]:
        """Return which of ``count`` rows from ``first`` on are deleted. Shape ``(count,)``."""
        found = np.zeros(count, np.bool_)
        part = self._mask[first : first + count]
        found[: len(part)] = part
        return found

    def without(self, records: pa.RecordBatch, first: int) -> pa.RecordBatch:
        """Return the records that are not deleted, where the first of these is row ``first`` of the file."""
        marked = self.marked(first, records.num_rows)
        return records.filter(pa.array(~marked)) if marked.any() else records


def _mask(places: NDArray[np.int64]) -> NDArray[np.bool_]:
    mask = np.zeros(int(places.max(initial=-1)) + 1, np.bool_)
    mask[places] = True
    return mask
