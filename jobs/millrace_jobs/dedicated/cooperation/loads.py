"""The cooperation of pkg that probes: replicas publish the records that they sent, and take the loads of all.

Paper 001 compares local estimates of the loads with probing the true ones periodically. A replica publishes how many
records it has sent to each worker since the query began, less those of the least loaded. The sum of what the replicas
published last is the global load. As these are totals, a record that is lost or repeated changes nothing for good.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.partitioners.base import Partitioner
from millrace_jobs.partitioners.pkg import PartialKeyGrouping
from millrace_jobs.partitioners.state import PartitionerState
from millrace_jobs.plan.control import Pin

from .protocol import Cooperation, Record
from .values import MOST, STATE, Values, key_of, replica_in

_KIND, _VERSION = "loads", 1


class LoadExchange(Cooperation):
    """The part of one replica of pkg, which takes the loads of all replicas after every ``period`` intervals."""

    def __init__(self, pin: Pin, replica: int, period: int) -> None:
        self._pin, self._replica, self._period = pin, replica, period
        self._values = Values(pin)
        self._sent: dict[int, NDArray[np.int64]] = {}  # by replica
        self._seen: NDArray[np.int64] = np.zeros(pin.workers, np.int64)  # the partitioner's loads at the last look
        self._intervals = 0

    def _receive(self, key: str, value: bytes, now: float) -> None:
        """Take in the loads of a replica; its own ones only before it starts, from when the process ran before."""
        replica = replica_in(key, STATE, self._pin.replicas)
        if replica is None or (replica == self._replica and replica in self._sent):
            return
        state = self._values.decode(_KIND, _VERSION, value)
        if state is None or state.workers != self._pin.workers:
            return
        loads = state.vector("loads")
        if len(loads) != state.workers or loads.min() < 0 or loads.max() > MOST:
            raise ValueError(f"a record has no plausible loads of {state.workers} workers")
        self._sent[replica] = loads

    def started(self, partitioner: Partitioner, now: float) -> None:
        """Begin with the loads of all replicas."""
        self._sent.setdefault(self._replica, np.zeros(self._pin.workers, np.int64))
        self._probe(partitioner)

    def after_interval(self, partitioner: Partitioner, now: float, due: float) -> Sequence[Record]:
        """Publish what this replica has sent, and probe at the end of a period."""
        assert isinstance(partitioner, PartialKeyGrouping)
        loads = partitioner.loads
        own = self._sent[self._replica] + loads - self._seen
        self._seen = loads
        self._sent[self._replica] = own = own - own.min()
        self._intervals += 1
        if self._intervals % self._period == 0:
            self._probe(partitioner)
        value = self._values.encode(PartitionerState(_KIND, _VERSION, self._pin.workers, {}, {"loads": own}))
        return () if value is None else [(key_of(STATE, self._replica), value)]

    def _probe(self, partitioner: Partitioner) -> None:
        assert isinstance(partitioner, PartialKeyGrouping)
        total = np.sum(list(self._sent.values()), axis=0)
        partitioner.probe(total - total.min())
        self._seen = partitioner.loads
