"""The sink that maintains a table of results in a compacted Kafka topic: the newest message of a key is its row.

An update of a group replaces its row. A tombstone, a message without a value, retracts a row in two cases. First, when
HAVING no longer admits the group. Second, under OnUpdate, when the watermark has passed the end of the row's window:
Spark then drops the window's state, and no update can follow. Under OnWindowClose rows are final and stay.

The driver reads from the topic itself which rows the table has (``LiveRows``). A batch that runs again therefore sends
the same messages, and a group that was never in the table needs no tombstone. This takes about 300 bytes of memory in
the driver for every row of the table.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, TypeVar

import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.kafka.cluster import KafkaCluster, Partition
from millrace_jobs.kafka.consuming import consume
from millrace_jobs.kafka.errors import PATIENCE, is_transient, kafka_problem
from millrace_jobs.lookups.history import NO_TIMES, HistoryTimes
from millrace_jobs.sinks.base import LastBatch, ResultBatch, ResultKeys, WindowColumn
from millrace_jobs.sinks.kafka.history import TableHistory, split_newest, with_starts
from millrace_jobs.sinks.kafka.messages import NO_END, Row, fetched_rows, netted
from millrace_jobs.sinks.kafka.sink import KafkaSink
from millrace_jobs.sinks.kafka.table_view import PendingBatch, TableView
from millrace_jobs.sinks.kafka.topic import TargetTopic, TopicSettings
from millrace_jobs.sinks.kafka.transactions import Outgoing
from millrace_jobs.time_texts import micros_of

Changes = dict[str, int | None]
"""Message keys with the end of the row's window in microseconds since 1970, or None if the row was removed."""

_Divided = TypeVar("_Divided", pa.Table, tuple[pa.Table, pa.Table])


class TableSink(KafkaSink):
    """A sink that upserts rows by key, and retracts rows by tombstones; earlier versions go to their own topic."""

    def __init__(
        self,
        topic: TargetTopic,
        keys: ResultKeys,
        query: str,
        checkpoint_id: str,
        view: TableView | None = None,
        history: TableHistory | None = None,
    ) -> None:
        super().__init__(topic, keys, query, checkpoint_id, None if history is None else history.topic)
        self._live = LiveRows()
        self._view = view
        self._history = history
        self._times = NO_TIMES

    def prepare(self, last: LastBatch) -> None:
        """Take over the topic's transactions, read which rows the table has, and have the view built from them."""
        if self._history is not None:
            self._history.check()
        super().prepare(last)
        noted = self._transactions.noted
        self._times = HistoryTimes(noted.get("since"), noted.get("final"))
        if self._view is not None:
            topics = [self._topic, *([self._history.topic] if self._history is not None else [])]
            self._view.rebuild(topics, self._transactions.id, self._transactions.last, self._times)
        if self._rows_expire:
            self._live = read_live_rows(self._topic, self._transactions.id, self._keys.window)

    def close(self) -> None:
        """Close the view and the producer."""
        if self._view is not None:
            self._view.close()
        super().close()

    @property
    def _rows_expire(self) -> bool:
        return self._keys.retracts or self._keys.window is not None

    def _suitable_settings(self) -> TopicSettings | None:
        settings = self._topic.settings(create_with=" --config cleanup.policy=compact")
        if settings is None:
            message = f"this user may not see whether topic {self._topic.name} is compacted, as a table has to be"
            raise self._topic.problem(message, "allow it to describe the topic's configs")
        if not settings.compacted:
            message = f"topic {self._topic.name} is not compacted: as a table it would lose rows, and grow for ever"
            raise self._topic.problem(message, f"change that: {self._topic.alter_command('cleanup.policy=compact')}")
        return settings

    def _write(self, fetched: pa.Table, batch: ResultBatch) -> int:
        earlier, times = None, self._times
        if self._keys.versioned:
            fetched, earlier = self._identified(split_newest, fetched)
        if self._keys.weighted:
            fetched = self._identified(netted, fetched)
        rows = fetched_rows(fetched)
        changes: Changes = {}
        if self._rows_expire:
            messages = table_messages(rows, self._live, changes, batch.watermark)
        else:
            messages = (Outgoing(key, value) for key, value, _ in rows)
        if earlier is not None and self._history is not None:
            messages = chain(with_starts(messages, fetched), self._history.messages(earlier))
            times = self._history.times(batch.watermark * 1000 or None, times)
        self._transactions.write(batch, messages, times._asdict() if self._history is not None else None)
        self._times = times
        self._live.apply(changes)
        if self._view is not None:
            shown = fetched.drop_columns(["end"])
            removed = [key for key, end in changes.items() if end is None]
            self._view.offer(PendingBatch(batch.number, times, shown, removed, earlier))
        return sum(value.is_valid for value in fetched.column("value")) if self._keys.retracts else fetched.num_rows

    def _identified(self, divide: Callable[[pa.Table], _Divided], changes: pa.Table) -> _Divided:
        """Return what a function makes of a batch of changes, which names a key that two rows have."""
        try:
            return divide(changes)
        except ValueError as error:
            message = f"two rows of the result have the key {error}, so one of them would be lost"
            hint = "write a key that identifies the rows of the result"
            raise MillraceError(Problem(message, hint, field="spec.sink.table.key")) from None


def table_messages(rows: Iterator[Row], live: LiveRows, changes: Changes, watermark: int) -> Iterator[Outgoing]:
    """Yield the messages of a batch: its rows, and tombstones for rows no longer admitted and for expired rows.

    Args:
        rows: the batch's results.
        live: the rows of the table before the batch.
        changes: receives the changes that the batch makes to ``live``.
        watermark: in milliseconds since 1970; a row whose window it has already passed is sent and then expires.
    """
    for key, value, end in rows:
        assert key is not None
        if value is not None:
            changes[key] = end
            yield Outgoing(key, value)
        elif key in live:
            changes[key] = None
            yield Outgoing(key, None)
    for key in live.expired(changes, watermark * 1000):
        changes[key] = None
        yield Outgoing(key, None)


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
    latest_error = KafkaError(KafkaError._TIMED_OUT)
    last_progress = time.monotonic()
    while unread:
        for message in consume(consumer, 10_000, 1.0):
            error = message.error()
            if error is None:
                last_progress = time.monotonic()
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                last_progress = time.monotonic()
                unread.discard(Partition(message.topic() or "", message.partition() or 0))
            elif is_transient(error):
                latest_error = error
            else:
                raise kafka_problem(error, doing, topic.connection)
        if unread and time.monotonic() - last_progress > PATIENCE:
            raise kafka_problem(latest_error, doing, topic.connection)


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
    """Return the watermark, in microseconds since 1970, that a row expires at, from the window's value in a key."""
    if value is None:
        return NO_END
    return micros_of(value["end"] if window.part == "window" else value) + window.after
