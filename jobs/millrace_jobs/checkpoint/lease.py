"""The lease in a checkpoint: who drives the query, so that a second driver is refused, also from another machine.

A lock on a file keeps other processes of this machine away, and is free as soon as its holder is dead. Machines that
share the checkpoint by a network may not see it. For them ``lease.json`` says who holds the checkpoint, and is
written anew every few seconds; one that has not been renewed for its whole length has run out.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from millrace_api.errors import MillraceError, Problem
from millrace_api.failures import FailureClass

SECONDS = 30.0
"""Length of a lease: a driver that is dead or cut off keeps other machines from its checkpoint for that long."""

RENEWALS = 4
"""Renewals within the length of a lease; so many less one may fail without harm."""

_ONE_DRIVER = "see to it that there is one driver, then run the same command again: nothing is lost"
_WRITABLE = "see to it that there is room and that its disk answers, then run the same command again: nothing is lost"

_RELEASE_SECONDS = 5.0
"""How long the end of a run waits for a renewal that is under way; one that hangs is left behind."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Holder:
    """Who holds a lease: a process of a machine, as long as that has been running.

    ``started`` is when the process began, in ticks of the machine's clock since it was started, which tells it from a
    later process of the same number; ``renewed`` is in seconds since 1970.
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
        """A new holder."""
        pid = os.getpid()
        return cls(str(uuid.uuid4()), socket.gethostname(), _boot(), pid, _started(pid), time.time(), seconds)

    @property
    def runs_out(self) -> float:
        """When another machine may take the checkpoint, in seconds since 1970."""
        return self.renewed + self.seconds

    def is_dead(self) -> bool:
        """Whether it was a process of this machine and has ended; False where that cannot be known."""
        if self.boot != _boot() or self.host != socket.gethostname():
            return False
        return _started(self.pid) != self.started

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}" if self.holder else "an unknown process"


class Lease:
    """This process's hold on a checkpoint, renewed by a thread until it is released or lost."""

    def __init__(self, root: Path, seconds: float = SECONDS) -> None:
        self._root = root
        self._path = root / "lease.json"
        self._seconds = seconds
        self._mine = Holder.this_process(seconds)
        self._renewed_at = _since_boot()
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._renew_until_released, name="lease", daemon=True)
        self._one_at_a_time = threading.Lock()
        self._lost: MillraceError | None = None
        self._trouble = ""
        """What the last renewal failed for."""

    def take(self) -> None:
        """Become the holder; the caller has the lock of this machine.

        Raises:
            MillraceError: another driver holds the lease, or may still do so.
        """
        held = self._read()
        if held is not None and not held.is_dead():
            self._require_run_out(held)
        self._renewed_at = _since_boot()
        self._write()
        self._thread.start()

    @property
    def lost(self) -> MillraceError | None:
        """Why it is no longer this process's, as far as is known; None while it is.

        Nothing is read for that: whoever waits for a disk that does not answer loses the lease all the same.
        """
        silent = _since_boot() - self._renewed_at
        if self._lost is None and silent > self._seconds:
            why = f"its lease {self._path} ran out, and another driver may have taken over: it "
            why += f"cannot be renewed: {self._trouble}" if self._trouble else f"was not renewed for {silent:.0f} s"
            self._lost = self._ended(why, _WRITABLE)
        return self._lost

    def check(self) -> None:
        """Ask again whether it is still this process's.

        Raises:
            MillraceError: another driver has the checkpoint now, or may have it.
        """
        if self.lost is None:
            self._look()
        if self.lost is not None:
            raise self.lost

    def release(self) -> None:
        """Let others have it at once; where that cannot be, it runs out. What is lost is another's, and stays."""
        self._released.set()
        if self._thread.is_alive():
            self._thread.join(_RELEASE_SECONDS)
        if self._thread.is_alive() or self.lost is not None:
            return
        with suppress(OSError):
            held = self._read()
            if held is not None and held.holder == self._mine.holder:
                self._path.unlink(missing_ok=True)

    def _require_run_out(self, held: Holder) -> None:
        left = held.runs_out - time.time()
        if not 0 < left <= held.seconds:  # run out; or the clocks differ, so that only watching it tells
            time.sleep(2 * held.seconds / RENEWALS)
            now = self._read()
            if now is None or now == held or now.is_dead():
                return
            held, left = now, now.seconds
        when = datetime.fromtimestamp(time.time() + left, UTC).isoformat(sep=" ", timespec="seconds")
        error = MillraceError(
            Problem(
                f"another run is using the checkpoint {self._root}: {held}",
                f"end that run first; if it is dead, its lease runs out at {when} unless it is renewed",
                field="spec.checkpoint",
            )
        )
        error.failure = FailureClass.OTHER  # nothing is wrong with the state
        raise error

    def _renew_until_released(self) -> None:
        while not self._released.wait(self._seconds / RENEWALS) and self.lost is None:
            self._look()

    def _look(self) -> None:
        """Renew the lease, or notice that another driver has taken it, or may have."""
        with self._one_at_a_time:
            try:
                self._require_mine()
                self._write()
            except MillraceError as error:
                self._lost = error
            except OSError as error:
                self._trouble = error.strerror or str(error)
                log.info("the lease %s was not renewed: %s", self._path, self._trouble)  # told where it is lost for it

    def _require_mine(self) -> None:
        held = self._read()
        if held is None:
            raise self._ended(f"its lease {self._path} is gone", _ONE_DRIVER)
        if held.holder != self._mine.holder:
            raise self._ended(f"{held} has taken over {self._root}", _ONE_DRIVER)

    def _write(self) -> None:
        """Put a new lease in place, unless the old one has run out meanwhile: then another driver may be there."""
        began = _since_boot()
        mine = asdict(self._mine) | {"renewed": time.time()}
        partial = self._root / "lease.new"
        try:
            partial.write_text(json.dumps(mine), encoding="utf-8")
            if self.lost is not None:
                raise self.lost
            partial.replace(self._path)
        except OSError:
            with suppress(OSError):
                partial.unlink()
            raise
        self._require_mine()
        if self.lost is not None:
            raise self.lost
        self._renewed_at, self._trouble = began, ""

    @staticmethod
    def _ended(why: str, hint: str) -> MillraceError:
        return MillraceError(Problem(f"this driver ends: {why}", hint, field="spec.checkpoint"))

    def _read(self) -> Holder | None:
        """Who holds it; None where nobody does. Of a damaged file only its age is known."""
        try:
            text, written = self._path.read_text(encoding="utf-8", errors="replace"), self._path.stat().st_mtime
        except FileNotFoundError:
            return None
        try:
            return Holder(**json.loads(text))
        except (ValueError, TypeError):
            return Holder("", "", "", 0, 0, written, self._seconds)


def _since_boot() -> float:
    """Seconds since the machine was started, those it slept included: no setting of its clock changes it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _started(pid: int) -> int:
    """When a process of this machine was started; 0 where there is none, or where it has ended and is not buried."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    fields = stat.rpartition(")")[2].split()
    return 0 if fields[0] in ("Z", "X") else int(fields[19])
