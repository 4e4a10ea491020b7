"""Bad messages of one slice of a topic: an error, a count, or dead letters in a file or a topic."""

from __future__ import annotations

from typing import Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.kafka.connection import Connection, Settings
from millrace_jobs.kafka.errors import PATIENCE, BrokerErrors, kafka_problem
from millrace_jobs.sources.base import CorruptRecords
from millrace_jobs.sources.dead_letters import FIX_HINT, DeadLetterFile, quoted
from millrace_jobs.sources.kafka.range_reader import offset_of, partition_of

_REASON = 1000
"""The maximum number of characters of a reason in a header."""

_PRODUCER: Settings = {
    "enable.idempotence": True,
    "delivery.timeout.ms": round(PATIENCE * 1000),
    "linger.ms": 20,
    "message.max.bytes": 1_000_000_000,  # leave the limit to the broker
}

_Headers = list[tuple[str, str | bytes | None]]


class BadMessageHandler:
    """Handler of the bad messages in one slice of ``source``; a context manager around reading the slice.

    The policy ``Fail`` raises MillraceError at the first bad message, ``Drop`` only counts them, and ``DeadLetter``
    stores them: in the topic if there is one, otherwise in a file, as JSON lines with source, topic, partition, offset,
    reason and text. All dead letters are stored once the slice has been read to its end.
    """

    def __init__(self, source: str, corrupt: CorruptRecords, label: str, connection: Connection) -> None:
        self._source = source
        self._policy = corrupt.policy
        self._topic = DeadLetterTopic(source, corrupt.topic, connection) if corrupt.topic else None
        self._file = DeadLetterFile(source, corrupt.directory, label)
        self.records = 0
        """Messages left out so far."""

    def __enter__(self) -> Self:
        return self

    def reject(self, message: Message, reason: str) -> None:
        """Leave out one message. Raises MillraceError under the policy ``Fail``, or if the letter cannot be stored."""
        if self._policy == "Fail":
            topic, number = partition_of(message)
            place = f"topic {topic}, partition {number}, offset {offset_of(message)}"
            said = f"source {self._source} cannot decode {quoted(_text(message))} ({place}): {reason}"
            raise MillraceError(Problem(said, FIX_HINT))
        self.records += 1
        if self._policy != "DeadLetter":
            return
        if self._topic is not None:
            self._topic.send(message, reason)
        else:
            topic, number = partition_of(message)
            letter: dict[str, str | int] = {"topic": topic, "partition": number, "offset": offset_of(message)}
            self._file.write(letter | {"reason": reason, "text": _text(message)})

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._file.close(complete=kind is None)
        if self._topic is not None:
            self._topic.close(complete=kind is None)


class DeadLetterTopic:
    """Dead letters as messages with the original key, value and headers, plus headers with their origin and the reason.

    The added headers are ``millrace-source``, ``-topic``, ``-partition``, ``-offset`` and ``-reason``. Every letter is
    written at least once: an attempt at a slice that fails may have written some of its letters, and the next
    attempt writes all of them. Topic, partition and offset identify a repeated letter.
    """

    def __init__(self, source: str, topic: str, connection: Connection) -> None:
        self._source = source
        self._topic = topic
        self._connection = connection
        self._broker_errors = BrokerErrors()
        self._producer: Producer | None = None
        self._failure: KafkaError | None = None

    def send(self, message: Message, reason: str) -> None:
        """Pass a bad message to the producer. Raises MillraceError if this or an earlier letter cannot be written."""
        topic, number = partition_of(message)
        said = {
            "source": self._source,
            "topic": topic,
            "partition": str(number),
            "offset": str(offset_of(message)),
            "reason": reason[:_REASON],
        }
        headers = _headers(message) + [(f"millrace-{name}", value.encode()) for name, value in said.items()]
        producer = self._open()
        try:
            producer.poll(0)
            self._require_no_failure()
            while not self._enqueue(producer, message, headers):
                producer.poll(0.1)  # the queue is full: wait until letters are delivered or have failed
                self._require_no_failure()
        except KafkaException as error:
            raise kafka_problem(error, self._doing, self._connection) from error

    def close(self, *, complete: bool) -> None:
        """Wait until all letters are delivered, if the slice is ``complete``. Raises MillraceError if one is not."""
        if self._producer is None:
            return
        left = self._producer.flush(PATIENCE + 1) if complete else 0
        if self._failure is None and left:
            self._failure = KafkaError(KafkaError._TIMED_OUT)
        if complete:
            self._require_no_failure()

    def _require_no_failure(self) -> None:
        if self._failure is not None:
            raise kafka_problem(self._broker_errors.cause_of(self._failure), self._doing, self._connection)

    def _enqueue(self, producer: Producer, message: Message, headers: _Headers) -> bool:
        """Put a letter into the producer's queue; return whether there was room."""
        try:
            producer.produce(self._topic, message.value(), message.key(), headers=headers, on_delivery=self._delivered)
        except BufferError:
            return False
        return True

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        self._failure = self._failure or error

    def _open(self) -> Producer:
        if self._producer is None:
            settings = self._connection.settings() | _PRODUCER
            try:
                self._producer = Producer(settings, error_cb=self._broker_errors)
            except KafkaException as error:
                raise kafka_problem(error, self._doing, self._connection) from error
        return self._producer

    @property
    def _doing(self) -> str:
        return f"writing dead letters of source {self._source} to topic {self._topic}"


def _headers(message: Message) -> _Headers:
    """Return the headers of a message as pairs."""
    headers = message.headers() or []
    return list(headers.items()) if isinstance(headers, dict) else list(headers)


def _text(message: Message) -> str:
    return (message.value() or b"").decode(errors="backslashreplace")
