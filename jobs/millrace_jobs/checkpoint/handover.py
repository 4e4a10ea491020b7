"""How a process that has made a changed copy of a running query's state hands it to the driver.

The copier works in the folder ``repartitioned`` of the checkpoint, and holds the lock there while it lives. The driver
alone changes its checkpoint. The two take turns by files in that folder, which each replaces atomically:

1. ``request.json``: the copier has followed the query to its newest batches, and asks for the switch.
2. ``stopped.json``: the driver has stopped the query after a batch, and waits.
3. ``ready.json``: the copy has that batch, too, and the copier has stopped writing to it.

The driver then puts the copy in force by one rename (``spark_folder``), and goes on. If the copier dies or takes too
long, the driver withdraws the request and goes on with its own state. If the driver dies, the next one finds the
request of a copier that lives, and stops after a batch of its own.
"""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path

from millrace_jobs.checkpoint.folder_lock import FolderLock
from millrace_jobs.checkpoint.snapshot_files import files_at, require_named
from millrace_jobs.checkpoint.spark_folder import SparkLog, folder_in_force
from millrace_jobs.places import write_durably

FOLDER = "repartitioned"
"""The folder of a checkpoint in which a copy of its state is made."""

_ATTEMPTS = 20
"""Number of attempts to begin a copy, while Spark removes old versions of the state."""

_REQUEST, _STOPPED, _READY = "request.json", "stopped.json", "ready.json"


class Handover:
    """The folder in which a copy is made and handed over, as both sides see it."""

    def __init__(self, root: Path) -> None:
        self.original = folder_in_force(root)
        self.folder = root / FOLDER
        self.copy = self.folder / "spark"
        self._lock = FolderLock(self.folder)

    def begin(self) -> None:
        """Become the copier, without what an earlier one has left.

        Raises:
            BlockingIOError: another copier is at work.
            OSError: the folder cannot be written.
        """
        self._lock.take()
        self._clear()

    def end(self) -> None:
        """Remove what is left of the copy, and let others become the copier."""
        self._clear()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.release()

    def link(self) -> int:
        """Make a copy of Spark's part as of its newest committed batch, of hard links, and return that batch.

        Raises:
            FileNotFoundError: Spark has replaced files again and again before all were linked.
            OSError: files cannot be linked.
        """
        for attempt in range(_ATTEMPTS):
            batch = SparkLog(self.original).last_batch().committed
            assert batch is not None, "the query has finished a batch"
            try:
                names = files_at(self.original, batch)
                for name in names:
                    (self.copy / name).parent.mkdir(parents=True, exist_ok=True)
                    (self.copy / name).hardlink_to(self.original / name)
                require_named({name: self.copy / name for name in names})
                return batch
            except FileNotFoundError:
                shutil.rmtree(self.copy, ignore_errors=True)
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def ask(self, partitions: int) -> None:
        """Ask the driver to switch to the copy."""
        _write(self.folder / _REQUEST, partitions)

    def requested(self) -> int | None:
        """The number of partitions of the copy that waits for the driver; None without one."""
        return _read(self.folder / _REQUEST)

    def stop_at(self, batch: int) -> None:
        """Report that the query has stopped after a batch, to a copier that may have ended and removed its folder."""
        with suppress(FileNotFoundError):
            _write(self.folder / _STOPPED, batch)

    def stopped_at(self) -> int | None:
        """The batch after which the query has stopped; None while it runs."""
        return _read(self.folder / _STOPPED)

    def offer(self, batch: int) -> None:
        """Report that the copy has this batch, and is complete."""
        _write(self.folder / _READY, batch)

    def take_back(self) -> None:
        """Report that the copy is not complete any more, before more is written to it."""
        (self.folder / _READY).unlink(missing_ok=True)

    def offered(self) -> int | None:
        """The batch that the complete copy has; None while there is no complete one."""
        return _read(self.folder / _READY)

    def withdraw(self) -> None:
        """Drop the request: the driver has switched, or goes on with its own state."""
        for name in (_REQUEST, _STOPPED):
            (self.folder / name).unlink(missing_ok=True)

    def is_abandoned(self) -> bool:
        """Whether the copier has ended."""
        if not self.folder.is_dir():
            return True
        lock = FolderLock(self.folder)
        try:
            lock.take()
        except BlockingIOError:
            return False
        lock.release()
        return True

    def clear_abandoned(self) -> None:
        """Remove the copy that a dead copier has left, if there is one."""
        if self.folder.is_dir() and self.is_abandoned():
            shutil.rmtree(self.folder, ignore_errors=True)

    def _clear(self) -> None:
        for name in (_READY, _REQUEST, _STOPPED):
            (self.folder / name).unlink(missing_ok=True)
        removed = self.folder / "removed"
        with suppress(FileNotFoundError):  # either this rename or that of the driver finds the copy
            self.copy.rename(removed)
        shutil.rmtree(removed, ignore_errors=True)


def _write(file: Path, number: int) -> None:
    write_durably(file, json.dumps(number).encode())


def _read(file: Path) -> int | None:
    with suppress(FileNotFoundError):
        return int(json.loads(file.read_text(encoding="utf-8")))
    return None
