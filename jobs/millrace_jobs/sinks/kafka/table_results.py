"""The results of a batch of a table: the newest row of each key, and what becomes of earlier versions.

Results that are changes are netted first: of all changes of a key, at most one row is left. Few results are netted in
the driver. Large ones are divided by key, and netted by tasks, so that the driver gets nothing but what it writes, part
by part.

Earlier versions go to a topic of their own. A message of the table says in a header from when its row is valid. A
message of the history is a version that is not valid any more: it has the key and the value that it had in the table,
and both ends of its period in headers. Without a value, it takes back the version of its key that began then, because
records that came out of order have changed it. All messages of a key are in one partition of each topic, and so in the
order in which they were written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.changes import FOREVER, FROM, TO, WEIGHT, net
from millrace_jobs.kafka.headers import VALID_FROM, VALID_TO
from millrace_jobs.lookups.history import HistoryTimes
from millrace_jobs.sinks.base import ResultKeys
from millrace_jobs.sinks.fetching import PARTS
from millrace_jobs.sinks.kafka.messages import added_once, netted
from millrace_jobs.sinks.kafka.producer import Headers, Outgoing
from millrace_jobs.sinks.kafka.topic import TargetTopic

_ROW = {"key": pa.string(), "value": pa.string(), "end": pa.int64()}
_VERSION = {FROM: pa.int64(), TO: pa.int64()}
_TWICE = {"twice": pa.string()}
_CHUNK = 10_000

_MILLISECONDS = 1_000
_LONG = 7 * 24 * 3600 * 1000
"""Retention of a topic, in milliseconds, that outlives most pauses of a source; it is Kafka's default."""


class TablePart(NamedTuple):
    """A part of the results of a batch, with all changes of its keys.

    ``rows`` are the newest rows, with the columns ``key``, ``value`` and ``end``, and FROM if the table has a history;
    without a value for one that the table must not have. ``earlier`` are changes of earlier versions, as
    ``split_newest`` returns them; None without a history.
    """

    rows: pa.Table
    earlier: pa.Table | None = None

    @property
    def bytes(self) -> int:
        """The approximate memory that it takes."""
        return int(self.rows.nbytes) + (0 if self.earlier is None else int(self.earlier.nbytes))


