"""Metadata of a cluster: topics, their partitions, and offsets as a ``read_committed`` consumer sees them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec, TopicDescription

from millrace_api.errors import MillraceError, Problem, TransientError, nearest
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.kafka.errors import PATIENCE, BrokerErrors, error_of, is_login, kafka_problem, patiently

FIRST_PATIENCE = 10.0
"""Seconds of retries for a cluster that has never answered: its address is more likely wrong than the cluster down."""

_HAVE_ANSWERED: set[str] = set()
"""The bootstrap servers of clusters that have answered in this process."""

_NOT_YET_KNOWN = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._NOENT})
"""Errors about a partition that was just created, or has no leader at the moment; its topic is known to exist."""

_REQUEST_SECONDS = 5.0
"""Timeout of one request, in seconds."""

T = TypeVar("T")


class Partition(NamedTuple):
    """One partition of a topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


@dataclass(frozen=True)
class Topic:
    """A topic; ``id`` stays unique even if another topic is later created with the same name."""

    name: str
    id: str
    partitions: tuple[Partition, ...]


class KafkaCluster:
    """A client for the metadata of one cluster; not picklable.

    Every method raises MillraceError if Kafka fails, after retries if the error may pass. ``answered`` is true if the
    cluster has answered before, in another process.
    """

    def __init__(self, connection: Connection, *, answered: bool = False) -> None:
        self._connection = connection
        self._broker_errors = BrokerErrors()
        self._answered = answered or connection.servers in _HAVE_ANSWERED
        self._has_succeeded = False
        try:
            self._admin = AdminClient(connection.settings(), error_cb=self._broker_errors)
        except KafkaException as error:
            raise kafka_problem(error, "creating a client", connection) from error

    def partitions(self, topics: Sequence[str] | None, pattern: str | None) -> list[Partition]:
        """Return the sorted partitions of these topics, or of all topics whose whole name matches a regular expression.

        Raises:
            MillraceError: a topic does not exist.
        """
        found = self.topics(topics, pattern)
        for name in topics or ():
            if name not in found:
                raise self.no_topic(name)
        return sorted(partition for topic in found.values() for partition in topic.partitions)

    def topics(self, names: Sequence[str] | None, pattern: str | None) -> dict[str, Topic]:
        """Return the topics among ``names`` that exist, or all whose whole name matches a regular expression."""
        if names is None:  # a pattern never selects Kafka's own topics, such as __consumer_offsets
            assert pattern is not None
            names = [name for name in self._all_topics() if re.fullmatch(pattern, name) and not name.startswith("__")]
        return self._describe(names)

    def beginnings(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Return the first offset that each partition still has."""
        return self._offsets(partitions, OffsetSpec.earliest())

    def ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Return the last stable offset of each partition.

        All records before it are committed or aborted; records from it on must not be read yet.
        """
        return self._offsets(partitions, OffsetSpec.latest())

    def at(self, timestamp: int, partitions: Iterable[Partition]) -> dict[Partition, int | None]:
        """Return the offset of the first record at or after ``timestamp`` (ms since 1970), or None if it has none."""
        found = self._offsets(partitions, OffsetSpec.for_timestamp(timestamp))
        return {partition: None if offset < 0 else offset for partition, offset in found.items()}

    def require_topic_to_write(self, name: str, field: str, *, create_with: str = "") -> None:
        """Check that a topic that the query writes exists: Millrace creates none.

        Args:
            name: the topic.
            field: the field of the query in which the user named it.
            create_with: further options of ``kafka-topics --create`` that make the topic suitable, for the hint.

        Raises:
            MillraceError: the topic does not exist, this user may not see it, or the brokers do not answer.
        """
        if name not in self.topics([name], None):
            command = topic_command(self._connection, "topics", name, f"--create --partitions 8{create_with}")
            message = f"Kafka at {self._connection.servers} has no topic {name}"
            raise MillraceError(Problem(message, f"create it: {command}", field=field))

    def no_topic(self, name: str) -> MillraceError:
        """Return the error for a topic that does not exist."""
        similar = nearest(name, self._all_topics())
        hint = f"did you mean {similar}?" if similar else "create it, or correct its name"
        return MillraceError(Problem(f"Kafka at {self._connection.servers} has no topic {name}", hint))

    def _all_topics(self) -> list[str]:
        metadata = self._ask(lambda: self._admin.list_topics(timeout=_REQUEST_SECONDS), "asking for its topics")
        return sorted(metadata.topics)

    def _describe(self, names: Sequence[str]) -> dict[str, Topic]:
        if not names:
            return {}

        def ask() -> dict[str, TopicDescription]:
            futures = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=_REQUEST_SECONDS)
            answers = {name: _unless_unknown(future.result) for name, future in futures.items()}
            return {name: answer for name, answer in answers.items() if answer is not None}

        return {
            name: Topic(name, str(answer.topic_id), tuple(Partition(name, each.id) for each in answer.partitions))
            for name, answer in self._ask(ask, f"looking for {_listed(names)}").items()
        }

    def _offsets(self, partitions: Iterable[Partition], wanted: OffsetSpec) -> dict[Partition, int]:
        request = {TopicPartition(*partition): wanted for partition in partitions}
        if not request:
            return {}

        def ask() -> dict[Partition, int]:
            futures = self._admin.list_offsets(
                request, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_REQUEST_SECONDS
            )
            try:
                return {Partition(key.topic, key.partition): int(f.result().offset) for key, f in futures.items()}
            except KafkaException as error:
                if error_of(error).code() == KafkaError._NOENT:
                    for topic in topics:  # the client remembers that a topic was unknown until it asks again
                        self._admin.list_topics(topic, timeout=_REQUEST_SECONDS)
                raise

        topics = sorted({place.topic for place in request})
        return self._ask(ask, f"asking for offsets of {_listed(topics)}", passing=_NOT_YET_KNOWN)

    def _ask(self, request: Callable[[], T], doing: str, *, passing: frozenset[int] = frozenset()) -> T:
        def attempt() -> T:
            try:
                return request()
            except KafkaException as error:
                self._admin.poll(0)  # runs the callback that reports the cause
                raise KafkaException(self._broker_errors.cause_of(error_of(error))) from error

        patience = PATIENCE if self._answered else FIRST_PATIENCE
        try:
            answer = patiently(attempt, doing, self._connection, patience=patience, passing=passing)
        except MillraceError as error:
            if self._has_succeeded and is_login(error.__cause__):
                # The credentials worked before, so they have probably been rotated; a new client reads them again.
                raise TransientError(*error.problems) from error
            raise
        self._answered = self._has_succeeded = True
        _HAVE_ANSWERED.add(self._connection.servers)
        self._broker_errors.clear()
        return answer


def topic_command(connection: Connection, tool: str, topic: str, arguments: str) -> str:
    """Return a command of Kafka's tools, such as ``topics`` or ``configs``, about a topic, for a hint."""
    return f"kafka-{tool} --bootstrap-server {connection.servers} --topic {topic} {arguments}"


def _unless_unknown(answer: Callable[[], T]) -> T | None:
    try:
        return answer()
    except KafkaException as error:
        if error_of(error).code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise


def _listed(topics: Sequence[str]) -> str:
    shown = ", ".join(topics[:3]) + (", ..." if len(topics) > 3 else "")
    return f"topic {shown}" if len(topics) == 1 else f"topics {shown}"
