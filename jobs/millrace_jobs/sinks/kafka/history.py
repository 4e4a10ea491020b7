"""Versions of a table's rows as messages: the newest in the topic of the table, earlier ones in that of its history.

A message of the table says in a header from when its row is valid. A message of the history is a version that is not
valid any more: it has the key and the value that it had in the table, and both ends of its period in headers. Without a
value, it takes back the version of its key that began then, because records that came out of order have changed it.
All messages of a key are in one partition of each topic, and so in the order in which they were written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from millrace_jobs.changes import FOREVER, FROM, TO, WEIGHT, net
from millrace_jobs.kafka.headers import VALID_FROM, VALID_TO
from millrace_jobs.lookups.history import HistoryTimes
from millrace_jobs.sinks.kafka.messages import added_once
from millrace_jobs.sinks.kafka.topic import TargetTopic
from millrace_jobs.sinks.kafka.transactions import Headers, Outgoing

_MILLISECONDS = 1_000
_LONG = 7 * 24 * 3600 * 1000
"""Retention of a topic, in milliseconds, that outlives most pauses of a source; it is Kafka's default."""


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

        Raises:
            MillraceError: the topic does not exist, or Kafka could remove versions that are still to be kept.
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

    Raises:
        ValueError: two rows have the same key at the same time; the text is the key.
    """
    changes = net(fetched)
    is_newest = pc.equal(changes.column(TO), FOREVER)
    earlier = changes.filter(pc.invert(is_newest)).select(["key", "value", FROM, TO, WEIGHT])
    added = added_once(earlier, ["key", FROM])
    removed = earlier.filter(pc.less(earlier.column(WEIGHT), 0)).group_by(["key", FROM]).aggregate([])
    gone = removed.join(added.select(["key", FROM]), ["key", FROM], join_type="left anti")
    nothing = (pa.nulls(gone.num_rows, added.schema.field(name).type) for name in ("value", TO))
    value, end = nothing
    tombstones = pa.table([gone.column("key"), value, gone.column(FROM), end], schema=added.schema)
    return changes.filter(is_newest).drop_columns([TO]), pa.concat_tables([tombstones, added])


def with_starts(messages: Iterable[Outgoing], newest: pa.Table) -> Iterator[Outgoing]:
    """Yield the messages of a table's newest rows, which are ``newest``, with the starts of their periods."""
    starts = dict(zip(newest.column("key").to_pylist(), newest.column(FROM).to_pylist(), strict=True))
    for message in messages:
        yield message if message.value is None else message._replace(headers=_since(starts[message.key]))


def _since(start: int) -> Sequence[tuple[str, bytes]]:
    return [(VALID_FROM, b"%d" % start)]
