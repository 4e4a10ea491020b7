"""Deletion vectors of Delta tables: the deleted rows of a data file, as a bitmap in the log or in a file of its own.

The format is that of https://github.com/delta-io/delta/blob/master/PROTOCOL.md#deletion-vectors.
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
from numpy.typing import NDArray
from pyroaring import BitMap64

from millrace_jobs.sources.seen_file import open_bytes

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
