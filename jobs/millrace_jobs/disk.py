"""Durable writes that survive a power cut, folders that are created and removed, and the cache of this user."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


def sync(path: Path) -> None:
    """Flush a file to disk (``fsync``). For a folder, flush its entries: the names of the files in it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> list[Path]:
    """Create a folder and its missing parents; return the folders created, innermost first."""
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    return made


def remove_folders(made: Sequence[Path]) -> None:
    """Remove the folders that ``make_folder`` created; stop at the first that is not empty."""
    for folder in made:
        try:
            folder.rmdir()
        except OSError:
            return


def cache_folder() -> Path | None:
    """Return Millrace's folder in the user's cache, or None for a user without a home. The folder may not exist."""
    named = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(named or Path.home() / ".cache") / "millrace"
    except RuntimeError:
        return None
