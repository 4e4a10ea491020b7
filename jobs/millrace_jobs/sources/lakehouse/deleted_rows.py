"""Rows of a data file that a table marks as deleted: as one bit for each row, and as deletion vectors of Delta tables.

A deletion vector is a bitmap in the log or in a file of its own, in the format of
https://github.com/delta-io/delta/blob/master/PROTOCOL.md#deletion-vectors.
"""

from __future__ import annotations

import base64
import struct
import uuid
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap64

from millrace_jobs.sources.stored_files import open_bytes


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


_MAGIC = struct.pack("<i", 1681511377)

_OF_Z85 = str.maketrans(
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
)
"""The digits of Z85 as those of the Base85 that Python decodes."""

_NAME_LENGTH = 20
"""Digits of the identifier in the name of a file."""


@dataclass(frozen=True)
class DeletionVector:
    """Where a deletion vector is.

    Args:
        file: absolute path or URI of its file; empty if ``text`` has it.
        offset: where it begins in the file.
        size: its size in bytes.
        text: it itself, in Z85.
    """

    file: str
    offset: int
    size: int
    text: str = ""

    @classmethod
    def of(cls, described: Mapping[str, Any] | None, place: Callable[[str], str]) -> DeletionVector | None:
        """Return the vector that an action of the log describes, if any.

        Args:
            described: the action's ``deletionVector``.
            place: returns the place of a file that the log names.

        Raises:
            ValueError: it is described in a way that the format does not have.
        """
        if described is None:
            return None
        kind, text, size = described["storageType"], described["pathOrInlineDv"], int(described["sizeInBytes"])
        if kind == "i":
            return cls("", 0, size, text)
        offset = int(described.get("offset") or 0)
        if kind == "p":
            return cls(place(text), offset, size)
        if kind != "u" or len(text) < _NAME_LENGTH:
            raise ValueError(f"the deletion vector {kind}{text} is of an unknown kind")
        folder, name = text[:-_NAME_LENGTH], uuid.UUID(bytes=_decoded(text[-_NAME_LENGTH:]))
        return cls(place(f"{folder}/deletion_vector_{name}.bin".removeprefix("/")), offset, size)

    def rows(self) -> NDArray[np.int64]:
        """Return the numbers of the deleted rows, in order. Shape ``(deleted rows,)``.

        Raises:
            OSError: its file cannot be read.
            ValueError: it is damaged.
        """
        content = self._stored() if self.file else _decoded(self.text)[: self.size]
        if not content.startswith(_MAGIC):
            raise ValueError("the deletion vector does not begin with its number")
        bitmap = BitMap64.deserialize(content[len(_MAGIC) :])
        return np.frombuffer(bitmap.to_array(), np.uint64).astype(np.int64)

    def _stored(self) -> bytes:
        """Return the part of the file that is between the size and the checksum of the vector."""
        with open_bytes(self.file) as file:
            file.seek(self.offset)
            stored = file.read(self.size + 8)
        content = stored[4:-4]
        if stored[:4] + stored[-4:] != struct.pack(">iI", self.size, zlib.crc32(content)):
            raise ValueError("the deletion vector has another size or checksum than its file says")
        return content


def _decoded(text: str) -> bytes:
    return base64.b85decode(text.translate(_OF_Z85))
