"""The cooperation of Dalton's replicas: Algorithm 2 of paper 003 over the control topic (section 4.1).

Time goes in rounds. In each, every replica publishes SYNC and awaits the policy (AWAIT), while it places records and
postpones their rewards. The reducer makes the policy of all SYNC messages, and all adopt it between two blocks. Every
replica reads all records of the topic in one order, so that any of them can be the reducer:

- The reducer is the lowest replica that the round expects. A round expects the replicas whose SYNC the last policy
  took, and those that have sent one since. The first round expects all.
- The reducer does not wait for longer than ``PATIENCE`` times DSYNC after the round's first SYNC. Who is missing is not
  expected in the next round. It is expected again when it sends SYNC.
- If there is no policy by then, the next replica is the reducer after ``PATIENCE`` times DSYNC more, and so on. Should
  two replicas answer a round, all adopt the policy that is first in the topic.
- A SYNC that is not in the topic after ``PATIENCE`` times DSYNC is published again, and so is a policy.
- A replica that has waited for longer than all of this takes, because it cannot read or write the topic, goes on alone.

A policy names the SYNC messages that it took. One that came too late for its round is taken by the next, unless its
replica has sent a newer one by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from millrace_jobs.partitioners.base import Partitioner
from millrace_jobs.partitioners.dalton import Dalton
from millrace_jobs.partitioners.dalton.cooperative import GlobalPolicy, QtableReducer, SyncMessage, SyncTimer, reduce
from millrace_jobs.partitioners.dalton.encoding import (
    POLICY_KIND,
    SYNC_KIND,
    VERSION,
    policy_of,
    policy_state,
    sync_of,
    sync_state,
)
from millrace_jobs.plan.control import Pin

from .protocol import Cooperation, Record
from .values import POLICY, STALE, SYNC, Values, counter, key_of, replica_in, with_counters

PATIENCE = 2
"""How many times DSYNC a replica waits for a record before it goes on without it."""

SHORTEST, LONGEST = 1 / 2, 8
"""The least and the greatest DSYNC, in intervals; it starts at one interval.

The reducer is mostly idle, so that DSYNC is mostly the least. With less, loads are less even: all replicas adopt the
same values, and begin with the same worker for a hot key.
"""


@dataclass(frozen=True)
class _Sync:
    """A SYNC message; ``sent`` is when, in milliseconds, by the sender's clock, which also identifies it."""

    sent: int
    message: SyncMessage


@dataclass
class _OwnSync:
    """This replica's SYNC message, until it adopts a policy."""

    message: SyncMessage
    record: Record
    began: float
    """When it was published first."""
    published: float
    """When it was published last."""
    in_topic: bool = False


