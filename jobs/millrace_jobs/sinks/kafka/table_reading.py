"""How the committed messages of a table's topics are read: all partitions at once, each up to an end of its own.

The keys on the driver's disk (``table``) read to the end that each partition has by then. The view for look-ups
(``table_view``) reads to marks.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Generator, Mapping

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from millrace_jobs.kafka.calls import consume
from millrace_jobs.kafka.cluster import Partition
from millrace_jobs.kafka.errors import error_of, is_transient, kafka_problem
from millrace_jobs.sinks.kafka.topic import TargetTopic

_CHUNK = 10_000


def read_messages(
    topic: TargetTopic,
    group: str,
    partitions: Collection[Partition],
    *,
    reading: str,
    poll_seconds: float,
    positions: dict[Partition, int] | None = None,
    marks: Mapping[Partition, int] | None = None,
    patience: float = math.inf,
    options: Mapping[str, str | int] | None = None,
) -> Generator[list[Message], None, None]:
    """Yield the committed messages of some partitions poll by poll, each up to its end.

    Args:
        topic: a topic on the cluster that all partitions are on, which gives the connection.
        group: a consumer group that this user may use; no offsets are committed.
        partitions: the partitions to read.
        reading: what is being read, for error messages.
        poll_seconds: the longest time that a poll takes, after which its list may be empty.
        positions: where to begin; a partition without a position is read from its beginning. With ``marks``, they are
            moved to where the reader is.
        marks: the offset up to which each partition is read; None for the end that it has when the reader is there.
        patience: seconds without progress after which the reader gives up.
        options: client options, where users set no others.

    Raises:
        MillraceError: Kafka fails.
    """
    settings = {
        "group.id": group,
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
    }
    begin = {} if positions is None else positions
    consumer = Consumer(dict(options or {}) | topic.connection.settings() | settings)
    try:
        consumer.assign([TopicPartition(*each, begin.get(each, OFFSET_BEGINNING)) for each in sorted(partitions)])
        yield from _polled(consumer, topic, partitions, begin, marks, reading, poll_seconds, patience)
    except KafkaException as error:
        raise kafka_problem(error_of(error), reading, topic.connection) from None
    finally:
        consumer.close()


def _polled(
    consumer: Consumer,
    topic: TargetTopic,
    partitions: Collection[Partition],
    positions: dict[Partition, int],
    marks: Mapping[Partition, int] | None,
    reading: str,
    poll_seconds: float,
    patience: float,
) -> Generator[list[Message], None, None]:
    """Yield the messages of the assigned partitions poll by poll; see ``read_messages``."""
    unread = set(partitions)  # a partition may report its end more than once if another producer writes to it
    latest_error = KafkaError(KafkaError._TIMED_OUT)
    last_progress = time.monotonic()
    while unread:
        messages: list[Message] = []
        has_progressed = False
        for message in consume(consumer, _CHUNK, poll_seconds):
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                if not is_transient(error):
                    raise kafka_problem(error, reading, topic.connection)
                latest_error = error
                continue
            has_progressed = True
            if error is None and marks is None:
                messages.append(message)
                continue
            place, offset = Partition(message.topic() or "", message.partition() or 0), message.offset() or 0
            if marks is None:
                unread.discard(place)
                continue
            if error is None and place in unread and offset < marks[place]:  # what is read again may be older
                positions[place] = offset + 1
                messages.append(message)
            if offset + (error is None) >= marks[place]:
                unread.discard(place)
                positions[place] = max(positions.get(place, 0), marks[place])
        yield messages
        if has_progressed:
            last_progress = time.monotonic()
        if unread and time.monotonic() - last_progress > patience:
            raise kafka_problem(latest_error, reading, topic.connection)
