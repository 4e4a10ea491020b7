"""The sink that maintains a table of results in a compacted Kafka topic: the newest message of a key is its row.

An update of a group replaces its row. A tombstone, a message without a value, retracts a row in two cases. First, when
HAVING no longer admits the group. Second, under OnUpdate, when the watermark has passed the end of the row's window:
Spark then drops the window's state, and no update can follow. Under OnWindowClose rows are final and stay.

The driver has the keys of the table's rows on its disk (``live_rows``). A batch that runs again therefore sends the
same messages, and a group that was never in the table needs no tombstone. Results come in parts (``table_results``), so
that memory does not grow with a batch; look-ups get the parts of a batch if these are few, and else read the topic.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Message
from pyspark.sql import DataFrame

from millrace_jobs.kafka.cluster import KafkaCluster
from millrace_jobs.kafka.errors import PATIENCE
from millrace_jobs.lookups.history import NO_TIMES, HistoryTimes
from millrace_jobs.sinks.base import LastBatch, ResultBatch, ResultKeys, WindowColumn
from millrace_jobs.sinks.kafka.live_rows import LiveRows
from millrace_jobs.sinks.kafka.messages import NO_END, fetched_rows
from millrace_jobs.sinks.kafka.producer import Outgoing
from millrace_jobs.sinks.kafka.sink import KafkaSink, TaskWrites
from millrace_jobs.sinks.kafka.table_reading import read_messages
from millrace_jobs.sinks.kafka.table_results import KeptParts, TableHistory, TablePart, TableResults, with_starts
from millrace_jobs.sinks.kafka.table_view import MOST_PENDING, PendingBatch, TableView
from millrace_jobs.sinks.kafka.topic import COMPACTED, LastWritten, TableOrigin, TargetTopic, TopicSettings, origin_of
from millrace_jobs.time_texts import micros_of

MOST_REMOVED = 500_000
"""Most rows that a batch removes from the view one by one, at 220 bytes of memory each; of more, it is read again."""

_PREFETCH = {
    "queued.min.messages": 10_000,
    "queued.max.messages.kbytes": 4_096,
    "fetch.message.max.bytes": 128 << 10,  # compressed, of each partition
    "fetch.max.bytes": 1 << 20,
    "fetch.queue.backoff.ms": 5,  # a full queue is filled again at once, not after a second
}
"""Client options for reading a table, where users set no others: a small message takes several times its size."""

_TOKEN, _TOKEN_BITS = "copy", 48  # a JSON number has 53
_NO_KEYS = pa.chunked_array([], pa.string())
_ROWS = pa.schema([("key", pa.string()), ("value", pa.string()), ("end", pa.int64())])
_NO_ROWS = pa.Table.from_batches([], _ROWS)  # ``empty_table`` would import pandas, for which each start would wait


class TableSink(KafkaSink):
    """A sink that upserts rows by key, and retracts rows by tombstones; earlier versions go to their own topic.

    ``folder`` is where the keys of a table whose rows can go stay between two runs, on a local disk.
    """

    def __init__(
        self,
        topic: TargetTopic,
        keys: ResultKeys,
        query: str,
        checkpoint_id: str,
        view: TableView | None = None,
        history: TableHistory | None = None,
        folder: Path | None = None,
        tasks: TaskWrites = TaskWrites(),  # noqa: B008 - it never changes
        *,
        jumps: bool = True,
    ) -> None:
        self._results = TableResults(keys)
        other = None if history is None else history.topic
        super().__init__(topic, keys, query, checkpoint_id, tasks, other, jumps=jumps)
        self._live = LiveRows(folder) if keys.rows_can_go else None
        self._view, self._history, self._times = view, history, NO_TIMES

    def prepare(self, last: LastBatch) -> None:
        """Take over the topic's transactions, and have the local copies of the table continued or built from it."""
        if self._history is not None:
            self._history.check()
        super().prepare(last)
        noted = self._transactions.noted
        self._times = HistoryTimes(noted.get("since"), noted.get("final"))
        group, window = self._transactions.id, self._keys.window
        written = LastWritten(self._transactions.last, noted.get(_TOKEN))
        origin = origin_of(self._topic, group, None if window is None else asdict(window))
        if self._view is not None and self._in_part is None:
            self._rebuild(self._view, written, origin)
        if self._live is not None and not self._live.resume(origin, written):
            self._live.rebuild(origin, written, read_changes(self._topic, group, window))

    def _rebuild(self, view: TableView, written: LastWritten, origin: TableOrigin) -> None:
        topics = [self._topic, *([self._history.topic] if self._history is not None else [])]
        view.rebuild(topics, self._transactions.id, written, self._times, origin if self._history is None else None)

    def _compute(self, results: DataFrame, batch: ResultBatch) -> int:
        rows = super()._compute(results, batch)
        if self._view is not None and batch.number == self._in_part:  # until now, the topic had a part of it
            self._rebuild(self._view, LastWritten(batch.number), origin_of(self._topic, self._transactions.id))
        return rows

    def close(self) -> None:
        """Close the local copies and the producer."""
        if self._view is not None:
            self._view.close()
        if self._live is not None:
            self._live.close()
        super().close()

    def _suitable_settings(self) -> TopicSettings | None:
        settings = self._topic.settings(create_with=COMPACTED)
        if settings is None:
            message = f"this user may not see whether topic {self._topic.name} is compacted, as a table has to be"
            raise self._topic.problem(message, "allow it to describe the topic's configs")
        if not settings.compacted:
            message = f"topic {self._topic.name} is not compacted: as a table it would lose rows, and grow for ever"
            raise self._topic.problem(message, f"change that: {self._topic.alter_command('cleanup.policy=compact')}")
        return settings

    def _division(self) -> Callable[[DataFrame], DataFrame]:
        return self._results.divided

    def _write(self, fetched: Iterable[pa.Table], batch: ResultBatch) -> int:
        written, times = LastWritten(batch.number, secrets.randbits(_TOKEN_BITS)), self._times
        noted: dict[str, Any] = {_TOKEN: written.token}
        if self._history is not None:
            times = self._history.times(batch.watermark * 1000 or None, times)
            noted |= times._asdict()
        kept, rows = KeptParts(0 if self._view is None else MOST_PENDING), 0

        def parts() -> Iterator[TablePart]:
            nonlocal rows
            for part in map(self._results.part_of, fetched):
                rows += part.rows.num_rows - (part.rows.column("value").null_count if self._keys.retracts else 0)
                kept.add(part)
                yield part

        self._transactions.write(batch, self._messages(parts(), written, batch.watermark), noted)
        self._times = times
        if self._view is not None:
            self._show(self._view, kept.parts, written)
        return rows

    def _messages(self, parts: Iterable[TablePart], written: LastWritten, watermark: int) -> Iterator[Outgoing]:
        """Yield the messages of a batch; after the last one, the copy of keys has the batch."""
        if self._live is not None:
            self._live.begin()
        for part in parts:
            rows = fetched_rows(part.rows)
            sent = (Outgoing(key, value) for key, value, _ in rows) if self._live is None else self._live.change(rows)
            if part.earlier is None or self._history is None:
                yield from sent
            else:
                yield from with_starts(sent, part.rows)
                yield from self._history.messages(part.earlier)
        if self._live is not None:
            yield from self._live.finish(written, watermark)

    def _show(self, view: TableView, parts: Sequence[TablePart] | None, written: LastWritten) -> None:
        """Have look-ups show a batch: by its parts, or from the topic if these are None or very many rows go."""
        removed = _NO_KEYS if self._live is None else self._live.removed(MOST_REMOVED)
        if parts is None or removed is None:
            view.read_again(written, self._times)
            return
        rows = pa.concat_tables([part.rows for part in parts] or [_NO_ROWS]).drop_columns(["end"])
        versions = [part.earlier for part in parts if part.earlier is not None]
        earlier = pa.concat_tables(versions) if versions else None
        view.offer(PendingBatch(written, self._times, rows, removed, earlier))