class PolicyExchange(Cooperation):
    """The part of one of several Dalton replicas; ``interval`` is the batch interval in seconds."""

    def __init__(self, pin: Pin, replica: int, interval: float) -> None:
        self._pin, self._replica, self._interval = pin, replica, interval
        self._values = Values(pin)
        self._shortest, self._longest = SHORTEST * interval, LONGEST * interval
        self._expected = set(range(pin.replicas))
        self._syncs: dict[int, _Sync] = {}  # by replica: what no policy has taken
        self._taken: dict[int, int] = {}  # by replica: when it sent the SYNC that the last policy took
        self.round = 0
        """The number of the last policy, 0 before the first."""
        self._round_began = 0.0  # when its first SYNC was received
        self._arrived: GlobalPolicy | None = None  # not adopted yet
        self._own: _OwnSync | None = None
        self._answered: float | None = None  # when this replica published a policy for the round
        self.timer = SyncTimer(interval=interval, now=0.0)
        """DSYNC, and whether this replica awaits a policy (AWAIT of Algorithm 2)."""
        self._reducer = QtableReducer(replicas=pin.replicas, interval=interval, shortest=self._shortest, now=0.0)

    def _receive(self, key: str, value: bytes, now: float) -> None:
        """Take in a SYNC message or a policy."""
        replica = replica_in(key, SYNC, self._pin.replicas)
        if replica is not None:
            self._receive_sync(replica, value, now)
        elif key == POLICY:
            self._receive_policy(value, now)

    def _receive_sync(self, replica: int, value: bytes, now: float) -> None:
        state = self._values.decode(SYNC_KIND, VERSION, value)
        if state is None or state.workers != self._pin.workers:
            return
        sync = _Sync(counter(state, "sent"), sync_of(state))
        if sync.message.replica != replica:
            raise ValueError(f"the SYNC message of replica {replica} is of replica {sync.message.replica}")
        if self._own is not None and self._own.record == (key_of(SYNC, replica), value):
            self._own.in_topic = True
        if sync.sent <= self._taken.get(replica, -1) or now - sync.sent / 1000 > STALE * self._interval:
            return
        if not self._syncs:
            self._round_began = now
        self._syncs[replica] = sync

    def _receive_policy(self, value: bytes, now: float) -> None:
        state = self._values.decode(POLICY_KIND, VERSION, value)
        if state is None or state.workers != self._pin.workers:
            return
        number, policy = counter(state, "round"), policy_of(state)
        taken = state.vector("taken")
        if policy.interval is None or len(taken) % 2 or (len(taken) and taken.min() < 0):
            raise ValueError("a policy has no interval, or does not say which SYNC messages it took")
        if number <= self.round:
            return
        if self._answered is not None:
            self._reducer.sent(now)
        self.round, self._round_began, self._answered = number, now, None
        self._taken = {replica: sent for replica, sent in taken.reshape(-1, 2).tolist() if replica < self._pin.replicas}
        self._expected = set(self._taken)
        self._syncs = {
            replica: sync for replica, sync in self._syncs.items() if sync.sent > self._taken.get(replica, -1)
        }
        interval = min(max(policy.interval, self._shortest), self._longest)
        self._reducer.interval = interval
        self._arrived = replace(policy, interval=interval)

    def started(self, partitioner: Partitioner, now: float) -> None:
        """Begin with the last policy, and with DSYNC as it is."""
        assert isinstance(partitioner, Dalton)
        self.timer = SyncTimer(interval=self.timer.interval, now=now)
        self._reducer = QtableReducer(
            replicas=self._pin.replicas, interval=self._reducer.interval, shortest=self._shortest, now=now
        )
        self._adopt(partitioner)

    def after_block(self, partitioner: Partitioner, now: float) -> Sequence[Record]:
        """Adopt a policy that has arrived; publish SYNC if it is due, and the policy if this replica is to."""
        assert isinstance(partitioner, Dalton)
        self._adopt(partitioner)
        return [*self._sync(partitioner, now), *self._reduce(now)]

    def after_interval(self, partitioner: Partitioner, now: float, due: float) -> Sequence[Record]:
        """Do what is due, as after a block: rounds do not end with intervals."""
        return self.after_block(partitioner, now)

    def _adopt(self, partitioner: Dalton) -> None:
        if self._arrived is not None:
            partitioner.end_sync(self._arrived)
            self.timer.received(self._arrived)
            self._arrived = self._own = None

    def _sync(self, partitioner: Dalton, now: float) -> list[Record]:
        """Return SYNC if it is due, or again if the topic does not show it."""
        patience = PATIENCE * self.timer.interval
        if self._own is not None:
            if now - self._own.began >= (2 + self._pin.replicas) * patience:
                self._go_on_alone(partitioner, self._own.message)
            elif not self._own.in_topic and now - self._own.published >= patience:
                self._own.published = now
                return [self._own.record]
        if not self.timer.due(now, others_sent=bool(self._syncs.keys() - {self._replica})):
            return []
        slower = self.timer.slower
        message = partitioner.begin_sync(slower=slower)
        value = self._values.encode(with_counters(sync_state(message), {"sent": round(now * 1000)}))
        self.timer.sent(now)
        if value is None:
            self._go_on_alone(partitioner, message)
            return []
        self._own = _OwnSync(message, (key_of(SYNC, self._replica), value), now, now)
        return [self._own.record]

    def _go_on_alone(self, partitioner: Dalton, message: SyncMessage) -> None:
        """Leave AWAIT with the policy that this replica would have made by itself."""
        self._arrived = reduce([message])
        self._adopt(partitioner)

    def _reduce(self, now: float) -> list[Record]:
        """Return the policy of the round if this replica is to make it now."""
        if not self._syncs or not self._is_reducer(now):
            return []
        for sync in self._syncs.values():
            self._reducer.receive(sync.message)
        policy = self._reducer.reduce(now, partial=True)
        taken = [(replica, self._syncs[replica].sent) for replica in sorted(self._syncs)]
        state = with_counters(policy_state(policy), {"round": self.round + 1})
        state = replace(state, vectors={**state.vectors, "taken": np.array(taken, np.int64).reshape(-1)})
        self._answered = now
        value = self._values.encode(state)
        return [] if value is None else [(POLICY, value)]

    def _is_reducer(self, now: float) -> bool:
        patience = PATIENCE * self.timer.interval
        if self._answered is not None:
            return now - self._answered >= patience
        expected = sorted(self._expected | self._syncs.keys())
        if self._replica not in expected:
            return False
        rank = expected.index(self._replica)
        complete = rank == 0 and len(self._syncs) == len(expected)
        return complete or now - self._round_began >= (1 + rank) * patience
