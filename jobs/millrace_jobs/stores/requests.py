"""Counts of the requests that Millrace itself makes of object stores, in all processes of a job on one machine.

Each process has a file of counters in a folder that the environment names, so that the processes that Spark starts (to
plan sources and, without executors, to run tasks) count too, also after they have ended. Without the folder, as on
executors, nothing is counted. A request that the client repeats counts once, and one that fails counts without bytes.
The parts of a large object that is given up do not count.
"""

from __future__ import annotations

import os
import stat
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

FOLDER = "MILLRACE_STORE_REQUESTS"
"""Environment variable with the folder of the counters."""

Request = Literal["GET", "HEAD", "PUT", "LIST", "DELETE", "COPY"]
REQUESTS: tuple[Request, ...] = get_args(Request)
"""Kinds of requests, as stores bill them; the parts of a large object and what begins and ends it are PUT."""

PAGE = 1000
"""The most keys in an answer of S3 to a LIST, and in a request to it to delete several objects."""

DIRECTIONS = ("read", "written")
"""What the bytes of objects are counted by."""

_FIELDS = (*REQUESTS, *DIRECTIONS)
_BYTES = 8 * len(_FIELDS)
_LOCK = Lock()


@contextmanager
def counting_in(folder: Path) -> Iterator[Path]:
    """Make a folder for the counters of this process and of those that it starts in the ``with`` block; yield it."""
    folder.mkdir(exist_ok=True)
    before = os.environ.get(FOLDER)
    os.environ[FOLDER] = str(folder)
    try:
        yield folder
    finally:
        os.environ.pop(FOLDER)
        if before is not None:
            os.environ[FOLDER] = before


def environment() -> dict[str, str]:
    """Return the environment of processes that count with this one."""
    return {FOLDER: os.environ[FOLDER]} if FOLDER in os.environ else {}


def count(request: Request, times: int = 1, *, read: int = 0, written: int = 0) -> None:
    """Count requests of this process, and the bytes of objects that they read or wrote."""
    counters = _counters(os.environ.get(FOLDER), os.getpid())
    if counters is not None:
        with _LOCK:
            counters[REQUESTS.index(request)] += times
            counters[-2:] += (read, written)


class StoreCounters:
    """Reads the counters in a folder, and removes those of processes that have ended."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ended = np.zeros(len(_FIELDS), np.int64)

    def counted(self) -> Counter[str]:
        """Return what all processes have counted so far: requests by kind, and bytes by direction."""
        living = np.zeros(len(_FIELDS), np.int64)
        for file in self._folder.iterdir():
            has_ended = not _is_running(file.name)  # before it is read, so that nothing follows
            facts = file.lstat()
            if stat.S_ISREG(facts.st_mode) and facts.st_size == _BYTES:  # user code can write here, too
                (self._ended if has_ended else living)[:] += np.fromfile(file, np.int64)
            if has_ended:
                file.unlink()
        return Counter(dict(zip(_FIELDS, (self._ended + living).tolist(), strict=True)))


def _is_running(process: str) -> bool:
    return Path("/proc", process).exists() if sys.platform == "linux" else True


def pages(entries: int, page: int = PAGE) -> int:
    """Return the number of requests that list so many objects."""
    return max(-(-entries // page), 1)


@lru_cache(maxsize=1)
def _counters(folder: str | None, process: int) -> npt.NDArray[np.int64] | None:
    """Return the counters of this process; None if there is no place for them, which must not fail a request."""
    if folder is None:
        return None
    try:
        file = os.open(Path(folder) / str(process), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(file, 0, _BYTES)  # a full disk fails here, and later would end the process
            return np.memmap(os.fdopen(os.dup(file), "r+b"), np.int64, "r+", shape=(len(_FIELDS),))
        finally:
            os.close(file)
    except OSError:
        return None
