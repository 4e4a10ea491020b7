"""Leader election from one candidate's view, without clock and network: see ``Election``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto


@dataclass(frozen=True)
class Timing:
    """Timing of an election: the lease in seconds, the rest in the proportions of client-go's 15, 10 and 2."""

    lease: int = 15

    @property
    def deadline(self) -> float:
        """Seconds after sending the last successful renewal when a leader stops leading."""
        return self.lease * 2 / 3

    @property
    def retry(self) -> float:
        """Seconds between two reads or renewals."""
        return self.lease * 2 / 15

    @property
    def request(self) -> float:
        """Timeout of a lease request in seconds, short enough for several requests before the deadline."""
        return self.deadline / 4


@dataclass(frozen=True)
class Record:
    """Content of a Lease.

    ``holder`` is empty after a release. ``seconds`` is how long the others wait for the holder's next renewal.
    ``version`` is the version that was read; a write replaces this version only. ``acquired`` is an informational
    timestamp; None means now.
    """

    holder: str
    seconds: int
    version: str = ""
    transitions: int = 0
    acquired: str | None = None


class ElectionStep(Enum):
    """Next action of a candidate."""

    READ = auto()
    WRITE = auto()
    WAIT = auto()


class Election:
    """Leader election by the algorithm of client-go's ``leaderelection``, as a state machine.

    ``now`` is always the candidate's own clock, in seconds. A clock never goes back and keeps running while the machine
    sleeps. Clocks of different candidates are never compared.

    There are never two leaders. A leader counts from when it **sent** the successful renewal, up to the deadline. All
    others count from when they **saw** the record change, which is later, up to the lease duration, which is longer. A
    write names the version that was read, so one of two concurrent writes fails.
    """

    def __init__(self, identity: str, timing: Timing) -> None:
        self._identity = identity
        self._timing = timing
        self._record: Record | None = None
        self._changed = float("-inf")
        """Time when the current record was first seen."""
        self._vanished_seconds = 0
        """Lease duration of the last record if the Lease was deleted."""
        self._read_at: float | None = None
        """Time of the last read or write; None before the first and after a failed request, which may have written."""
        self._pause_until = float("-inf")
        self._renewed: float | None = None
        """Time when the last successful renewal was sent; None without the lease."""

    def next(self, now: float) -> tuple[ElectionStep, float]:
        """Return the next action, and the seconds to wait if it is WAIT."""
        if now < self._pause_until:
            return ElectionStep.WAIT, self._pause_until - now
        if self._read_at is None:
            return ElectionStep.READ, 0.0
        if self._holds():
            wait = 0.0 if self._renewed is None else self._renewed + self._timing.retry - now
            return (ElectionStep.WAIT, wait) if wait > 0 else (ElectionStep.WRITE, 0.0)
        if now >= self._read_at + self._timing.retry:
            return ElectionStep.READ, 0.0
        if now >= self._free_at():
            return ElectionStep.WRITE, 0.0
        return ElectionStep.WAIT, min(self._read_at + self._timing.retry, self._free_at()) - now

    def wanted(self) -> Record:
        """Return the record to write, with this candidate as the holder."""
        found = self._record
        if found is None:
            return Record(self._identity, self._timing.lease)
        if found.holder == self._identity:
            return replace(found, seconds=self._timing.lease)
        return Record(self._identity, self._timing.lease, found.version, found.transitions + 1)

    def released(self) -> Record | None:
        """Stop leading; return the record to write, or None if this candidate does not hold the lease."""
        held = self._record if self._holds() else None
        self._renewed = None
        return held and replace(held, holder="", seconds=1, acquired=None)  # the API server rejects 0 seconds

    def read(self, record: Record | None, now: float) -> None:
        """Note the record that was read, None without a Lease; ``now`` is when the answer arrived."""
        if record != self._record:
            self._vanished_seconds = self._record.seconds if self._record and not record else 0
            self._record, self._changed = record, now
        if not self._holds():
            self._renewed = None
        self._read_at = now

    def written(self, record: Record, sent: float, now: float) -> None:
        """Note a successful write: ``record`` has its new version, ``sent`` is when the request was sent."""
        self._record, self._changed, self._read_at = record, now, now
        self._renewed = sent

    def failed(self, now: float) -> None:
        """Note a failed request, which may have been applied; read again after a pause."""
        self._read_at = None
        self._pause_until = now + self._timing.retry

    def leads(self, now: float) -> bool:
        """Return whether this candidate certainly leads: no other can have taken the lease."""
        return self.left(now) > 0

    def left(self, now: float) -> float:
        """Return the seconds for which this candidate certainly leads; 0 or less if it does not."""
        renewed = self._renewed
        return 0.0 if renewed is None else renewed + self._timing.deadline - now

    def _holds(self) -> bool:
        return self._record is not None and self._record.holder == self._identity

    def _free_at(self) -> float:
        """Return when the current holder's lease ends, as far as this candidate knows."""
        found = self._record
        if found is None:
            return self._changed + self._vanished_seconds
        return self._changed + (found.seconds if found.holder else 0)
