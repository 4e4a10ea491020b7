"""Bad messages of one slice of a topic: an error, a count, or dead letters in a file or a topic."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from millrace_api.errors import Problem
from millrace_jobs.kafka.connection import Connection, Settings
from millrace_jobs.kafka.errors import PATIENCE, BrokerErrors, kafka_problem
from millrace_jobs.sources.base import CorruptRecords
from millrace_jobs.sources.dead_letters import FIX_HINT, RejectedRecords, quoted
from millrace_jobs.sources.kafka.range_reader import offset_of, partition_of

_REASON = 1000  # the maximum number of characters of a reason in a header
_PRODUCER: Settings = {
    "enable.idempotence": True,
    "delivery.timeout.ms": round(PATIENCE * 1000),
    "linger.ms": 20,
    "message.max.bytes": 1_000_000_000,  # leave the limit to the broker
}


class BadMessageHandler(RejectedRecords):
    """Handler of the bad messages in one slice of ``source``.

    Dead letters are stored in the topic if there is one, otherwise in a file, as JSON lines with source, topic,
    partition, offset, reason and text.
    """

    def __init__(self, source: str, corrupt: CorruptRecords, label: str, connection: Connection) -> None:
        super().__init__(source, corrupt, label)
        self._topic = DeadLetterTopic(source, corrupt.topic, connection) if corrupt.topic else None

    def reject(self, message: Message, reason: str) -> None:
        """Leave out one message. Raises MillraceError under the policy ``Fail``, or if the letter cannot be stored."""
        (topic, number), offset = partition_of(message), offset_of(message)

        def problem() -> Problem:
            place = f"topic {topic}, partition {number}, offset {offset}"
            said = f"source {self._source} cannot decode {quoted(_text(message))} ({place}): {reason}"
            return Problem(said, FIX_HINT)

        if not self._left_out(problem):
            return
        if self._topic is not None:
            self._topic.send(message, reason)
        else:
            letter: dict[str, str | int] = {"topic": topic, "partition": number, "offset": offset}
            self._letters.write(letter | {"reason": reason, "text": _text(message)})

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        super().__exit__(kind, *error)
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
        found = message.headers() or []
        own: list[tuple[str, str | bytes | None]] = list(found.items()) if isinstance(found, dict) else list(found)
        headers = own + [(f"millrace-{name}", value.encode()) for name, value in said.items()]
        producer = self._open()
        try:
            producer.poll(0)
            while True:
                self._require_no_failure()
                try:
                    producer.produce(
                        self._topic, message.value(), message.key(), headers=headers, on_delivery=self._delivered
                    )
                    return
                except BufferError:  # the queue is full: wait until letters are delivered or have failed
                    producer.poll(0.1)
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


def _text(message: Message) -> str:
    return (message.value() or b"").decode(errors="backslashreplace")
