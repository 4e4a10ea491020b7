"""A reader of a topic with one partition, from an offset on: records in order, as they are committed."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from millrace_jobs.kafka.connection import Connection
from millrace_jobs.kafka.errors import PATIENCE, BrokerErrors, is_transient, kafka_problem

_AT_ONCE = 1_000
"""Records taken in one call."""


class TopicReader:
    """A reader that joins no group.

    Args:
        topic, connection: the topic and its cluster.
        begin: offset of the first record.
        reset: where to go on if records are gone: ``earliest``, or ``error``.
        passing: codes of errors that may last.
    """

    def __init__(
        self, topic: str, connection: Connection, begin: int, reset: str, passing: frozenset[int] = frozenset()
    ) -> None:
        self._topic, self._passing = topic, passing
        self._connection = connection
        self._errors = BrokerErrors()
        settings: dict[str, object] = {
            **connection.settings(),
            "group.id": topic,  # no group is joined
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": reset,
            "allow.auto.create.topics": False,
            "fetch.wait.max.ms": 100,
            "fetch.queue.backoff.ms": 5,
        }
        self._consumer = Consumer(settings | {"error_cb": self._errors})
        self._consumer.assign([TopicPartition(topic, 0, begin)])
        self._failing_since: float | None = None
        self.is_current = False
        """Whether the end of the topic was reached."""

    def take(self, seconds: float) -> list[Message]:
        """Return what has come; wait for the first if there is nothing.

        Raises:
            MillraceError: Kafka fails permanently, or for longer than ``PATIENCE``.
        """
        messages = []
        for message in self._consumer.consume(_AT_ONCE, seconds):
            error = message.error()
            if error is None:
                messages.append(message)
            if error is None or error.code() == KafkaError._PARTITION_EOF:
                self._failing_since = None
                self.is_current |= error is not None
            else:
                self._meet(error)
        return messages

    def close(self) -> None:
        """Release the consumer."""
        self._consumer.close()

    def _meet(self, error: KafkaError) -> None:
        """Raise MillraceError unless the error may pass."""
        self._failing_since = self._failing_since or time.monotonic()
        overdue = time.monotonic() > self._failing_since + PATIENCE
        if error.code() not in self._passing and (overdue or not is_transient(error)):
            raise kafka_problem(self._errors.cause_of(error), f"reading topic {self._topic}", self._connection)
