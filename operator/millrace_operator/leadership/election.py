"""One candidate's view of the election of a leader, without clock and network: see ``Election``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum, auto

RELEASED_SECONDS = 1
"""Lease duration of a record that nobody holds: the API server takes none of 0."""


@dataclass(frozen=True)
class Timing:
    """How long a lease is, in seconds; the rest in the proportions of client-go's 15, 10 and 2."""

    lease: int = 15

    @property
    def deadline(self) -> float:
        """A leader whose last successful renewal was sent so long ago leads no more."""
        return self.lease * 2 / 3

    @property
    def retry(self) -> float:
        """From one look or renewal to the next."""
        return self.lease * 2 / 15

    @property
    def request(self) -> float:
        """A request about the lease may take so long: some of them fit in before the deadline."""
        return self.deadline / 4


@dataclass(frozen=True)
class Record:
    """What a Lease says.

    ``holder`` is empty where it was released; ``seconds`` is how long the others wait for the holder's next renewal.
    ``version`` is the one that was read, and the only one that may be replaced. ``acquired`` is for people to read:
    None is now.
    """

    holder: str
    seconds: int
    version: str = ""
    transitions: int = 0
    acquired: datetime | None = None


class ElectionStep(Enum):
    """What a candidate does next."""

    READ = auto()
    WRITE = auto()
    WAIT = auto()


class Election:
    """The algorithm of client-go's ``leaderelection``; ``now`` is always the candidate's own clock, in seconds.

    A clock never goes back, and goes on while the machine sleeps; what the clocks of two candidates show is never
    compared. Why no two lead at a time: a leader counts from when it **sent** the renewal that succeeded, up to the
    deadline. All others count from when they **saw** the record change, which is later, up to the lease's duration,
    which is longer. And who replaces a record names the version that was read, so of two that try one fails.
    """

    def __init__(self, identity: str, timing: Timing) -> None:
        self._identity = identity
        self._timing = timing
        self._record: Record | None = None
        self._changed = float("-inf")
        """When the record was first seen as it is."""
        self._vanished_seconds = 0
        """Lease duration of the record that was there before, where somebody has deleted the Lease."""
        self._read_at: float | None = None
        """When it was last read or written; None where it may have changed by a request of one's own."""
        self._pause_until = float("-inf")
        self._renewed: float | None = None
        """When the last successful renewal was sent."""

    def next(self, now: float) -> tuple[ElectionStep, float]:
        """The next action, and how many seconds to wait before it where it is WAIT."""
        if now < self._pause_until:
            return ElectionStep.WAIT, self._pause_until - now
        if self._read_at is None:
            return ElectionStep.READ, 0.0
        since = self._read_at if self._renewed is None else self._renewed
        if self._holds():
            due = self._renewed is None or now >= since + self._timing.retry
            return (ElectionStep.WRITE, 0.0) if due else (ElectionStep.WAIT, since + self._timing.retry - now)
        if now >= self._read_at + self._timing.retry:
            return ElectionStep.READ, 0.0
        if now >= self._free_at():
            return ElectionStep.WRITE, 0.0
        return ElectionStep.WAIT, min(self._read_at + self._timing.retry, self._free_at()) - now

    def wanted(self) -> Record:
        """What to write: the record with oneself as its holder."""
        found = self._record
        if found is None:
            return Record(self._identity, self._timing.lease)
        if found.holder == self._identity:
            return replace(found, seconds=self._timing.lease)
        return Record(self._identity, self._timing.lease, found.version, found.transitions + 1)

    def released(self) -> Record | None:
        """Give up the lead; what to write, where one has held the record as far as one knows."""
        held = self._record if self._holds() else None
        self._renewed = None
        return held and replace(held, holder="", seconds=RELEASED_SECONDS, acquired=None)

    def read(self, record: Record | None, now: float) -> None:
        """The record was read; None: there is none. ``now`` is when the answer was there."""
        if record != self._record:
            self._vanished_seconds = self._record.seconds if self._record and not record else 0
            self._record, self._changed = record, now
        if not self._holds():
            self._renewed = None
        self._read_at = now

    def written(self, record: Record, sent: float, now: float) -> None:
        """What was ``wanted`` has been written; ``record`` has its new version, ``sent`` is when it was asked for."""
        self._record, self._changed, self._read_at = record, now, now
        self._renewed = sent

    def failed(self, now: float) -> None:
        """A request was refused or not answered: whether it was done is not known. Look again after a while."""
        self._read_at = None
        self._pause_until = now + self._timing.retry

    def leads(self, now: float) -> bool:
        """Whether one surely leads: nobody else can have taken the lease."""
        return self.left(now) > 0

    def left(self, now: float) -> float:
        """Seconds for which one surely leads; 0 or less where one does not."""
        renewed = self._renewed
        return 0.0 if renewed is None else renewed + self._timing.deadline - now

    def _holds(self) -> bool:
        return self._record is not None and self._record.holder == self._identity

    def _free_at(self) -> float:
        """When nobody else can lead any more, as far as one knows."""
        found = self._record
        if found is None:
            return self._changed + self._vanished_seconds
        return self._changed + (found.seconds if found.holder else 0)
