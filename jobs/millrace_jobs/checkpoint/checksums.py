"""Checksums that Hadoop's local file system keeps beside the files it writes, as ``.NAME.crc``.

Spark writes them with its logs and its state, and does not verify them when it reads.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

_MAGIC = b"crc\0"


def is_as_written(path: Path) -> bool:
    """Whether a file matches its checksums; True if it has none. Raises OSError if it cannot be read."""
    try:
        checksums = path.with_name(f".{path.name}.crc").read_bytes()
    except FileNotFoundError:
        return True
    if checksums[:4] != _MAGIC or len(checksums) < 8:
        return False
    (length,) = struct.unpack(">I", checksums[4:8])
    with path.open("rb") as file:
        found = b"".join(struct.pack(">I", zlib.crc32(chunk)) for chunk in iter(lambda: file.read(length), b""))
    return found == checksums[8:]


def changed_files(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder that exist and do not match their checksums.

    Checksums without a file are no damage. Spark renames and deletes a file and its checksums one after the other, and
    its maintenance may do so during this scan.
    """
    for place, _, names in os.walk(folder):
        for name in sorted(names):
            if name.startswith(".") and name.endswith(".crc"):
                path = Path(place, name[1 : -len(".crc")])
                if _has_changed(path):
                    yield path


def _has_changed(path: Path) -> bool:
    try:
        return not is_as_written(path)
    except OSError:  # missing or unreadable files are no damage here; Spark's own error is clearer
        return False
