"""Cooperative learning of one policy by several replicas: the messages, and the QtableReducer (paper 003, section 4.1).

The paper prints the global Q-table as the sum over j of ``f_j(k)/GL Q_j(k, c)``, divided by the number of partitioners
P. These weights add up to ``f(k)/(GL P)``, far below 1. They would shrink all values of a key towards 0, above most
rewards, and make untried workers as good as tried ones, against section 3.2. The text asks for an average in which each
partitioner has the weight of its share of the key's rewards, so the weights here are ``f_j(k)`` over their own sum.

The paper claims that the n most frequent keys of each partitioner are enough. This holds for the keys themselves (a
global heavy hitter is one for some partitioner), but not for their frequencies: a partitioner that does not have the
key among its n adds nothing to its sum. Here every replica reports all keys that it follows, see ``table``.

The timer and the reducer follow Algorithm 2, with DSYNC adapted to the reducer. They are pure state machines: the
caller passes the current time, in the unit of DSYNC. Replicas in processes of their own use them
(``dedicated.cooperation``). A micro-batch job synchronizes at every batch boundary and needs neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.partitioners.base import Hashes
from millrace_jobs.partitioners.parameters import whole_number

from .bandit import INITIAL


@dataclass(frozen=True, eq=False)
class SyncMessage:
    """The SYNC message from a replica to the reducer."""

    replica: int
    workers: int
    load: int
    """L_i: records since the last SYNC message."""
    keys: Hashes
    """Shape ``(keys,)``: the keys that the replica follows."""
    frequencies: NDArray[np.int64]
    """Shape ``(keys,)``: their records since the last SYNC message."""
    split: NDArray[np.bool_]
    """Shape ``(keys,)``: which of them may have records elsewhere than on their hash worker."""
    learned: NDArray[np.bool_]
    """Shape ``(keys,)``: which of them have values in the local Q-table."""
    q: NDArray[np.float64]
    """Shape ``(learned, n)``: the local Q-table."""
    rehashed: int
    """Number of slides, this one included, in which the replica forwards nothing, because hash workers were redrawn."""
    slower: bool = False
    """Whether the reducer is asked to double DSYNC."""


@dataclass(frozen=True, eq=False)
class GlobalPolicy:
    """The policy that the reducer sends to all replicas."""

    workers: int
    replicas: int
    """P, the number of replicas that the policy was computed from."""
    load: int
    """GL, the sum of the replicas' loads."""
    keys: Hashes
    """Shape ``(keys,)``: the global heavy hitters, at most n; they expire with the STATS_WIN that begins now."""
    q: NDArray[np.float64]
    """Shape ``(keys, n)``: the global Q-table."""
    split: Hashes
    """Shape ``(splits,)``, ascending: keys that some replica may have sent elsewhere than to their hash worker."""
    rehashed: int
    """Slides, this one included, in which no replica forwards anything, because one of them redrew its hash workers."""
    interval: float | None = None
    """DSYNC from now on, if the reducer adapts it."""


def reduce(messages: Sequence[SyncMessage]) -> GlobalPolicy:
    """Return the global heavy hitters and the average of what the replicas learned about each (the QtableReducer).

    Raises ValueError unless all messages are for the same number of workers.
    """
    workers = messages[0].workers
    for message in messages:
        if message.workers != workers:
            raise ValueError(f"cannot merge Q-tables for {message.workers} workers into those for {workers}")
    load = sum(message.load for message in messages)
    keys, codes = np.unique(np.concatenate([message.keys for message in messages]), return_inverse=True)
    parts = np.split(codes, np.cumsum([len(message.keys) for message in messages])[:-1])
    total = np.zeros(len(keys), np.int64)
    weight = np.zeros(len(keys))
    summed = np.zeros((len(keys), workers))
    for message, rows in zip(messages, parts, strict=True):
        total[rows] += message.frequencies
        learned = rows[message.learned]
        frequencies = message.frequencies[message.learned]
        weight[learned] += frequencies
        summed[learned] += frequencies[:, None] * message.q
    heavy = _heavy_hitters(keys, total, load, workers)
    known = weight[heavy] > 0
    q = np.full((len(heavy), workers), INITIAL)
    q[known] = summed[heavy[known]] / weight[heavy[known], None]
    split = np.unique(np.concatenate([message.keys[message.split] for message in messages]))
    rehashed = max(message.rehashed for message in messages)
    return GlobalPolicy(workers, len(messages), load, keys[heavy], q, split, rehashed)


def _heavy_hitters(keys: Hashes, total: NDArray[np.int64], load: int, workers: int) -> NDArray[np.intp]:
    """Return the rows of the keys that satisfy Definition 3.3 for the global load, the most frequent first."""
    most_frequent = np.lexsort((keys, -total))[:workers]
    frequencies = total[most_frequent]
    return most_frequent[(frequencies > 1) & (frequencies * workers >= load)]


class SyncTimer:
    """A replica's timer, which says when to send SYNC: every ``interval`` (DSYNC), starting from ``now``.

    If DSYNC has passed and the reply has not arrived, that SYNC is skipped, and the next one asks to double the
    interval.
    """

    def __init__(self, *, interval: float, now: float) -> None:
        self.interval = interval
        self.awaiting = False
        """Whether the timer is in state AWAIT of Algorithm 2, for the global Q-table, and not in state PREPARE."""
        self.slower = False
        """Whether the next SYNC asks to double the interval."""
        self._last = now

    def due(self, now: float, *, others_sent: bool = False) -> bool:
        """Whether to send SYNC now; if so, call ``sent`` afterwards.

        ``others_sent`` means that another replica has already sent its own. Half of the interval is then enough, so
        that replicas which began at different times send SYNC at about the same time, and hardly await each other.
        """
        passed = now - self._last
        if others_sent and not self.awaiting and 2 * passed >= self.interval:
            return True
        if passed < self.interval:
            return False
        if not self.awaiting:
            return True
        self.slower = True
        self._last = now
        return False

    def sent(self, now: float) -> None:
        """Record that SYNC was sent, with the request in ``slower``."""
        self.awaiting = True
        self.slower = False
        self._last = now

    def received(self, policy: GlobalPolicy) -> None:
        """Record that the global Q-table has arrived, and adopt its interval, if it has one."""
        self.awaiting = False
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
                "not below the shortest"
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

    def reduce(self, now: float, *, partial: bool = False) -> GlobalPolicy:
        """Return the policy for all replicas, once all messages have arrived; after sending it, call ``sent``.

        With ``partial``, the messages that have arrived, at least one, are enough: the caller gives up on the others.
        Raises ValueError if messages are missing or are for different numbers of workers.
        """
        if not self._messages or (len(self._messages) < self._replicas and not partial):
            raise ValueError(f"{len(self._messages)} of {self._replicas} replicas have sent their Q-tables")
        messages = [self._messages[replica] for replica in sorted(self._messages)]
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
