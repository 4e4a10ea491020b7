"""The lease in a checkpoint: it names the driver, so that a second one is refused, also on another machine.

``lease.json`` in the checkpoint names the holder, and is rewritten every few seconds. A lease that has not been renewed
for its whole length has expired.

In a folder, a file lock also keeps other processes of this machine away, and is free as soon as its holder dies;
machines that share the folder over a network may not see the lock. In an object store, there is no lock, and each write
of the lease is conditional (``object_lease``).
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
import uuid
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.status import FailureClass
from millrace_jobs.places import Place

LEASE_SECONDS = 30.0
"""Length of a lease in seconds: a driver that is dead or cut off blocks other machines for that long."""

RENEWALS = 4
"""Number of renewals within the length of a lease; all but one may fail without harm."""

ONE_DRIVER = "make sure that only one driver runs, then run the same command again: nothing is lost"
_WRITABLE = "check that its disk has room and responds, then run the same command again: nothing is lost"

_RELEASE_SECONDS = 5.0
"""Seconds that the end of a run waits for a running renewal; one that hangs is abandoned."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Holder:
    """The holder of a lease: a process of a machine since its last boot.

    ``started`` is the start of the process in clock ticks since boot; it distinguishes the process from a later one
    with the same pid. ``renewed`` is in seconds since 1970, and ``seconds`` is the length of the lease.
    """

    holder: str
    host: str
    boot: str
    pid: int
    started: int
    renewed: float
    seconds: float

    @classmethod
    def this_process(cls, seconds: float) -> Self:
        """Return a new holder for this process."""
        pid = os.getpid()
        return cls(str(uuid.uuid4()), socket.gethostname(), _boot(), pid, _started(pid), time.time(), seconds)

    @classmethod
    def parsed(cls, text: str) -> Self | None:
        """Return the holder in the text of a lease; None for a damaged one."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            return None

    def is_dead(self) -> bool:
        """Whether the holder was a process of this machine that has ended; False if that cannot be known."""
        if self.boot not in (_boot(), boot_and_pids()) or self.host != socket.gethostname():
            return False
        return _started(self.pid) != self.started

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}" if self.holder else "an unknown process"


class Lease(ABC):
    """This process's lease on a checkpoint, renewed by a thread until it is released or lost."""

    failure: FailureClass | None = None
    """Class of the failure when it runs out; None for that of the checkpoint."""

    def __init__(self, root: Place, seconds: float = LEASE_SECONDS) -> None:
        self._place = str(root)
        self._file = str(root / "lease.json")
        self._seconds = seconds
        self._mine = Holder.this_process(seconds)
        self._renewed_at = since_boot()
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._renew_until_released, name="lease", daemon=True)
        self._renewing = threading.Lock()
        self._lost: MillraceError | None = None
        self.failures = 0
        """Number of renewals that failed; each is tried again."""
        self._error = ""
        """The error of the last renewal; empty if that renewal succeeded."""

    def take(self) -> None:
        """Become the holder; in a folder, the caller must have this machine's lock.

        Raises:
            MillraceError: another driver holds the lease, or may still do so.
        """
        held = self._read()
        if held is not None and not held.is_dead():
            self._require_expired(held)
        self._renewed_at = since_boot()
        self._write()
        self._thread.start()

    def holder(self) -> Holder | None:
        """Return the process that holds the lease, or held it when it expired; None if it is free."""
        return self._read()

    @property
    def lost(self) -> MillraceError | None:
        """The reason why this process no longer holds the lease, as far as is known; None while it does.

        It is computed without reading a file: a driver blocked on an unresponsive disk still loses the lease.
        """
        silent = since_boot() - self._renewed_at
        if self._lost is None and silent > self._seconds:
            why = f"its lease {self._file} ran out, and another driver may have taken over: the lease "
            why += f"cannot be renewed: {self._error}" if self._error else f"was not renewed for {silent:.0f} s"
            self._lost = self._ended(why, _WRITABLE)
            self._lost.failure = self.failure
        return self._lost

    def check(self) -> None:
        """Renew the lease, and ensure that this process still holds it.

        Raises:
            MillraceError: another driver has the checkpoint now, or may have it.
        """
        if self.lost is None:
            self._renew()
        if self.lost is not None:
            raise self.lost

    def release(self) -> None:
        """Release the lease at once; if that fails, it expires.

        A lost lease is not touched: it may be another driver's.
        """
        self._released.set()
        if self._thread.is_alive():
            self._thread.join(_RELEASE_SECONDS)
        if self._thread.is_alive() or self.lost is not None:
            return
        with suppress(OSError):
            self._remove()

    def _require_expired(self, held: Holder) -> None:
        left = held.renewed + held.seconds - time.time()
        if not 0 < left <= held.seconds:
            # Expired, or the clocks differ. A holder that cannot renew its lease goes on for its whole length.
            time.sleep(held.seconds)
            now = self._read()
            if now is None or now == held or now.is_dead():
                return
            held, left = now, now.seconds
        when = datetime.fromtimestamp(time.time() + left, UTC).isoformat(sep=" ", timespec="seconds")
        error = MillraceError(
            Problem(
                f"another run is using the checkpoint {self._place}: {held}",
                f"end that run first; if it is dead, its lease runs out at {when} unless it is renewed",
                field="spec.checkpoint",
            )
        )
        error.failure = FailureClass.OTHER  # nothing is wrong with the state
        raise error

    def _renew_until_released(self) -> None:
        while not self._released.wait(self._seconds / RENEWALS) and self.lost is None:
            self._renew()

    def _renew(self) -> None:
        """Renew the lease, or record that another driver has taken it or may have."""
        with self._renewing:
            try:
                self._write()
            except MillraceError as error:
                self._lost = error
            except OSError as error:
                self.failures += 1
                self._error = error.strerror or str(error)
                log.info("the lease %s was not renewed: %s", self._file, self._error)  # reported if the lease is lost

    def _require_holder(self, held: Holder | None) -> None:
        """Raise MillraceError unless this process is the holder that was read."""
        if held is None:
            raise self._ended(f"its lease {self._file} is gone", ONE_DRIVER)
        if held.holder != self._mine.holder:
            raise self._ended(f"{held} has taken over {self._place}", ONE_DRIVER)

    def _renewal(self) -> Holder:
        """Return what the next renewal writes."""
        return replace(self._mine, renewed=time.time())

    def _note_renewed(self, began: float) -> None:
        """Note a renewal that began at this time since boot, unless the lease has run out meanwhile."""
        if self.lost is not None:
            raise self.lost
        self._renewed_at, self._error = began, ""

    @staticmethod
    def _ended(why: str, hint: str) -> MillraceError:
        return MillraceError(Problem(f"this driver ends: {why}", hint, field="spec.checkpoint"))

    @abstractmethod
    def _read(self) -> Holder | None:
        """Return the holder, or None if the lease is free; of a damaged file only the age is known."""

    @abstractmethod
    def _write(self) -> None:
        """Renew the lease of this process, or take a lease that is free or has expired.

        Raises:
            MillraceError: another driver has it, or may have it.
            OSError: it cannot be written.
        """

    @abstractmethod
    def _remove(self) -> None:
        """Free the lease of this process."""


