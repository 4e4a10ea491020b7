"""A small disk for a test to fill: a file system in memory, visible only to programs that enter its namespace."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .cache import MissingError, require
from .processes import Process

_PATIENCE = 30.0


class SmallDisk:
    """A disk at ``folder`` for commands prefixed with ``enter``, and at ``outside`` for all others."""

    def __init__(self, folder: Path, size: int, holder: Process) -> None:
        self.folder = folder
        self.enter = ["nsenter", f"--mount=/proc/{holder.pid}/ns/mnt", "--"]
        self.outside = Path(f"/proc/{holder.pid}/root{folder}")
        self._size = size
        self._ballast = self.outside / "ballast"

    def fill(self, free: int) -> None:
        """Fill the disk until ``free`` bytes are left."""
        state = os.statvfs(self.outside)
        assert state.f_blocks * state.f_frsize == self._size, f"{self.outside} is not the small disk"
        with (
            self._ballast.open("wb", buffering=0) as file,
            suppress(OSError),
        ):  # others may have taken the rest meanwhile
            for size in (1 << 20, 1 << 12):
                while (state := os.statvfs(self.outside)).f_bavail * state.f_frsize - free >= size:
                    file.write(bytes(size))

    def clear(self) -> None:
        """Free the space again."""
        self._ballast.unlink(missing_ok=True)


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[SmallDisk]:
    """Mount a disk of ``size`` bytes in its own mount namespace.

    Raises:
        MissingError: if this user may not mount one.
    """
    require("unshare", "nsenter")
    folder.mkdir()
    mount = f'mount -t tmpfs -o size={size} tmpfs "$0" && exec sleep infinity'
    holder = Process(["unshare", "--mount", "sh", "-c", mount, folder], folder.with_suffix(".log"))
    try:
        _wait_until_mounted(holder, folder)
        yield SmallDisk(folder, size, holder)
    finally:
        holder.kill()


def _wait_until_mounted(holder: Process, folder: Path) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not _is_mounted(holder, folder):
        if holder.status is not None:
            raise MissingError(f"this user may not mount a small disk: {holder.said.strip()}")
        assert time.monotonic() < deadline, f"{folder} was not mounted in {_PATIENCE} s"
        time.sleep(0.05)


def _is_mounted(holder: Process, folder: Path) -> bool:
    with suppress(OSError):  # where the holder has ended
        return f" {folder} " in Path(f"/proc/{holder.pid}/mountinfo").read_text()
    return False
