"""Binary format of partitioner states: a JSON header, then the arrays as raw little-endian numbers.

Layout: ``MRPS``; the CRC-32 of the header and the arrays, seeded with the header's length; the header's length (both
unsigned 32-bit, little-endian); the header in UTF-8; the arrays one after the other in the header's order. Reading a
state executes nothing in it, so a state may come from a disk that others can write to.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .parameters import whole_number

Vectors = Mapping[str, NDArray[np.int64]]
"""One-dimensional arrays by name."""

_PREFIX = struct.Struct("<4sII")
_MAGIC = b"MRPS"


@dataclass(frozen=True)
class PartitionerState:
    """The state of a partitioner of ``algorithm``; ``version`` counts the changes in the meaning of the fields."""

    algorithm: str
    version: int
    workers: int
    counters: Mapping[str, int]
    vectors: Vectors

    def vector(self, name: str) -> NDArray[np.int64]:
        """Return a vector, or an empty one if it is missing."""
        return self.vectors.get(name, np.empty(0, np.int64))


class SavedCounter(NamedTuple):
    """A whole number of at least ``least`` in a state; error messages call it the saved ``title``."""

    name: str
    title: str
    least: int = 0

    def checked(self, saved: PartitionerState) -> int:
        """Return its value in a state. Raises ValueError if it is missing or not such a number."""
        return whole_number(f"the saved {self.title}", saved.counters.get(self.name), self.least)


def as_vector(numbers: ArrayLike) -> NDArray[np.int64]:
    """Return an array flattened to 64-bit integers: items of 8 bytes keep their bits, all others their value."""
    flat = np.ascontiguousarray(numbers).reshape(-1)
    return flat.view(np.int64) if flat.itemsize == 8 else flat.astype(np.int64)


def pack(state: PartitionerState) -> bytes:
    """Return the bytes that ``unpack`` turns into the same state; equal states give equal bytes."""
    lengths = {name: len(vector) for name, vector in state.vectors.items()}
    header = json.dumps(vars(state) | {"vectors": lengths}, separators=(",", ":")).encode()
    body = header + b"".join(vector.astype("<i8").tobytes() for vector in state.vectors.values())
    return _PREFIX.pack(_MAGIC, zlib.crc32(body, len(header)), len(header)) + body


def unpack(data: bytes, algorithm: str, version: int) -> PartitionerState:
    """Return the state in ``data``. Raises ValueError unless ``pack`` made it for that algorithm and version."""
    body, header_length = _checked(data)
    try:
        state = _parse(json.loads(body[:header_length]), body[header_length:])
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError("the state of a partitioner has a malformed header") from error
    if (state.algorithm, state.version) != (algorithm, version):
        raise ValueError(
            f"this is a state of partitioner {state.algorithm!r}, version {state.version}, and cannot be "
            f"restored into {algorithm!r}, version {version}; start without it"
        )
    return state


def _checked(data: bytes) -> tuple[bytes, int]:
    """Verify the checksum; return the header with the arrays, and the header's length."""
    if len(data) < _PREFIX.size or data[: len(_MAGIC)] != _MAGIC:
        raise ValueError(f"these {len(data)} bytes are not the state of a partitioner")
    _, checksum, header_length = _PREFIX.unpack_from(data)
    body = data[_PREFIX.size :]
    if zlib.crc32(body, header_length) != checksum:
        raise ValueError(f"the state of a partitioner in these {len(data)} bytes is damaged: wrong checksum")
    return body, header_length


def _parse(header: dict[str, Any], arrays: bytes) -> PartitionerState:
    vectors, at = {}, 0
    for name, length in header["vectors"].items():
        count = whole_number(f"the saved length of {name}", length, 0)
        vectors[name] = np.frombuffer(arrays, "<i8", count, at).astype(np.int64)
        at += 8 * count
    workers = whole_number("the saved number of workers", header["workers"], 1)
    return PartitionerState(header["algorithm"], header["version"], workers, dict(header["counters"]), vectors)
