"""The places of a checkpoint and its parts, in a folder or in an object store, and what is done in both alike."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from millrace_jobs.disk import sync
from millrace_jobs.object_store import ObjectPath

Place = Path | ObjectPath
"""A file or a folder, or an object or the common beginning of the keys of some."""


def write_durably(place: Place, content: bytes, partial: str = ".new") -> None:
    """Create or replace a file or an object, atomically; it survives a power cut from then on.

    In a folder, a file with the suffix ``partial`` is renamed; processes that write at the same time use different
    suffixes.

    Raises:
        OSError: it cannot be written; the earlier content remains.
    """
    if isinstance(place, ObjectPath):
        place.write_bytes(content)
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    unfinished = place.with_suffix(partial)
    with unfinished.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(place)
    sync(place.parent)


def remove_all(place: Place) -> None:
    """Remove a folder with its files, or the objects below a place, as far as that is possible."""
    if isinstance(place, ObjectPath):
        place.remove_all()
    else:
        shutil.rmtree(place, ignore_errors=True)