class KeptParts:
    """Parts that are kept while all of them take no more than ``most`` bytes of memory."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = 0
        self.parts: list[TablePart] | None = []
        """The parts; None once they are too large."""

    def add(self, part: TablePart) -> None:
        """Keep a part with the others, or none of them if they are too large with it."""
        self._bytes += part.bytes
        if self._bytes > self._most:
            self.parts = None
        elif self.parts is not None:
            self.parts.append(part)


@dataclass(frozen=True)
class TableResults:
    """The results of a table with these keys, in the columns of ``messages.encoded``."""

    keys: ResultKeys

    def divided(self, results: DataFrame) -> DataFrame:
        """Divide large results by key, and have them netted by tasks."""
        by_key = results.repartition(PARTS, "key")
        return by_key.mapInArrow(self._net_of_task, self._columns) if self.keys.weighted else by_key

    def part_of(self, fetched: pa.Table) -> TablePart:
        """Return fetched results as a part: all results of a batch, or some of ``divided``.

        Raises MillraceError if two rows have the same key.
        """
        if WEIGHT in fetched.schema.names:
            try:
                return self._net(fetched)
            except ValueError as error:
                raise _twice(str(error)) from None
        if not self.keys.weighted:
            return TablePart(fetched)
        found = fetched.column("twice").drop_null()
        if len(found):
            raise _twice(found[0].as_py())
        if not self.keys.versioned:
            return TablePart(fetched.select(list(_ROW)))
        is_newest = fetched.column("end").is_valid()
        newest = fetched.filter(is_newest).select([*_ROW, FROM])
        return TablePart(newest, fetched.filter(pc.invert(is_newest)).select(["key", "value", FROM, TO]))

    def _net(self, changes: pa.Table) -> TablePart:
        """Return the part of changes that are all of their keys. Raises ValueError as ``netted`` does."""
        newest, earlier = split_newest(changes) if self.keys.versioned else (changes, None)
        return TablePart(netted(newest), earlier)

    def _net_of_task(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what the changes of a partition leave, with the columns of ``_columns``; a NULL end is for a version.

        A key that two rows have is a result, too: the driver knows what it is called in which output.
        """
        changes = list(batches)
        if not changes:
            return
        try:
            part = self._net(pa.Table.from_batches(changes))
        except ValueError as error:
            yield from self._filled(pa.table({"twice": [str(error)]}))
            return
        yield from self._filled(part.rows)
        if part.earlier is not None:
            yield from self._filled(part.earlier)

    def _filled(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield a table with all columns of ``_schema``, those that it has not without values."""
        columns = [
            table.column(field.name) if field.name in table.schema.names else pa.nulls(table.num_rows, field.type)
            for field in self._schema
        ]
        yield from pa.table(columns, schema=self._schema).to_batches(max_chunksize=_CHUNK)

    @property
    def _schema(self) -> pa.Schema:
        return pa.schema(_ROW | (_VERSION if self.keys.versioned else {}) | _TWICE)

    @property
    def _columns(self) -> str:
        names = {pa.string(): "STRING", pa.int64(): "BIGINT"}
        return ", ".join(f"`{field.name}` {names[field.type]}" for field in self._schema)


def _twice(key: str) -> MillraceError:
    message = f"two rows of the result have the key {key}, so one of them would be lost"
    hint = "write a key that identifies the rows of the result"
    return MillraceError(Problem(message, hint, field="spec.sink.table.key"))


@dataclass(frozen=True)
class TableHistory:
    """The topic of a table's earlier versions.

    They are kept until they have ended ``retention`` before the time before which nothing changes, which is the
    watermark less ``lag``; both are in microseconds.
    """

    topic: TargetTopic
    retention: int
    lag: int = 0

    def times(self, watermark: int | None, before: HistoryTimes) -> HistoryTimes:
        """Return the times that the history answers for after a batch with this watermark, in microseconds.

        A history never goes further back than it did before, even if its retention is longer than before.
        """
        if watermark is None:
            return before
        final = watermark - self.lag
        if before.final is not None:
            final = max(final, before.final)
        since = final - self.retention
        return HistoryTimes(since if before.since is None else max(since, before.since), final)

    def check(self) -> None:
        """Check the settings of the topic.

        Raises MillraceError if the topic does not exist, or Kafka could remove versions that are still to be kept.
        """
        least = -(-self.retention // _MILLISECONDS)
        long = max(2 * least, _LONG)
        settings = self.topic.settings(create_with=f" --config cleanup.policy=delete --config retention.ms={long}")
        if settings is None:
            return
        if settings.compacted:
            message = f"topic {self.topic.name} is compacted: of a history it would keep one version of each row"
            raise self.topic.problem(message, f"change that: {self.topic.alter_command('cleanup.policy=delete')}")
        if settings.retention is not None and settings.retention < least:
            message = f"topic {self.topic.name} keeps messages for {settings.retention} ms, of a history of {least} ms"
            hint = f"let it keep them for longer: {self.topic.alter_command(f'retention.ms={long}')}"
            raise self.topic.problem(message, hint)
        if settings.limited:
            message = f"topic {self.topic.name} drops messages by size, whatever the retention of the history"
            raise self.topic.problem(message, f"change that: {self.topic.alter_command('retention.bytes=-1')}")

    def messages(self, versions: pa.Table) -> Iterator[Outgoing]:
        """Yield the messages of changes as ``split_newest`` returns them."""
        for batch in versions.to_batches(max_chunksize=10_000):
            for key, value, start, end in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                headers: Headers = [(VALID_FROM, b"%d" % start)]
                if end is not None:
                    headers.append((VALID_TO, b"%d" % end))
                yield Outgoing(key, value, headers, self.topic.name)


def split_newest(fetched: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Divide a batch of changes of all versions, as ``messages.encoded`` returns them.

    Returns:
        The changes of the newest rows, with the starts of their periods; and those of earlier versions, one for each
        key and start, with the columns ``key``, ``value``, FROM and TO. Value and end are NULL if it was removed.

    Raises ValueError if two rows have the same key at the same time; the text is the key.
    """
    changes = net(fetched)
    is_newest = pc.equal(changes.column(TO), FOREVER)
    earlier = changes.filter(pc.invert(is_newest)).select(["key", "value", FROM, TO, WEIGHT])
    added = added_once(earlier, ["key", FROM])
    removed = earlier.filter(pc.less(earlier.column(WEIGHT), 0)).group_by(["key", FROM]).aggregate([])
    gone = removed.join(added.select(["key", FROM]), ["key", FROM], join_type="left anti")
    value, end = (pa.nulls(gone.num_rows, added.schema.field(name).type) for name in ("value", TO))
    tombstones = pa.table([gone.column("key"), value, gone.column(FROM), end], schema=added.schema)
    return changes.filter(is_newest).drop_columns([TO]), pa.concat_tables([tombstones, added])


def with_starts(messages: Iterable[Outgoing], newest: pa.Table) -> Iterator[Outgoing]:
    """Yield the messages of a table's newest rows, which are ``newest``, with the starts of their periods."""
    starts = dict(zip(newest.column("key").to_pylist(), newest.column(FROM).to_pylist(), strict=True))
    for message in messages:
        yield (
            message if message.value is None else message._replace(headers=[(VALID_FROM, b"%d" % starts[message.key])])
        )
