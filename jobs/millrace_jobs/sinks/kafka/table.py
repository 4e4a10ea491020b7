"""The sink that keeps results as a table in a compacted Kafka topic: the newest message of a key is its row.

An update of a group replaces its row. A tombstone, a message without a value, retracts a row in two cases. First, when
HAVING no longer admits the group. Second, under OnUpdate, when the watermark has passed the end of the row's window:
Spark then drops the window's state, and no update can follow. Under OnWindowClose rows are final and stay.

The table itself is the record of which rows it has (``LiveRows``). A batch that runs again therefore sends the same
messages, and a group that was never in the table needs no tombstone.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from millrace_jobs.sinks.base import LastBatch, ResultBatch, ResultKeys
from millrace_jobs.sinks.kafka.live_rows import Changes, LiveRows, read_live_rows
from millrace_jobs.sinks.kafka.messages import Row, fetched_rows
from millrace_jobs.sinks.kafka.sink import KafkaSink
from millrace_jobs.sinks.kafka.topic import TargetTopic, TopicSettings
from millrace_jobs.sinks.kafka.transactions import KeyValue


class TableSink(KafkaSink):
    """A sink that upserts rows by key, and retracts rows by tombstones."""

    def __init__(self, topic: TargetTopic, keys: ResultKeys, query: str, checkpoint_id: str) -> None:
        super().__init__(topic, keys, query, checkpoint_id)
        self._live = LiveRows()

    def prepare(self, last: LastBatch) -> None:
        """Take over the topic's transactions, and read which rows the table has."""
        super().prepare(last)
        if self._rows_go:
            self._live = read_live_rows(self._topic, self._transactions.id, self._keys.window)

    @property
    def _rows_go(self) -> bool:
        return self._keys.retracts or self._keys.window is not None

    def _suitable(self) -> TopicSettings | None:
        settings = self._topic.settings(create_with=" --config cleanup.policy=compact")
        if settings is None:
            message = f"this user may not see whether topic {self._topic.name} is compacted, as a table has to be"
            raise self._topic.problem(message, "allow it to describe the topic's configs")
        if not settings.compacted:
            message = f"topic {self._topic.name} is not compacted: as a table it would lose rows, and grow for ever"
            raise self._topic.problem(message, self._topic.alter("cleanup.policy=compact"))
        return settings

    def _write(self, fetched: pa.Table, batch: ResultBatch) -> int:
        if not self._rows_go:
            return super()._write(fetched, batch)
        changes: Changes = {}
        self._transactions.write(batch, changing(fetched_rows(fetched), self._live, changes, batch.watermark))
        self._live.apply(changes)
        return sum(value.is_valid for value in fetched.column("value")) if self._keys.retracts else fetched.num_rows


def changing(rows: Iterator[Row], live: LiveRows, changes: Changes, watermark: int) -> Iterator[KeyValue]:
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
            yield key, value
        elif key in live:
            changes[key] = None
            yield key, None
    for key in live.expired(changes, watermark * 1000):
        changes[key] = None
        yield key, None
