"""What becomes of the bad messages of one slice: an error, a count, or dead letters in a folder or a topic."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.kafka.connection import Connection, Settings
from millrace_jobs.kafka.errors import PATIENCE, Complaints, kafka_problem
from millrace_jobs.sources.base import CorruptRecords
from millrace_jobs.sources.dead_letters import FIX, LetterFile, quoted
from millrace_jobs.sources.kafka.reading import offset_of, partition_of

_REASON = 1000
"""Characters of a reason in a header at most."""

_PRODUCER: Settings = {
    "enable.idempotence": True,
    "delivery.timeout.ms": round(PATIENCE * 1000),
    "linger.ms": 20,
    "message.max.bytes": 1_000_000_000,  # the limit that counts is the broker's
}


_Headers = list[tuple[str, str | bytes | None]]


class _Letters(Protocol):
    """Where dead letters go."""

    def send(self, message: Message, reason: str) -> None:
        """Take a bad message. Raises MillraceError where it cannot be kept."""
        ...

    def close(self, *, complete: bool) -> None:
        """Make sure that all are kept, if the slice was read to its end. Raises MillraceError where they are not."""
        ...


class MessageRejects:
    """Takes the bad messages of one slice of ``source``, as a context manager around reading it.

    ``fail`` raises MillraceError at the first one. ``deadLetter`` keeps them; all are kept when the slice has been
    read to its end.
    """

    def __init__(self, source: str, corrupt: CorruptRecords, label: str, connection: Connection) -> None:
        self._source = source
        self._policy = corrupt.policy
        self._letters: _Letters | None = None
        if corrupt.policy == "deadLetter" and corrupt.topic:
            self._letters = TopicLetters(source, corrupt.topic, connection)
        elif corrupt.policy == "deadLetter":
            self._letters = FolderLetters(LetterFile(source, corrupt.directory, label))
        self.records = 0
        """How many were left out so far."""

    def __enter__(self) -> Self:
        return self

    def reject(self, message: Message, reason: str) -> None:
        """Leave out one message. Raises MillraceError on policy ``fail``, or where the letter cannot be kept."""
        if self._policy == "fail":
            topic, number = partition_of(message)
            place = f"topic {topic}, partition {number}, offset {offset_of(message)}"
            said = f"source {self._source} cannot decode {quoted(_text(message))} ({place}): {reason}"
            raise MillraceError(Problem(said, FIX))
        self.records += 1
        if self._letters is not None:
            self._letters.send(message, reason)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._letters is not None:
            self._letters.close(complete=kind is None)


class FolderLetters:
    """JSON lines with source, topic, partition, offset, reason and text."""

    def __init__(self, file: LetterFile) -> None:
        self._file = file

    def send(self, message: Message, reason: str) -> None:
        """Write it down."""
        topic, number = partition_of(message)
        letter: dict[str, str | int] = {"topic": topic, "partition": number, "offset": offset_of(message)}
        self._file.write(letter | {"reason": reason, "text": _text(message)})

    def close(self, *, complete: bool) -> None:
        """Let the file appear, if it is complete."""
        self._file.close(complete=complete)


class TopicLetters:
    """Messages with the key, the value and the headers of the original, and headers that say where it was and why.

    The headers are ``millrace-source``, ``-topic``, ``-partition``, ``-offset`` and ``-reason``. Every letter is
    written at least once: an attempt at a slice that breaks off may have written some of its letters, and the next
    one writes all of them. Topic, partition and offset tell a repeated letter.
    """

    def __init__(self, source: str, topic: str, connection: Connection) -> None:
        self._source = source
        self._topic = topic
        self._connection = connection
        self._complaints = Complaints()
        self._producer: Producer | None = None
        self._failure: KafkaError | None = None

    def send(self, message: Message, reason: str) -> None:
        """Hand it to the producer. Raises MillraceError where it, or one before, cannot be written."""
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
            while not self._taken(producer, message, headers):
                producer.poll(0.1)  # its queue is full: until some are delivered, or have failed
                self._require_no_failure()
        except KafkaException as error:
            raise kafka_problem(error, self._doing, self._connection) from error

    def close(self, *, complete: bool) -> None:
        """Wait until all are delivered, if the slice was read to its end."""
        if self._producer is None:
            return
        left = self._producer.flush(PATIENCE + 1) if complete else 0
        if self._failure is None and left:
            self._failure = KafkaError(KafkaError._TIMED_OUT)
        if complete:
            self._require_no_failure()

    def _require_no_failure(self) -> None:
        if self._failure is not None:
            raise kafka_problem(self._complaints.behind(self._failure), self._doing, self._connection)

    def _taken(self, producer: Producer, message: Message, headers: _Headers) -> bool:
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
                self._producer = Producer(settings, error_cb=self._complaints)
            except KafkaException as error:
                raise kafka_problem(error, self._doing, self._connection) from error
        return self._producer

    @property
    def _doing(self) -> str:
        return f"writing dead letters of source {self._source} to topic {self._topic}"


def _headers(message: Message) -> _Headers:
    """The headers of a message that was read, which are pairs."""
    headers = message.headers() or []
    return list(headers.items()) if isinstance(headers, dict) else list(headers)


def _text(message: Message) -> str:
    return (message.value() or b"").decode(errors="backslashreplace")
