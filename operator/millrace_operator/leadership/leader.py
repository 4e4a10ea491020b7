"""Participation in a leader election, in background threads: see ``Leader``."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from ..telemetry.logs import in_short
from .election import Election, ElectionStep, Record, Timing

log = logging.getLogger(__name__)


class NotLeadingError(Exception):
    """The lease is not certainly held, so nothing may be changed."""


class Leases(Protocol):
    """Storage of an election's record. After any error, it is unknown whether the request was applied."""

    def read(self, seconds: float) -> Record | None:
        """Read the record within ``seconds``; return None if there is none."""
        ...

    def write(self, record: Record, seconds: float) -> Record:
        """Create a record without a version, or replace the version it names; return the new record."""
        ...


def boot_clock() -> float:
    """Return monotonic seconds that include the time of a suspended machine, if the system has such a clock."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Leader:
    """Candidate of a leader election that leads at most once.

    After losing the lease, a leader cannot resume where it stopped, because another may have continued from there. So
    ``on_lost`` ends the process.

    Args:
        leases: storage of the record.
        identity: name of this process, unique among all processes ever started.
        timing: timing of the election.
        on_lead: called once, when this candidate becomes the leader.
        on_lost: called once, when it has led and no longer certainly does.
        clock: returns seconds; never goes back.
    """

    def __init__(
        self,
        leases: Leases,
        identity: str,
        timing: Timing,
        on_lead: Callable[[], None],
        on_lost: Callable[[], None],
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        self._leases = leases
        self._timing = timing
        self._election = Election(identity, timing)
        self._on_lead = on_lead
        self._on_lost = on_lost
        self._clock = clock
        self._has_led = False
        self._ending = threading.Event()
        self._elect = threading.Thread(target=self._run, name="election", daemon=True)
        self._watch = threading.Thread(target=self._notice_loss, name="lease-watch", daemon=True)

    def start(self) -> None:
        """Start taking part in the election."""
        self._elect.start()

    def leads(self) -> bool:
        """Return whether this candidate certainly leads now."""
        return self._election.leads(self._clock())

    def require(self) -> float:
        """Return the seconds within which a change started now must end, so that it does not outlast the lease.

        Raises:
            NotLeadingError: this candidate does not certainly lead.
        """
        left = self._election.left(self._clock())
        if left <= 0:
            raise NotLeadingError("this operator does not hold the lease, and changes nothing without it")
        return left + self._timing.lease - self._timing.deadline

    def release(self) -> None:
        """Leave the election and release the lease, so that another can lead at once. Finish all changes before."""
        self._ending.set()
        for thread in (self._elect, self._watch):
            if thread.is_alive():
                thread.join()
        record = self._election.released()
        if record is not None:
            try:
                self._leases.write(record, self._timing.request)
                log.info("the lease is released")
            except Exception as error:  # the lease expires anyway
                log.warning("the lease is not released, and ends in %d s: %s", self._timing.lease, in_short(error))

    def _run(self) -> None:
        while not self._ending.is_set():
            action, seconds = self._election.next(self._clock())
            if action is ElectionStep.WAIT:
                self._ending.wait(seconds)
                continue
            try:
                self._request(action)
            except Exception as error:  # whatever the error, the record is read again
                log.warning("a request for the lease failed, so its record will be read again: %s", in_short(error))
                self._election.failed(self._clock())
            if not self._has_led and self.leads():
                self._has_led = True
                self._watch.start()
                self._on_lead()

    def _request(self, action: ElectionStep) -> None:
        if action is ElectionStep.READ:
            found = self._leases.read(self._timing.request)
            self._election.read(found, self._clock())
        else:
            sent = self._clock()
            written = self._leases.write(self._election.wanted(), self._timing.request)
            self._election.written(written, sent, self._clock())

    def _notice_loss(self) -> None:
        """Detect the loss of the lease in a thread of its own, because the election thread may hang in a request."""
        while not self._ending.is_set():
            left = self._election.left(self._clock())
            if left <= 0:
                self._on_lost()
                return
            self._ending.wait(min(left, self._timing.retry / 2))
