"""Delivery of messages to a topic, at a pace, until the brokers have confirmed each of them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from millrace_api.errors import MillraceError
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.kafka.errors import PATIENCE, BrokerErrors, kafka_problem
from millrace_jobs.sinks.kafka.topic import TargetTopic
from millrace_jobs.sources.pacing import Pace, Pacer

_MOST_MESSAGES, _MOST_KBYTES = 200_000, 512 << 10
"""Maximum number of messages, and maximum KiB of messages, in flight at a time."""
_SETTINGS = {
    "enable.idempotence": True,
    "delivery.timeout.ms": round(PATIENCE * 1000),
    "delivery.report.only.error": True,
    "partitioner": "murmur2_random",  # as Java clients place keys
    "linger.ms": 50,
    "sticky.partitioning.linger.ms": 0,  # messages without a key are spread one by one, evenly
    "queue.buffering.max.messages": _MOST_MESSAGES,
    "queue.buffering.max.kbytes": _MOST_KBYTES,
    "message.max.bytes": _MOST_KBYTES << 10,  # the topic has its own limit; a message larger than the queue never fits
}
_BATCH_BYTES = 1 << 20  # minimum limit that an error message suggests: room for any batch of small messages
_POLL = 0.1  # seconds to wait at a time, short enough to react to Ctrl-C
_CHUNK_MESSAGES = 10_000  # maximum number of messages handed to the client at a time
_IDLE = 0.01  # seconds to wait if no message is due


class Delivery:
    """A producer that sends messages to one topic and counts them.

    Every method raises MillraceError once a message could not be delivered.
    """

    def __init__(self, connection: Connection, topic: str) -> None:
        self._connection = connection
        self._topic = topic
        self._broker_errors = BrokerErrors()
        self._lost = 0
        self._error: KafkaError | None = None
        self._largest = 0
        self.sent = 0
        """Number of messages handed to the client so far."""
        self.bytes = 0
        """Total size of their values, in bytes."""
        try:
            self._producer = Producer(connection.settings() | _SETTINGS, error_cb=self._broker_errors)
        except KafkaException as error:
            raise kafka_problem(error, "creating a client", connection) from error

    @property
    def delivered(self) -> int:
        """Number of messages that the brokers have confirmed."""
        return self.sent - len(self._producer) - self._lost

    def send(self, values: Sequence[bytes], keys: Sequence[bytes | None] | None, stopped: Callable[[], bool]) -> None:
        """Hand messages to the client in order; wait while too many are in flight, unless ``stopped``."""
        size = sum(map(len, values))
        while not self._has_room(len(values), size) and not stopped():
            self.poll(_POLL)
        messages: list[Any] = [
            {"value": value, "key": key} for value, key in zip(values, keys or [None] * len(values), strict=True)
        ]
        while messages and not stopped():
            self._producer.produce_batch(self._topic, messages, on_delivery=self._failed)
            refused = [message for message in messages if "_error" in message]
            self.sent += len(messages) - len(refused)
            self.bytes += sum(len(message["value"]) for message in messages if "_error" not in message)
            messages = [{"value": m["value"], "key": m["key"]} for m in refused if self._can_be_sent_later(m["_error"])]
            self.poll(_POLL if messages else 0)

    def poll(self, seconds: float) -> None:
        """Process delivery reports, for at most this many seconds."""
        self._producer.poll(seconds)
        self._check()

    def flush(self) -> None:
        """Wait until every message is confirmed, or has failed after ``delivery.timeout.ms``."""
        while len(self._producer):
            self._producer.flush(_POLL)
            self._check()

    def _has_room(self, messages: int, size: int) -> bool:
        """Return whether the client will accept all of these messages.

        A full queue refuses single messages, and later ones would overtake them.
        """
        waiting = len(self._producer)
        in_flight = waiting * self.bytes / max(self.sent, 1)  # estimated from the mean message size
        return not waiting or (waiting + messages <= _MOST_MESSAGES and 2 * (in_flight + size) <= _MOST_KBYTES << 10)

    def _failed(self, error: KafkaError | None, message: Message) -> None:
        self._lost += 1
        self._error = self._error or error
        if error is not None and error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            self._largest = max(self._largest, len(message.value() or b"") + len(message.key() or b""))

    def _can_be_sent_later(self, error: KafkaError) -> bool:
        if error.code() == KafkaError._QUEUE_FULL:
            return True
        raise self._problem(error)

    def _check(self) -> None:
        why = self._error or self._broker_errors.permanent
        if why is not None:
            raise self._problem(why)

    def _problem(self, error: KafkaError) -> MillraceError:
        error = self._broker_errors.cause_of(error)
        doing = f"sending to topic {self._topic} ({self.delivered} messages were delivered)"
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE and self._largest:
            return self._too_large(doing)
        return kafka_problem(error, doing, self._connection)

    def _too_large(self, doing: str) -> MillraceError:
        """Return the error for a refused batch; its cause is the largest message, as brokers refuse whole batches."""
        topic = TargetTopic(self._topic, self._connection, "")
        try:
            settings = topic.settings()
        except MillraceError:
            settings = None
        limit = f"{settings.max_message_bytes} (max.message.bytes)" if settings is not None else "less"
        message = f"a message is {self._largest} bytes long, and the topic takes {limit}, while {doing}"
        return topic.problem(message, topic.alter_command(f"max.message.bytes={max(2 * self._largest, _BATCH_BYTES)}"))


@dataclass(frozen=True)
class SendLimits:
    """The limits of a run: ``count`` messages and ``duration`` seconds; None means no limit."""

    count: int | None = None
    duration: float | None = None


Messages = tuple[list[bytes], list[bytes | None] | None]
"""Values of messages and their keys; None in place of the keys if messages have no key."""


def send_all(
    batches: Iterator[pa.RecordBatch],
    encode: Callable[[pa.RecordBatch], Messages],
    delivery: Delivery,
    *,
    pace: Pace | None,
    limits: SendLimits,
    stop: Event,
    advanced: Callable[[int], None],
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Send records until they end, ``limits`` are reached, or ``stop`` is set.

    ``pace`` says when records are due; with None, they are sent as fast as the client accepts them. ``advanced``
    receives the number of messages of each send, and ``clock`` returns the current time in seconds.
    """
    pacer = Pacer(pace, clock) if pace is not None else None
    deadline = clock() + limits.duration if limits.duration is not None else None
    sent = 0

    def over() -> bool:
        return stop.is_set() or (deadline is not None and clock() >= deadline)

    for values, keys in map(encode, _at_most(batches, limits.count)):
        done = 0
        while done < len(values):
            if over():
                return
            due = pacer.due(sent) - sent if pacer is not None else _CHUNK_MESSAGES
            if due <= 0:
                delivery.poll(_IDLE)
                continue
            part = slice(done, min(done + due, done + _CHUNK_MESSAGES))
            delivery.send(values[part], keys[part] if keys is not None else None, over)
            taken = len(values[part])
            done += taken
            sent += taken
            advanced(taken)


def _at_most(batches: Iterator[pa.RecordBatch], count: int | None) -> Iterator[pa.RecordBatch]:
    """Yield the batches in parts of at most ``_CHUNK_MESSAGES`` records, ``count`` records in all."""
    left = sys.maxsize if count is None else count
    for batch in batches:
        for row in range(0, batch.num_rows, _CHUNK_MESSAGES):
            part = batch.slice(row, min(_CHUNK_MESSAGES, left))
            yield part
            left -= part.num_rows
            if not left:
                return
