"""The cooperation of prompt, am and cam: replicas exchange their warm keys at the end of each interval.

Inline, the driver joins the states of all replicas between two micro-batches. Here each replica joins the warm keys
that all have published, one interval later: an interval begins with those of the interval before the
last. Everything else that a replica knows, such as the keys and loads of its window, stays its own.

Intervals are numbered by the time at which they should end. What replica B publishes about interval b is at replica A a
moment after A has begun b + 1, or a moment before. So A begins b + 1 with what all have published about b - 1: that is
there, and the same on all replicas. Where a replica has published nothing about b - 1, its newest record before that
stands in, for up to ``STALE`` intervals.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

import numpy as np

from millrace_jobs.partitioners.base import Partitioner
from millrace_jobs.partitioners.cardinality_affinity import Affinity
from millrace_jobs.partitioners.state import PartitionerState
from millrace_jobs.partitioners.warm_keys import Agreeing, WarmKeys
from millrace_jobs.plan.control import Pin

from .protocol import Cooperation, Record
from .values import MOST, STALE, STATE, Values, counter, key_of, replica_in

_KIND, _VERSION = "warm keys", 1

_Kept = TypeVar("_Kept")


class Histories(Generic[_Kept]):
    """The newest records of each replica, by the number of their interval."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._kept: dict[int, deque[tuple[int, _Kept]]] = {}

    def number(self, due: float) -> int:
        """Return the number of the interval that should end at about ``due``."""
        return round(due / self._interval)

    def add(self, replica: int, number: int, record: _Kept) -> None:
        """Add a record about interval ``number``; it replaces one about the same interval."""
        history = self._kept.setdefault(replica, deque(maxlen=4))
        for at, (known, _) in enumerate(history):
            if known == number:
                history[at] = number, record
                return
        history.append((number, record))

    def before(self, number: int) -> dict[int, _Kept]:
        """Return each replica's newest record about an interval before ``number``, by replica in ascending order."""
        found: dict[int, _Kept] = {}
        for replica in sorted(self._kept):
            usable = [(known, record) for known, record in self._kept[replica] if number - STALE <= known < number]
            if usable:
                found[replica] = max(usable, key=lambda pair: pair[0])[1]
        return found


class WarmKeyExchange(Cooperation):
    """The part of one replica of an algorithm that agrees by warm keys; ``interval`` is in seconds."""

    def __init__(self, pin: Pin, replica: int, interval: float) -> None:
        self._pin, self._replica, self._interval = pin, replica, interval
        self._values = Values(pin)
        self._published: Histories[WarmKeys] = Histories(interval)
        self._given: WarmKeys | None = None

    def _receive(self, key: str, value: bytes, now: float) -> None:
        replica = replica_in(key, STATE, self._pin.replicas)
        if replica is None:
            return
        state = self._values.decode(_KIND, _VERSION, value)
        if state is None:
            return
        warm = WarmKeys.restored(state)
        if max(warm.records, warm.distinct) > MOST:
            raise ValueError(f"a record has warm keys of {warm.records} records")
        self._published.add(replica, counter(state, "interval"), warm)

    def started(self, partitioner: Partitioner, now: float) -> None:
        """Begin with the newest warm keys of all: a compacted topic may have none of the intervals before.

        A replica without records joins the window that the others are in, so that all windows end together.
        """
        if isinstance(partitioner, Affinity) and not partitioner.cardinalities.any():
            for _ in range(int(now // self._interval) % int(self._pin.parameters.get("slides", 1))):
                partitioner.advance()
        self._agree(partitioner, self._published.number(now) + 1)

    def after_interval(self, partitioner: Partitioner, now: float, due: float) -> Sequence[Record]:
        """Publish the warm keys of the interval, if it had records, and agree on those of the next."""
        assert isinstance(partitioner, Agreeing)
        number, own = self._published.number(due), partitioner.warm
        records: list[Record] = []
        if own is not self._given and own.records:
            self._published.add(self._replica, number, own)
            vectors = {name: vector.astype(np.int64) for name, vector in own.vectors().items()}
            state = PartitionerState(_KIND, _VERSION, self._pin.workers, {"interval": number}, vectors)
            value = self._values.encode(state)
            records += [] if value is None else [(key_of(STATE, self._replica), value)]
        self._agree(partitioner, number)
        return records

    def _agree(self, partitioner: Partitioner, number: int) -> None:
        """Give the partitioner the warm keys that all replicas have published before interval ``number`` ended."""
        assert isinstance(partitioner, Agreeing)
        known = list(self._published.before(number).values())
        self._given = known[0].joined(known[1:], self._pin.workers) if known else WarmKeys.none()
        partitioner.agree(self._given)
