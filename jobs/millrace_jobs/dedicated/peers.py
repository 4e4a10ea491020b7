"""What replicas exchange over the control topic, for the cooperation of their partitioners."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from millrace_jobs.dedicated.cooperation import cooperation_for
from millrace_jobs.dedicated.cooperation.protocol import Cooperation, Record
from millrace_jobs.dedicated.cooperation.values import may_be_exchanged
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.partitioners.base import Partitioner
from millrace_jobs.plan.control import Pin

log = logging.getLogger(__name__)

_SETTINGS: dict[str, object] = {
    "acks": 1,  # what is lost costs locality or balance, never a result
    "linger.ms": 0,
    "message.timeout.ms": 10_000,
    "allow.auto.create.topics": False,
}


class Peers:
    """The other replicas, as one replica's partitioner works together with theirs over the control topic.

    What it publishes belongs to no transaction: an interval that is given up may have been spoken of.

    Args:
        topic: the query's control topic.
        connection: its cluster.
        index: number of the replica.
    """

    def __init__(self, topic: str, connection: Connection, index: int) -> None:
        self._topic, self._connection, self._index = topic, connection, index
        self._producer: Producer | None = None
        self._newest: dict[str, bytes] = {}
        self._cooperation = Cooperation()

    def received(self, key: str, value: bytes) -> None:
        """Take in a record of a replica, this one's own among them."""
        if may_be_exchanged(key, value):  # what other programs write would be kept for as long as the process runs
            self._newest[key] = value
        self._cooperation.received(key, value, time.time())

    def begin(self, pin: Pin, partitioner: Partitioner, interval: float) -> None:
        """Begin under a plan, with the newest that all have published; ``interval`` is the query's, in seconds."""
        self._cooperation, now = cooperation_for(pin, self._index, interval), time.time()
        for key, value in self._newest.items():
            self._cooperation.received(key, value, now)
        self._cooperation.started(partitioner, now)

    def after_block(self, partitioner: Partitioner) -> None:
        """Publish what is due between two blocks."""
        self._publish(self._cooperation.after_block(partitioner, time.time()))

    def after_interval(self, partitioner: Partitioner, due: float) -> None:
        """Publish what is due at the end of an interval, which should have been at ``due``, and begin the next."""
        self._publish(self._cooperation.after_interval(partitioner, time.time(), due))

    def _publish(self, records: Sequence[Record]) -> None:
        if not records:
            return
        if self._producer is None:
            self._producer = Producer(self._connection.settings() | _SETTINGS)
        for key, value in records:
            try:
                self._producer.produce(self._topic, value, key, on_delivery=_delivered)
            except (BufferError, KafkaException) as error:
                log.warning("what this replica has learned was not published: %s", error)
        self._producer.poll(0)


def _delivered(error: KafkaError | None, _: Message) -> None:
    if error is not None:
        log.warning("what this replica has learned was not published: %s", error)
