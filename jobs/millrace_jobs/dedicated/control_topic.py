"""The control topic: the newest record of each key, from the driver to its replicas and between replicas.

The replicas follow it in ``command`` and ``generation``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, Producer

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.dedicated.cooperation.protocol import Record
from millrace_jobs.dedicated.instructions import DRIVER, PLAN, WORK, Instructions, Work
from millrace_jobs.dedicated.topic_reader import TopicReader
from millrace_jobs.dedicated.topics import Topics
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.kafka.errors import PATIENCE, BrokerErrors, error_of, patiently

FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
"""Errors of a producer whose transactional id another process has taken."""

_MISSING = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})
"""Errors of a topic that the driver has not made yet: a replica may start before."""


class ControlWriter:
    """The driver's producer for the control topic; only the driver that was opened last can write.

    Raises:
        MillraceError: Kafka fails, or another driver has taken over.
    """

    def __init__(self, topics: Topics, connection: Connection) -> None:
        self._topics = topics
        self._connection = connection
        self._doing = f"writing to topic {topics.control}"
        settings: dict[str, object] = {
            **connection.settings(),
            "transactional.id": topics.driver,
            "transaction.timeout.ms": 30_000,
            "linger.ms": 0,
        }
        self._producer = Producer(settings | {"error_cb": BrokerErrors()})
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


class ControlReader:
    """The newest work and instructions of the driver, read from the beginning of the control topic.

    Args:
        topics, connection: the query's topics, and their cluster.
        driver: id of the only driver that is listened to; empty for any. The replicas of a run that another one has
            taken over from must not work for the new one, whose own replicas they would fence.
    """

    def __init__(self, topics: Topics, connection: Connection, driver: str = "") -> None:
        self._reader = TopicReader(topics.control, connection, OFFSET_BEGINNING, "earliest", _MISSING)
        self._expected = driver
        self._driver = ""
        self._instructions: Instructions | None = None
        self.work: Work | None = None
        """The newest work; None if there is none yet."""
        self.is_taken_over = False
        """Whether another driver has written its id after the expected one, as far as the topic has been read."""

    @property
    def is_current(self) -> bool:
        """Whether the end of the topic was reached, so that the newest record of each key is known."""
        return self._reader.is_current

    @property
    def current(self) -> tuple[Work, Instructions] | None:
        """The work, and the instructions for it; None until the driver has given both."""
        work, instructions = self.work, self._instructions
        if not self.is_current or work is None or instructions is None:
            return None
        if self._expected and self._driver != self._expected:
            return None
        return (work, instructions) if instructions.generation == work.generation else None

    def follow(self, seconds: float = 0.0) -> Sequence[Record]:
        """Adopt what the driver has written since the last call, and return the records of other replicas.

        Args:
            seconds: how long to wait if there is nothing.

        Raises:
            MillraceError: Kafka fails, or the driver has written what this version does not know.
        """
        others, unreadable = [], None
        for message in self._reader.take(seconds):
            name, value = message.key(), message.value()
            if name is None or value is None:
                continue
            key = name.decode(errors="replace")
            try:
                if key == WORK:
                    self.work = Work.of(value)
                elif key == PLAN:
                    self._instructions = Instructions.of(value)
                elif key == DRIVER:
                    self._adopt_driver(value.decode(errors="replace"))
                else:
                    others.append((key, value))
            except ValueError as error:  # the others are adopted first: the next call goes on after all of them
                why = f"the record {key} of the control topic cannot be read: {error}"
                unreadable = MillraceError(Problem(why, "run partitioners in the version of the driver"))
        if unreadable is not None:
            raise unreadable
        return others

    def close(self) -> None:
        """Leave the topic."""
        self._reader.close()

    def _adopt_driver(self, driver: str) -> None:
        """Note which driver writes from here on; a run's own replicas await its first instructions."""
        if self._expected and driver != self._driver:
            self._instructions = None
            self.is_taken_over |= self._driver == self._expected
        self._driver = driver


def taken_over(topics: Topics) -> MillraceError:
    """Return the error of a driver whose query another one runs now."""
    message = f"another run of query {topics.query} has taken its topics {topics.control}, ..."
    return MillraceError(
        Problem(message, "end one of the two, or give it another name: they use the same Kafka cluster")
    )
