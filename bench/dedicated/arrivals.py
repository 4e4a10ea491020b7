"""Manifests as they become visible: what replicas placed in each interval, and whether it was there at its end."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from millrace_jobs.dedicated.manifest import Manifest


class Arrival(NamedTuple):
    """A manifest, its offset, and when it became visible to a reader of committed messages, in seconds since 1970."""

    at: float
    offset: int
    manifest: Manifest


class Punctuality(NamedTuple):
    """How the manifests of a run came.

    Attributes:
        intervals: how many manifests there were.
        late: share of them that came after the heartbeat, the end of their interval.
        after: milliseconds from the heartbeat until they were visible, the median; below 0 before it.
        after95: the same, the quantile 0.95.
        place: share of the interval from the end of the intake until the manifest was written, the median.
        place95: the same, the quantile 0.95.
    """

    intervals: int
    late: float
    after: float
    after95: float
    place: float
    place95: float


def punctuality(arrivals: Sequence[Arrival], interval: float) -> Punctuality:
    """Return how manifests with records came; ``interval`` is in seconds. Raises ValueError if there are none."""
    ended: dict[tuple[int, int], Arrival] = {}
    for each in arrivals:  # the first of a heartbeat is the one that ends the interval
        ended.setdefault((each.manifest.replica, each.manifest.heartbeat), each)
    counted = [each for each in ended.values() if each.manifest.read]
    if not counted:
        raise ValueError("no manifest with records has come: see what the replicas print")
    after = np.array([each.at - each.manifest.heartbeat * interval for each in counted]) * 1000
    place = np.array([each.manifest.seconds for each in counted]) / interval
    return Punctuality(
        intervals=len(counted),
        late=float((after > 0).mean()),
        after=float(np.median(after)),
        after95=float(np.quantile(after, 0.95)),
        place=float(np.median(place)),
        place95=float(np.quantile(place, 0.95)),
    )


def arriving(servers: str, topic: str, goes_on: Callable[[], bool]) -> Iterator[Arrival]:
    """Yield the manifests of a topic as they become visible, while ``goes_on``; the topic may come later."""
    settings = {"bootstrap.servers": servers, "group.id": uuid.uuid4().hex, "enable.auto.commit": False}
    consumer = Consumer(settings | {"isolation.level": "read_committed", "fetch.wait.max.ms": 500, "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    try:
        while goes_on():
            for message in consumer.consume(100, 0.02):
                error = message.error()
                if error is None:
                    yield Arrival(time.time(), message.offset() or 0, Manifest.of(message.value() or b""))
                elif error.code() not in (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART):
                    raise RuntimeError(f"manifests cannot be read: {error}")
    finally:
        consumer.close()
