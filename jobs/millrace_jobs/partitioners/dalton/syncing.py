"""Timing of synchronisation: the states of Algorithm 2, and DSYNC adapted to the reducer (paper 003, section 4.1).

The classes are pure state machines: the caller passes the current time, in any unit, the same as DSYNC. A micro-batch
job synchronises at every batch boundary and needs none of this.
"""

from __future__ import annotations

import enum
from dataclasses import replace

from millrace_jobs.partitioners.arguments import whole_number

from .cooperative import GlobalPolicy, SyncMessage, reduce


class SyncPhase(enum.Enum):
    """The states of Algorithm 2."""

    PREPARE = "learning"
    AWAIT = "waiting for the global Q-table"


class SyncTimer:
    """A replica's timer, which says when to send SYNC: every ``interval`` (DSYNC), starting from ``now``.

    If DSYNC has passed and the reply has not arrived, that SYNC is skipped, and the next one asks to double the
    interval.
    """

    def __init__(self, *, interval: float, now: float) -> None:
        self.interval = interval
        self.phase = SyncPhase.PREPARE
        self.slower = False
        """Whether the next SYNC asks to double the interval."""
        self._last = now

    def due(self, now: float) -> bool:
        """Whether to send SYNC now; if so, call ``sent`` afterwards."""
        if now - self._last < self.interval:
            return False
        if self.phase is SyncPhase.PREPARE:
            return True
        self.slower = True
        self._last = now
        return False

    def sent(self, now: float) -> None:
        """Record that SYNC was sent, with the request in ``slower``."""
        self.phase = SyncPhase.AWAIT
        self.slower = False
        self._last = now

    def received(self, policy: GlobalPolicy) -> None:
        """Record that the global Q-table has arrived, and adopt its interval, if it has one."""
        self.phase = SyncPhase.PREPARE
        if policy.interval is not None:
            self.interval = policy.interval


class QtableReducer:
    """The reducer's state machine: collects one SYNC of each replica, and adapts DSYNC, initially ``interval``.

    It doubles DSYNC if one of the ``replicas`` asks for that. Otherwise it halves DSYNC, but not below ``shortest``, if
    it was idle for longer than it was busy. The half is then still more than it needs, so DSYNC does not oscillate. The
    paper says decrease; its figure 14b shows halving.
    """

    def __init__(self, *, replicas: int, interval: float, shortest: float, now: float) -> None:
        self._replicas = whole_number("replicas", replicas, 1)
        if not 0 < shortest <= interval:
            raise ValueError(
                f"interval is {interval!r} and shortest is {shortest!r}; write positive times, the interval "
                "not under the shortest"
            )
        self.interval = interval
        self._shortest = shortest
        self._messages: dict[int, SyncMessage] = {}
        self._idle_since = now
        self._began = now
        self._busy: float | None = None  # how long the last reduction took

    def receive(self, message: SyncMessage) -> bool:
        """Take in a SYNC, which replaces an earlier one of the same replica; return whether all have arrived.

        Raises ValueError on a replica that does not exist.
        """
        if not 0 <= message.replica < self._replicas:
            raise ValueError(f"replica is {message.replica}; write a whole number below {self._replicas}")
        self._messages[message.replica] = message
        return len(self._messages) == self._replicas

    def reduce(self, now: float) -> GlobalPolicy:
        """Return the policy for all replicas, once all messages have arrived; after sending it, call ``sent``.

        Raises ValueError if messages are missing or are for different numbers of workers.
        """
        if len(self._messages) < self._replicas:
            raise ValueError(f"{len(self._messages)} of {self._replicas} replicas have sent their Q-tables")
        messages = [self._messages[replica] for replica in range(self._replicas)]
        policy = reduce(messages)
        self._began = now
        if any(message.slower for message in messages):
            self.interval *= 2
        elif self._busy is not None and now - self._idle_since > self._busy:
            self.interval = max(self._shortest, self.interval / 2)
        self._messages = {}
        return replace(policy, interval=self.interval)

    def sent(self, now: float) -> None:
        """Record that the last policy was sent to all replicas."""
        self._busy = now - self._began
        self._idle_since = now