def read_changes(topic: TargetTopic, group: str, window: WindowColumn | None) -> Iterator[tuple[str, int | None]]:
    """Yield the key of each committed message of a table up to its current end, with the end of its window.

    The end is in microseconds since 1970, and None for a tombstone.

    Args:
        topic: the topic of the table.
        group: a consumer group that this user may use; no offsets are committed.
        window: the key column that determines the window of a row; None if rows do not expire.

    Raises MillraceError if the topic cannot be read, or has messages that are not rows of such a table.
    """
    partitions = KafkaCluster(topic.connection).partitions([topic.name], None)
    polls = read_messages(
        topic,
        group,
        partitions,
        reading=f"reading the table in topic {topic.name}",
        poll_seconds=1.0,
        patience=PATIENCE,
        options=_PREFETCH,
    )
    with closing(polls):
        for messages in polls:
            for message in messages:
                yield _row(message, window, topic)


def _row(message: Message, window: WindowColumn | None, topic: TargetTopic) -> tuple[str, int | None]:
    """Return the key of a message and the end of its window, or None in place of the end for a tombstone."""
    try:
        key, end = message.key().decode(), NO_END  # type: ignore[union-attr]
        if window is not None and (value := json.loads(key)[window.name]) is not None:
            end = micros_of(value["end"] if window.part == "window" else value) + window.after
    except (AttributeError, KeyError, TypeError, ValueError):
        place = f"partition {message.partition()}, offset {message.offset()}"
        problem = f"topic {topic.name} holds a message that is no row of this table: {place}"
        raise topic.problem(problem, "give the table a topic of its own") from None
    return key, None if message.value() is None else end
