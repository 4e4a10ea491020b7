"""The lock that keeps other processes of this machine away from a checkpoint in a folder."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import IO

from millrace_jobs.disk import make_folder, remove_folders

LOCK = "lock"
"""Name of the file that is locked; it has no content."""


class FolderLock:
    """The lock of one checkpoint; the folder is created if it does not exist."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._file: IO[str] | None = None
        self._made: list[Path] = []

    def take(self) -> None:
        """Take the lock.

        Raises:
            BlockingIOError: another process has it.
            OSError: the folder or the file cannot be written.
        """
        while True:
            self._made = make_folder(self._root) or self._made
            file = (self._root / LOCK).open("w", encoding="utf-8")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(self._root / LOCK, file):
                    self._file = file
                    return
            except BaseException:
                file.close()
                raise
            file.close()  # ``Checkpoint.withdraw`` has removed the file: the next process would lock a different one

    def release(self) -> None:
        """Release the lock, and remove the folders that ``take`` has created if nothing is in them."""
        if self._file is not None:
            with suppress(OSError):  # the network share may be gone
                self._file.close()
        remove_folders(self._made)


def _is_at(path: Path, file: IO[str]) -> bool:
    """Whether an open file is still the file at this path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
