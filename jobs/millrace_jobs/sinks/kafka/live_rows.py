"""The rows that a table currently has, by the end of their window; the sink needs them to retract rows.

This takes memory in the driver: some 300 bytes for every row of the table.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from millrace_jobs.kafka.cluster import KafkaCluster, Partition
from millrace_jobs.kafka.errors import PATIENCE, is_transient, kafka_problem
from millrace_jobs.sinks.base import WindowColumn
from millrace_jobs.sinks.kafka.messages import NO_END
from millrace_jobs.sinks.kafka.topic import TargetTopic

Changes = dict[str, int | None]
"""Message keys with the end of the row's window in microseconds since 1970, or None if the row was removed."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_AT_A_TIME = 10_000
_POLL_SECONDS = 1.0


class LiveRows:
    """The keys of a table's rows, each with the end of its window."""

    def __init__(self) -> None:
        self._ends: dict[str, int] = {}
        self._keys: defaultdict[int, set[str]] = defaultdict(set)

    def __contains__(self, key: str) -> bool:
        return key in self._ends

    def __len__(self) -> int:
        return len(self._ends)

    def apply(self, changes: Mapping[str, int | None]) -> None:
        """Apply the changes of a batch or a message."""
        for key, end in changes.items():
            before = self._ends.get(key)
            if before == end:
                continue
            if before is not None:
                self._keys[before].discard(key)
                if not self._keys[before]:
                    del self._keys[before]
            if end is None:
                del self._ends[key]
            else:
                self._ends[key] = end
                self._keys[end].add(key)

    def expired(self, changes: Mapping[str, int | None], watermark: int) -> list[str]:
        """Return the sorted keys of rows that, after these changes, have a window end at or before the watermark.

        The watermark is in microseconds since 1970. The changes are not applied.
        """
        held = {key for end, keys in self._keys.items() if end <= watermark for key in keys if key not in changes}
        return sorted(held.union(key for key, end in changes.items() if end is not None and end <= watermark))


def read_live_rows(topic: TargetTopic, group: str, window: WindowColumn | None) -> LiveRows:
    """Read a table's committed messages to their current end and return its rows.

    Args:
        topic: the topic of the table.
        group: a consumer group that this user may use; no offsets are committed.
        window: the key column that determines the window of a row; None if rows do not expire.

    Raises:
        MillraceError: the topic cannot be read, or has messages that are not rows of such a table.
    """
    partitions = KafkaCluster(topic.connection).partitions([topic.name], None)
    settings = {
        "group.id": group,
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    consumer = Consumer(topic.connection.settings() | settings)
    live = LiveRows()
    try:
        consumer.assign([TopicPartition(*partition, OFFSET_BEGINNING) for partition in partitions])
        for message in _messages(consumer, partitions, topic):
            key, end = _row(message, window, topic)
            live.apply({key: end})
    finally:
        consumer.close()
    return live


def _messages(consumer: Consumer, partitions: Iterable[Partition], topic: TargetTopic) -> Iterator[Message]:
    """Yield all messages of the assigned partitions, each up to its current end."""
    doing = f"reading the table in topic {topic.name}"
    unread = set(partitions)  # a partition may report its end more than once if another producer writes to it
    trouble = KafkaError(KafkaError._TIMED_OUT)
    heard = time.monotonic()
    while unread:
        for message in consumer.consume(_AT_A_TIME, _POLL_SECONDS):
            error = message.error()
            if error is None:
                heard = time.monotonic()
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                heard = time.monotonic()
                unread.discard(Partition(message.topic() or "", message.partition() or 0))
            elif is_transient(error):
                trouble = error
            else:
                raise kafka_problem(error, doing, topic.connection)
        if unread and time.monotonic() - heard > PATIENCE:
            raise kafka_problem(trouble, doing, topic.connection)


def _row(message: Message, window: WindowColumn | None, topic: TargetTopic) -> tuple[str, int | None]:
    """Return the key of a message and the end of its window, or None in place of the end for a tombstone."""
    try:
        key = message.key().decode()  # type: ignore[union-attr]
        end = NO_END if window is None else _window_end(json.loads(key)[window.name], window)
    except (AttributeError, KeyError, TypeError, ValueError):
        place = f"partition {message.partition()}, offset {message.offset()}"
        problem = f"topic {topic.name} holds a message that is no row of this table: {place}"
        raise topic.problem(problem, "give the table a topic of its own") from None
    return key, None if message.value() is None else end


def _window_end(value: Any, window: WindowColumn) -> int:
    """Return the end of a window in microseconds since 1970, from the window's value in a key."""
    if value is None:
        return NO_END
    moment = datetime.fromisoformat(value["end"] if window.part == "window" else value)
    return (moment - _EPOCH) // _MICROSECOND + (window.size if window.part == "start" else 0)
