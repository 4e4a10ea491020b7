"""Where the lab keeps what it has got from package registries: outside the tree, once for all runs."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


class MissingError(Exception):
    """This machine lacks something that a service needs; says what. Tests are skipped for it."""


def require(*programs: str) -> None:
    """Raises ``MissingError`` where one of these is not installed."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        raise MissingError(f"not installed: {', '.join(missing)}")


def cached(name: str, make: Callable[[Path], None]) -> Path:
    """A folder of the cache, filled by ``make`` where it is not there yet; other processes wait meanwhile."""
    cache = _cache()
    folder = cache / name
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=cache, prefix=f"{name}.") as partial:
                made = Path(partial, "made")
                made.mkdir()
                make(made)
                made.rename(folder)
    return folder


def _cache() -> Path:
    given = os.environ.get("MILLRACE_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "millrace"
