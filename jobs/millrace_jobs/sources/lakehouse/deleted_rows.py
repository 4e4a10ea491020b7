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
    mask = np.zeros(int(places.max(initial=-1)) + 1, np.bool_)
    mask[places] = True
    return packed(mask)


class DeletedRows:
    """The deleted rows of one file."""

    def __init__(self, content: bytes) -> None:
        self._mask = np.unpackbits(np.frombuffer(zlib.decompress(content), np.uint8)).astype(np.bool_)

    def without(self, records: pa.RecordBatch, first: int) -> pa.RecordBatch:
        """Return the records that are not deleted, where the first of these is row ``first`` of the file."""
        mask = self._mask[first : first + records.num_rows]
        if not mask.any():
            return records
        kept = np.ones(records.num_rows, np.bool_)
        kept[: len(mask)] = ~mask
        return records.filter(pa.array(kept))
