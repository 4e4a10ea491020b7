"""What replicas exchange over the control topic, for the cooperation of their partitioners."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from millrace_jobs.dedicated.control_topic import ControlRecord
from millrace_jobs.dedicated.cooperation.choosing import cooperation_for
from millrace_jobs.dedicated.cooperation.protocol import Alone, Cooperation
from millrace_jobs.dedicated.topics import Topics
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


class Exchange:
    """The part of one replica in the cooperation of all, and the producer of what it says.

    Its records belong to no transaction: an interval that is given up may have been spoken of.

    Args:
        topics: names of the query's topics.
        connection: their cluster.
        index: number of the replica.
    """

    def __init__(self, topics: Topics, connection: Connection, index: int) -> None:
        self._topic = topics.control
        self._connection = connection
        self._index = index
        self._producer: Producer | None = None
        self._newest: dict[str, bytes] = {}
        self._cooperation: Cooperation = Alone()
        self.interval = 1.0
        """The batch interval, in seconds."""

    def received(self, record: ControlRecord, now: float) -> None:
        """Take in a record of a replica, this one's own among them."""
        self._newest[record.key] = record.value
        self._cooperation.received(record.key, record.value, now)

    def begin(self, pin: Pin, partitioner: Partitioner, now: float) -> None:
        """Begin the first interval under a plan, with the newest that all replicas have said."""
        self._cooperation = cooperation_for(pin, self._index, self.interval)
        for key, value in self._newest.items():
            self._cooperation.received(key, value, now)
        self._cooperation.started(partitioner, now)

    def after_block(self, partitioner: Partitioner, now: float) -> None:
        """Say what is to be said between two blocks."""
        self._publish(self._cooperation.after_block(partitioner, now))

    def after_interval(self, partitioner: Partitioner, now: float, due: float) -> None:
        """Say what is to be said at the end of an interval, which should have been at ``due``, and begin the next."""
        self._publish(self._cooperation.after_interval(partitioner, now, due))

    def _publish(self, records: Sequence[tuple[str, bytes]]) -> None:
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