class FolderLease(Lease):
    """A lease in a folder."""

    def __init__(self, root: Path, seconds: float = LEASE_SECONDS) -> None:
        super().__init__(root, seconds)
        self._path = root / "lease.json"
        self._is_taken = False

    def _read(self) -> Holder | None:
        try:
            text, written = self._path.read_text(encoding="utf-8", errors="replace"), self._path.stat().st_mtime
        except FileNotFoundError:
            return None
        return Holder.parsed(text) or Holder("", "", "", 0, 0, written, self._seconds)

    def _write(self) -> None:
        """Replace the lease file, unless the lease has expired meanwhile: another driver may hold it then."""
        if self._is_taken:
            self._require_holder(self._read())
        began = since_boot()
        partial = self._path.with_name("lease.new")
        try:
            partial.write_text(json.dumps(asdict(self._renewal())), encoding="utf-8")
            if self.lost is not None:
                raise self.lost
            partial.replace(self._path)
        except OSError:
            with suppress(OSError):
                partial.unlink()
            raise
        self._require_holder(self._read())
        self._is_taken = True
        self._note_renewed(began)

    def _remove(self) -> None:
        held = self._read()
        if held is not None and held.holder == self._mine.holder:
            self._path.unlink(missing_ok=True)


def since_boot() -> float:
    """Return the seconds since boot, including sleep; setting the clock does not change them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def boot_and_pids() -> str:
    """Return what identifies the last boot and the process ids that this process sees: a container has its own."""
    return f"{_boot()} {Path('/proc/self/ns/pid').readlink()}"


def _started(pid: int) -> int:
    """Return the start of a local process, in clock ticks since boot; 0 if it does not exist or is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    fields = stat.rpartition(")")[2].split()
    return 0 if fields[0] in ("Z", "X") else int(fields[19])
