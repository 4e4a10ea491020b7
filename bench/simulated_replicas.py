"""Replicas in processes of their own, simulated: a control topic with one order for all, delays, losses and deaths.

Benchmarks and tests drive the library's own partitioners and cooperations with it, by the clock that they pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from millrace_jobs.dedicated.cooperation import cooperation_for
from millrace_jobs.dedicated.cooperation.protocol import Cooperation, Record
from millrace_jobs.partitioners.base import Hashes, Workers
from millrace_jobs.partitioners.parameters import Value
from millrace_jobs.partitioners.registry import make, resolve_parameters
from millrace_jobs.plan.control import Pin

INTERVAL = 1.0
"""Seconds of an interval."""


def a_pin(algorithm: str, replicas: int, workers: int = 8, /, **parameters: Value) -> Pin:
    """Return a pin of Dedicated replicas."""
    return Pin(1, algorithm, replicas, workers, resolve_parameters(algorithm, parameters), placement="Dedicated")


@dataclass
class SimulatedTopic:
    """The records of a topic with one partition, each with the time when it was published."""

    records: list[tuple[float, Record]] = field(default_factory=list)

    def append(self, records: Sequence[Record], now: float) -> None:
        """Publish records."""
        self.records += [(now, record) for record in records]

    def compacted(self) -> list[Record]:
        """Return the newest record of each key, in their order."""
        newest = {key: at for at, (_, (key, _)) in enumerate(self.records)}
        return [self.records[at][1] for at in sorted(newest.values())]


class SimulatedReplica:
    """A replica of a partitioner that reads the topic when its owner says so; it starts at ``now``."""

    cooperation: Cooperation

    def __init__(self, pin: Pin, index: int, topic: SimulatedTopic, now: float) -> None:
        self.index, self.topic = index, topic
        self.published: Counter[str] = Counter()
        """Number of records that it has published, by key."""
        self.published_bytes = 0
        self.partitioner = make(
            pin.algorithm,
            workers=pin.workers,
            replica=index,
            replicas=pin.replicas,
            seed=pin.seed,
            parameters=pin.parameters,
        )
        self.follow(pin, now)

    def follow(self, pin: Pin, now: float) -> None:
        """Go on under another plan of the same algorithm, from what the topic holds when it is compacted."""
        if self.partitioner.workers != pin.workers:
            self.partitioner.resize(pin.workers)
        self.pin = pin
        self.cooperation = cooperation_for(pin, self.index, INTERVAL)
        for key, value in self.topic.compacted():
            self.cooperation.received(key, value, now)
        self._read = len(self.topic.records)
        self.cooperation.started(self.partitioner, now)

    def catch_up(self, now: float, delay: float = 0.0) -> None:
        """Read what was published at least ``delay`` seconds ago."""
        records = self.topic.records
        while self._read < len(records) and records[self._read][0] <= now - delay:
            self.cooperation.received(*records[self._read][1], now)
            self._read += 1

    def route(self, keys: Hashes, now: float, *, lost: bool = False) -> Workers:
        """Place a block, and publish what is due; ``lost`` says that it does not arrive."""
        ids = self.partitioner.route(keys) if len(keys) else np.empty(0, np.int32)
        self._publish(self.cooperation.after_block(self.partitioner, now), now, lost)
        return ids

    def end_interval(self, now: float, *, late: float = 0.0, lost: bool = False) -> None:
        """End an interval, so many seconds late, and publish what is due."""
        self.partitioner.advance()
        self._publish(self.cooperation.after_interval(self.partitioner, now, now - late), now, lost)

    def _publish(self, records: Sequence[Record], now: float, lost: bool) -> None:
        self.published.update(key for key, _ in records)
        self.published_bytes += sum(len(value) for _, value in records)
        if not lost:
            self.topic.append(records, now)


def replicas(pin: Pin, now: float = 1000.0) -> tuple[SimulatedTopic, list[SimulatedReplica]]:
    """Return a topic, and all replicas of a pin, which start at ``now``."""
    topic = SimulatedTopic()
    return topic, [SimulatedReplica(pin, index, topic, now) for index in range(pin.replicas)]
