"""The Kafka source: exactly the committed records, cut into even slices whatever the skew between partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from heapq import nlargest
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from confluent_kafka import Message
from numpy.typing import NDArray

from millrace_api.errors import MissingInputError
from millrace_jobs.kafka.cluster import KafkaCluster, Partition
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.places import Place
from millrace_jobs.sources.base import (
    CHANGED,
    CorruptRecords,
    OnArrival,
    Position,
    Rejected,
    Slice,
    Source,
    ignore_arrivals,
)
from millrace_jobs.sources.formats.messages import MessageDecoder
from millrace_jobs.sources.kafka.backlog import BacklogCutter, RecordSize
from millrace_jobs.sources.kafka.bad_messages import BadMessageHandler
from millrace_jobs.sources.kafka.message_records import (
    METADATA,
    NEAR,
    ChangeDecoder,
    TombstoneDecoder,
    arrivals,
    metadata_columns,
    with_changes,
)
from millrace_jobs.sources.kafka.offsets import (
    AvailableOffsets,
    KafkaSlice,
    KafkaStateFile,
    OffsetRange,
    Offsets,
    Subscription,
    cut_ranges,
    of_position,
    to_position,
)
from millrace_jobs.sources.kafka.range_reader import RangeReader, offset_of, partition_of

LONGEST_LAGS = 8
"""Most partitions whose lags are reported: enough to see a few that are behind the others, in little room."""


class TableColumns(NamedTuple):
    """What reading a topic as a table needs: its primary key, its event-time column, and how a TIMESTAMP is written."""

    keys: tuple[str, ...]
    time: str
    timestamp_format: str


class KafkaSource(Source):
    """The records of Kafka topics, as a ``read_committed`` consumer sees them.

    The position is ``{topic: {partition: offset}}``. Decisions made when the query began (where it starts, which
    topics it reads, where it stops) are stored in ``state``, so that every run on one checkpoint sees the same records.
    All counts are counts of offsets; some offsets hold no record, after transactions and compaction.

    A message without a value is a record only with the format ``raw``. In a ``table`` it deletes the row of its key.
    A ``ChangeDecoder`` reads the messages of a table in Debezium's format, those without a value among them.

    Kafka is not contacted before ``check_server``, ``initial`` or ``latest`` is called.
    """

    def __init__(
        self,
        name: str,
        connection: Connection,
        subscription: Subscription,
        decoder: MessageDecoder | ChangeDecoder,
        state: Place,
        *,
        include_metadata: bool = False,
        max_records_per_batch: int | None = None,
        max_bytes_per_batch: int | None = None,
        corrupt: CorruptRecords | None = None,
        table: TableColumns | None = None,
    ) -> None:
        self.name = name
        schema = pa.schema([*decoder.schema, *(METADATA if include_metadata else ())])
        self.schema = schema if table is None else pa.schema([*schema, *CHANGED])
        self._tombstones = None if table is None else TombstoneDecoder(schema, *table)
        self.connection = connection
        self.subscription = subscription
        self._decoder = decoder
        self._state_file = KafkaStateFile(state)
        self._include_metadata = include_metadata
        self.max_records = max_records_per_batch
        self.max_bytes = max_bytes_per_batch
        self.corrupt = corrupt or CorruptRecords()
        self._ends: Offsets | None = None
        self._all: Offsets | None = None
        self._turn = 0

    @cached_property
    def _cluster(self) -> KafkaCluster:
        return KafkaCluster(self.connection, answered=self._state_file.read() is not None)

    @cached_property
    def _available(self) -> AvailableOffsets:
        return AvailableOffsets(self.name, self.subscription, self._cluster, self._state_file)

    @cached_property
    def _cutter(self) -> BacklogCutter:
        return BacklogCutter(self._cluster.at)

    @cached_property
    def _record_size(self) -> RecordSize:
        return RecordSize(self.name, self.connection)

    def check_server(self) -> None:
        """Check that the topics exist, that of dead letters too, and the partitions that the query names."""
        cluster = KafkaCluster(self.connection)
        offsets = AvailableOffsets(self.name, self.subscription, cluster, self._state_file)
        try:
            offsets.check()
        except MissingInputError as error:
            field = f"spec.sources.{self.name}.kafka"
            raise MissingInputError(*(replace(each, field=field) for each in error.problems)) from error
        if self.corrupt.topic:
            cluster.require_topic_to_write(self.corrupt.topic, f"spec.sources.{self.name}.corruptRecords.topic")

    def initial(self) -> Position:
        """Return where a new query starts, in every partition that exists at that time."""
        self._available.settle()
        return to_position(self._available.first)

    def latest(self, start: Position, *, everything: bool, most: int | None = None) -> Position:
        """Return how far committed records and limits let the batch go; with ``everything``, to the ends first found.

        New partitions and topics are read from their beginning. A batch that cannot hold the whole backlog ends at
        the same time in every partition (``BacklogCutter``).
        """
        at = of_position(start)
        ends = self.ends(at, everything=everything)
        begins = {p: self.begin(p, at) for p in ends}
        begins = {p: begin for p, begin in begins.items() if ends[p] > begin}
        if not begins:
            return start
        waiting = {p: ends[p] - begin for p, begin in begins.items()}
        limits = [limit for limit in (most, self.max_records) if limit is not None]
        if self.max_bytes is not None:
            limits.append(round(self.max_bytes / self._record_size.estimate(begins, waiting)))
        limit = max(min(limits), 1) if limits else None
        if limit is None or sum(waiting.values()) <= limit:
            return to_position(at | {p: ends[p] for p in begins})
        self._turn += limit
        return to_position(at | self._cutter.cut(begins, {p: ends[p] for p in begins}, limit, self._turn))

    def ends(self, at: Offsets, *, everything: bool = False) -> Offsets:
        """Return how far each partition can be read now, given that it was read up to ``at``; see ``latest``.

        Raises MillraceError if records from there on are gone, or Kafka fails.
        """
        ends = self._all if self._all is not None else self._available.ends(at)
        if everything:
            self._all = ends
        self._ends = ends
        return ends

    @property
    def first(self) -> Offsets:
        """The offset at which each partition that was found begins for this query."""
        return self._available.first

    @property
    def ending(self) -> Offsets | None:
        """The offset at which each partition stops; None if there is no end, or if it is not known yet."""
        return self._available.ending

    def exhausted(self, position: Position) -> bool:
        """Return whether the query has reached the offsets at which it stops."""
        if not self.subscription.bounded:
            return False
        state = self._state_file.read()
        if state is None or state.ending is None:
            return False
        at = state.first | of_position(position)
        return all(at[partition] >= end for partition, end in state.ending.items())

    def lag(self, position: Position) -> int:
        """Return the number of offsets beyond ``position``, as of the last call of ``latest``."""
        return sum(self._lags(position).values())

    def longest_lags(self, position: Position) -> Mapping[str, int]:
        """Return the number of offsets beyond ``position`` in the partitions that have the most, as in ``topic-3``."""
        longest = nlargest(LONGEST_LAGS, ((lag, p) for p, lag in self._lags(position).items() if lag))
        return {f"{p.topic}-{p.number}": lag for lag, p in longest}

    def _lags(self, position: Position) -> Mapping[Partition, int]:
        at = of_position(position)
        ends = self._ends if self._ends is not None else self._available.ends(at)
        return {partition: max(end - self.begin(partition, at), 0) for partition, end in ends.items()}

    def most_records(self, start: Position, end: Position) -> int:
        """Return the number of offsets in ``(start, end]``."""
        return sum(map(len, self._ranges(start, end)))

    def slices(self, start: Position, end: Position, replicas: int) -> list[Slice]:
        """Cut the offsets of all partitions, laid end to end, into slices that differ by at most one offset."""
        return list(cut_ranges(self._ranges(start, end), replicas))

    def _ranges(self, start: Position, end: Position) -> list[OffsetRange]:
        at, stop = of_position(start), of_position(end)
        return [OffsetRange(p, self.begin(p, at), stop[p]) for p in sorted(stop) if stop[p] > self.begin(p, at)]

    def read(
        self, piece: Slice, label: str, on_arrival: OnArrival = ignore_arrivals
    ) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the records of the slice, partition by partition."""
        assert isinstance(piece, KafkaSlice)
        with (
            BadMessageHandler(self.name, self.corrupt, label, self.connection) as rejects,
            RangeReader(self.name, self.connection, piece.ranges) as reader,
        ):
            for block in reader.blocks():
                on_arrival(*arrivals(block))
                yield from (records for records in self._records(block, rejects) if records.num_rows)
        if rejects.records:
            yield Rejected(rejects.records)

    def _records(self, messages: Sequence[Message], rejects: BadMessageHandler) -> Iterator[pa.RecordBatch]:
        """Yield the records of a block of messages, for a table those that delete rows after the others."""
        if isinstance(self._decoder, ChangeDecoder):
            yield from self._decoder.decode(messages, rejects.reject, self._preceding)
            return
        if self._tombstones is None:
            yield self.decode(messages, rejects)[0]
            return
        given = [message for message in messages if message.value() is not None]
        records, origins = self.decode(given, rejects)
        yield with_changes(records, [given[origin] for origin in origins])
        if len(given) < len(messages):
            yield self._tombstones.decode([each for each in messages if each.value() is None], rejects.reject)

    def _preceding(self, message: Message) -> list[Message]:
        """Return the messages in the ``NEAR`` offsets before a message, as far as they are still in its partition."""
        end = offset_of(message)
        part = OffsetRange(partition_of(message), max(end - NEAR, 0), end)
        if not len(part):
            return []
        with RangeReader(self.name, self.connection, [part], may_be_gone=True) as reader:
            return [each for block in reader.blocks() for each in block]

    def decode(
        self, messages: Sequence[Message], rejects: BadMessageHandler
    ) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
        """Return the records in the values of messages, and for each record the index of its message."""
        assert not isinstance(self._decoder, ChangeDecoder)
        records, origins = self._decoder.decode(
            [message.value() for message in messages], lambda index, reason: rejects.reject(messages[index], reason)
        )
        if not self._include_metadata:
            return records, origins
        metadata = pa.RecordBatch.from_arrays(metadata_columns(messages), schema=METADATA)
        if len(origins) < len(messages):
            metadata = metadata.take(pa.array(origins))
        schema = pa.schema([*records.schema, *METADATA])
        return pa.RecordBatch.from_arrays([*records.columns, *metadata.columns], schema=schema), origins

    def begin(self, partition: Partition, at: Offsets) -> int:
        """Return where to continue in a partition; one that is not in the position yet starts at its first offset."""
        return at[partition] if partition in at else self._available.first[partition]
