"""A file, or an object, as a source first saw it; and how it is opened and looked at again."""

from __future__ import annotations

import os
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_api.validation.places import is_object
from millrace_jobs.stores.objects import ObjectPath


@dataclass(frozen=True, slots=True)
class SeenFile:
    """A file as it was first seen: absolute path or URI, size in bytes, modification time in ns."""

    path: str
    size: int
    mtime_ns: int


def look(path: str) -> SeenFile:
    """Return a file as it is now.

    Raises:
        OSError: it is not there, or cannot be looked at.
    """
    if is_object(path):
        found = ObjectPath.of_file(path).look()
        return SeenFile(path, found.size, found.mtime_ns)
    status = os.stat(path)  # noqa: PTH116 - a Path for each of 86,400 files takes as long as the call
    return SeenFile(path, status.st_size, status.st_mtime_ns)


def open_bytes(path: str) -> BufferedReader:
    """Open a file, or an object, for reading at any place.

    Raises:
        OSError: it cannot be read.
    """
    return ObjectPath.of_file(path).open() if is_object(path) else Path(path).open("rb")


def unreadable(path: str, error: OSError) -> MillraceError:
    """Return the error for a file that cannot be read; it is transient where an object store may be away."""
    hint = "check that the object store answers, and that the login may read there" if is_object(path) else ""
    problem = Problem(f"cannot be read: {error.strerror or error}", hint, path)
    may_pass = is_object(path) and not isinstance(error, FileNotFoundError | PermissionError)
    return TransientError(problem) if may_pass else MillraceError(problem)
