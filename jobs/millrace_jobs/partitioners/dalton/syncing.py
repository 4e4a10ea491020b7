"""When replicas synchronise: Algorithm 2's states, and DSYNC adapted to the reducer (paper 003, section 4.1).

Pure state machines: whoever runs them says what time it is, in any unit, that of DSYNC. In a micro-batch job every
batch boundary is a synchronisation and nothing of this is needed.
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
    """A replica's side: says when to send SYNC, every ``interval`` (DSYNC) from ``now`` on.

    When DSYNC has passed and the reply is still not there, that SYNC is left out, and the next one asks for
    the interval to be doubled.
    """

    def __init__(self, *, interval: float, now: float) -> None:
        self.interval = interval
        self.phase = SyncPhase.PREPARE
        self.slower = False
        """Whether the next SYNC asks to double the interval."""
        self._last = now

    def due(self, now: float) -> bool:
        """Whether to send SYNC now; then call ``sent``."""
        if now - self._last < self.interval:
            return False
        if self.phase is SyncPhase.PREPARE:
            return True
        self.slower = True
        self._last = now
        return False

    def sent(self, now: float) -> None:
        """SYNC was sent, and said whether ``slower``."""
        self.phase = SyncPhase.AWAIT
        self.slower = False
        self._last = now

    def received(self, policy: GlobalPolicy) -> None:
        """The global Q-table has come."""
        self.phase = SyncPhase.PREPARE
        if policy.interval is not None:
            self.interval = policy.interval


class QtableReducer:
    """The reducer's side: collects one SYNC of each of ``replicas``, and adapts DSYNC, which begins as ``interval``.

    It doubles DSYNC when a replica asks for that. Else it halves it, not below ``shortest``, when it was idle for
    longer than it was busy: the half is then still more than it needs, so that this does not swing back.
    The paper says decrease; its figure 14b shows halving.
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
        """Take in a SYNC; a second one of the same replica replaces the first. Whether all are there.

        Raises ValueError on a replica that there is not.
        """
        if not 0 <= message.replica < self._replicas:
            raise ValueError(f"replica is {message.replica}; write a whole number below {self._replicas}")
        self._messages[message.replica] = message
        return len(self._messages) == self._replicas

    def reduce(self, now: float) -> GlobalPolicy:
        """The policy for all replicas, once all messages are there; when it has gone out, call ``sent``.

        Raises ValueError while some are missing, or where they are for different numbers of workers.
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
        """The last policy has gone out to all replicas."""
        self._busy = now - self._began
        self._idle_since = now
