"""Where the lab keeps what it has made: outside the tree, once for all runs of all checkouts."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class MissingError(Exception):
    """This machine lacks something that a service needs. Tests that need it are skipped, or fail if ``CI`` is set."""


class FailedError(MissingError):
    """Something that should work on this machine failed, such as a download or a build."""


def require(*programs: str) -> None:
    """Raise ``MissingError`` if one of these programs is not installed."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        raise MissingError(f"not installed: {', '.join(missing)}")


def cache_folder() -> Path:
    """Return the lab's cache: ``$MILLRACE_CACHE``, or ``millrace`` among the user's caches."""
    given = os.environ.get("MILLRACE_CACHE")
    folder = Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "millrace"
    folder.mkdir(parents=True, exist_ok=True)
    return folder.absolute()


def state_folder(name: str) -> Path:
    """Return a folder of the cache that programs of the lab write to; it is made if necessary."""
    folder = cache_folder() / name
    folder.mkdir(exist_ok=True)
    return folder


@contextmanager
def locked(name: str, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Exclude other processes that lock the same name; ``waiting`` is called first if one holds the lock."""
    with (cache_folder() / f"{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
