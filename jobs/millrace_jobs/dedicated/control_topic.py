"""The control topic: the newest record of each key, from the driver to its replicas and between replicas."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.dedicated.instructions import DRIVER
from millrace_jobs.dedicated.topics import Topics
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.kafka.errors import PATIENCE, BrokerErrors, error_of, is_transient, kafka_problem, patiently

FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
"""Errors of a producer whose transactional id another process has taken."""

_AT_ONCE = 1_000
"""Records taken from the topic in one call."""


class ControlRecord(NamedTuple):
    """One record of the control topic."""

    key: str
    value: bytes


class ControlWriter:
    """The driver's producer for the control topic; only the driver that was opened last can write.

    Raises:
        MillraceError: Kafka fails, or another driver has taken over.
    """

    def __init__(self, topics: Topics, connection: Connection) -> None:
        self._topics = topics
        self._connection = connection
        self._errors = BrokerErrors()
        settings: dict[str, object] = {
            **connection.settings(),
            "transactional.id": topics.driver,
            "transaction.timeout.ms": 30_000,
            "linger.ms": 0,
        }
        self._producer = Producer(settings | {"error_cb": self._errors})
        patiently(lambda: self._producer.init_transactions(PATIENCE), self._doing, connection)

    def write(self, records: Mapping[str, bytes]) -> None:
        """Write records by key, all or none. Raises MillraceError as the class says."""
        try:
            patiently(lambda: self._attempt(records), self._doing, self._connection)
        except MillraceError as error:
            cause = error.__cause__
            if isinstance(cause, KafkaException) and error_of(cause).code() in FENCED:
                raise taken_over(self._topics) from None
            raise

    def _attempt(self, records: Mapping[str, bytes]) -> None:
        self._producer.begin_transaction()
        try:
            for key, value in records.items():
                self._producer.produce(self._topics.control, value, key)
            self._producer.commit_transaction(PATIENCE)
        except KafkaException as error:
            if not error_of(error).fatal():
                with suppress(KafkaException):
                    self._producer.abort_transaction(PATIENCE)
            raise

    @property
    def _doing(self) -> str:
        return f"writing to topic {self._topics.control}"


class ControlReader:
    """A reader of the control topic from its beginning; the topic is compacted, so that this is short."""

    def __init__(self, topics: Topics, connection: Connection) -> None:
        self._topic = topics.control
        self._connection = connection
        self._errors = BrokerErrors()
        settings: dict[str, object] = {
            **connection.settings(),
            "group.id": topics.control,  # no group is joined
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "allow.auto.create.topics": False,
            "fetch.wait.max.ms": 100,
        }
        self._consumer = Consumer(settings | {"error_cb": self._errors})
        self._consumer.assign([TopicPartition(self._topic, 0, OFFSET_BEGINNING)])
        self._failing_since: float | None = None
        self.is_current = False
        """Whether the end of the topic was reached, so that the newest record of each key is known."""

    def poll(self, seconds: float = 0.0) -> list[ControlRecord]:
        """Return the records that have come since the last call; wait for the first one if there are none.

        Raises:
            MillraceError: Kafka fails permanently, or for longer than ``PATIENCE``.
        """
        records = []
        for message in self._consumer.consume(_AT_ONCE, seconds):
            error = message.error()
            if error is not None:
                self._note(error)
                continue
            self._failing_since = None
            key, value = message.key(), message.value()
            if key is not None and value is not None:
                records.append(ControlRecord(key.decode(errors="replace"), value))
        return records

    def close(self) -> None:
        """Leave the topic."""
        self._consumer.close()

    def _note(self, error: KafkaError) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            self.is_current = True
            self._failing_since = None
            return
        # A replica may start before the driver has made the topic.
        missing = error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
        self._failing_since = self._failing_since or time.monotonic()
        overdue = time.monotonic() > self._failing_since + PATIENCE
        if not missing and (overdue or not is_transient(error)):
            raise kafka_problem(self._errors.cause_of(error), f"reading topic {self._topic}", self._connection)


class DriverWatch:
    """The driver's own eye on the control topic, where a driver that takes over leaves its id.

    Args:
        topics: names of the query's topics.
        connection: their cluster.
        driver: id of this driver, which has written it to the topic.
    """

    def __init__(self, topics: Topics, connection: Connection, driver: str) -> None:
        self._reader = ControlReader(topics, connection)
        self._driver = driver.encode()
        self._is_found = False
        self._has_another = False

    def has_another(self) -> bool:
        """Return whether another driver has written its id after this one, as far as the topic has been read."""
        with suppress(MillraceError):  # as of brokers that do not answer, which other clients of the run report
            for record in self._reader.poll():
                if record.key == DRIVER:
                    self._has_another |= self._is_found and record.value != self._driver
                    self._is_found |= record.value == self._driver
        return self._has_another

    def close(self) -> None:
        """Leave the topic."""
        self._reader.close()


def taken_over(topics: Topics) -> MillraceError:
    """Return the error of a driver whose query another one runs now."""
    message = f"another run of query {topics.query} has taken its topics {topics.control}, ..."
    return MillraceError(
        Problem(message, "end one of the two, or give it another name: they use the same Kafka cluster")
    )
