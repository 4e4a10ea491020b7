"""Takes part in the election of a leader, in threads of its own: see ``Leader``."""

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
    """The lease is not surely held, so nothing may be changed."""


class Leases(Protocol):
    """Where the record of one election is. Any error means that it is not known what was done."""

    def read(self, seconds: float) -> Record | None:
        """The record; None where there is none. It takes ``seconds`` at most."""
        ...

    def write(self, record: Record, seconds: float) -> Record:
        """Make the record where it has no version, else replace this version of it; what it is then."""
        ...


def boot_clock() -> float:
    """Seconds that go on while the machine is suspended, where the system has such a clock."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Leader:
    """One candidate, which may become the leader, and stays it until it ends.

    Who has led and has lost the lease cannot take it up again where it stopped, since another may have gone on from
    there: ``on_lost`` ends the process.

    Args:
        leases: where the record is.
        identity: of this process among all that there ever are.
        timing: how long a lease is.
        on_lead: called once, when this one leads.
        on_lost: called once, when it has led and does not surely do so any more.
        clock: seconds; it never goes back.
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
        self._begun = False
        self._ending = threading.Event()
        self._take_part = threading.Thread(target=self._run, name="election", daemon=True)
        self._watch = threading.Thread(target=self._notice_loss, name="lease-watch", daemon=True)

    def start(self) -> None:
        """Take part from now on."""
        self._take_part.start()

    def leads(self) -> bool:
        """Whether this one surely leads now."""
        return self._election.leads(self._clock())

    def require(self) -> float:
        """Seconds in which a change that begins now must have ended, so that it does not outlast the lease.

        Raises:
            NotLeadingError: this one does not surely lead.
        """
        left = self._election.left(self._clock())
        if left <= 0:
            raise NotLeadingError("this operator does not hold the lease, and changes nothing without it")
        return left + self._timing.lease - self._timing.deadline

    def release(self) -> None:
        """End the part it takes, so that another leads at once. Whatever it changes must have ended before."""
        self._ending.set()
        for thread in (self._take_part, self._watch):
            if thread.is_alive():
                thread.join()
        record = self._election.released()
        if record is not None:
            try:
                self._leases.write(record, self._timing.request)
                log.info("the lease is released")
            except Exception as error:  # it ends by itself as well
                log.warning("the lease is not released, and ends in %d s: %s", self._timing.lease, in_short(error))

    def _run(self) -> None:
        while not self._ending.is_set():
            action, seconds = self._election.next(self._clock())
            if action is ElectionStep.WAIT:
                self._ending.wait(seconds)
                continue
            try:
                self._do(action)
            except Exception as error:  # refused, late or lost, or of a newer kind: it is looked at again
                log.warning("no answer about the lease: %s", in_short(error))
                self._election.failed(self._clock())
            if not self._begun and self.leads():
                self._begun = True
                self._watch.start()
                self._on_lead()

    def _do(self, action: ElectionStep) -> None:
        if action is ElectionStep.READ:
            found = self._leases.read(self._timing.request)
            self._election.read(found, self._clock())
        else:
            sent = self._clock()
            written = self._leases.write(self._election.wanted(), self._timing.request)
            self._election.written(written, sent, self._clock())

    def _notice_loss(self) -> None:
        """Beside the thread that takes part, which may hang in a request for longer than it should."""
        while not self._ending.is_set():
            left = self._election.left(self._clock())
            if left <= 0:
                self._on_lost()
                return
            self._ending.wait(min(left, self._timing.retry / 2))
