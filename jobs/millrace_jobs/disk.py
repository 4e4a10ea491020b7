"""Durable writes that survive a power cut, folders that are created and removed, and the cache of this user."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from millrace_api.errors import MillraceError, Problem

_OWNED: list[IO[str]] = []
"""Locked files of the folders of this process. The system releases a lock once no process holds it any longer."""


def absolute_path(path: str | Path) -> Path:
    """Return the absolute path with a single slash at its beginning: after two, Hadoop reads the name of a host."""
    return Path("/" + str(Path(path).absolute()).lstrip("/"))


def path_for_spark(path: str | Path, field: str) -> Path:
    """Return the absolute path of a folder that Spark reads and writes.

    Raises:
        MillraceError: its name is not UTF-8, which Java cannot name; ``field`` is where the user writes it.
    """
    absolute = absolute_path(path)
    try:
        str(absolute).encode()
    except UnicodeEncodeError:
        message = f"the name of the folder {os.fsencode(absolute)!r} is not UTF-8, and Spark cannot use it"
        raise MillraceError(Problem(message, "rename it, or write another folder", field=field)) from None
    return absolute


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


def process_folder(prefix: str) -> tuple[Path, int]:
    """Create a temporary folder of this process that only this user may enter.

    A killed process leaves its folder behind. So this also removes the folders with this prefix whose processes are
    gone: those with an unlocked file ``owner``.

    Returns:
        The folder, and the descriptor of its lock. A child that inherits the descriptor holds the lock too, so that the
        folder remains until the child has ended.
    """
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    owner = (folder / "owner.new").open("w", encoding="utf-8")
    fcntl.flock(owner, fcntl.LOCK_EX)
    (folder / "owner.new").rename(folder / "owner")  # no other process sees the file before it is locked
    _OWNED.append(owner)
    for left in folder.parent.glob(f"{prefix}*/owner"):
        with suppress(OSError), left.open(encoding="utf-8") as lock:  # in use, another user's, or just removed
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left.parent, ignore_errors=True)
    return folder, owner.fileno()


def cache_folder() -> Path | None:
    """Return Millrace's folder in the user's cache, or None for a user without a home. The folder may not exist."""
    named = os.environ.get("XDG_CACHE_HOME")
    try:
        return absolute_path(named or Path.home() / ".cache") / "millrace"
    except RuntimeError:
        return None


def boot_id() -> str:
    """Return an id that this machine has until it is started again; a new one at each call where it has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return str(uuid.uuid4())
