"""Messages as records of a table: their metadata as columns, tombstones, and changes in Debezium's format.

Each tombstone, a message without a value, deletes the row of its key. Debezium's messages are rows and deletes, each
from the time of its change on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import compress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message
from numpy.typing import NDArray

from millrace_api.model.tables import CHANGED_AT
from millrace_api.sql.time_formats import UNITS
from millrace_jobs.kafka.headers import WATERMARK
from millrace_jobs.sources.base import CHANGED, sampled
from millrace_jobs.sources.formats.column_types import TIMESTAMP, time_format
from millrace_jobs.sources.formats.debezium import EnvelopeDecoder, RowChanges, decode_changes
from millrace_jobs.sources.formats.messages import MessageDecoder, TextDecoder
from millrace_jobs.sources.kafka.range_reader import partition_of

METADATA = pa.schema(
    [
        ("_key", pa.binary()),
        ("_headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("_topic", pa.string()),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_timestamp", TIMESTAMP),
    ]
)
"""The columns about the message itself, NULL if a message has no key, headers or time."""

_EARLIEST, _LATEST = -62_135_596_800_000, 253_402_300_799_999
"""The first and last millisecond of the years 1 to 9999, since 1970; times in a wrong unit fall outside."""

_NUMBER = re.compile(rb"-?\d+")

Reject = Callable[[Message, str], None]
"""Handler that leaves out a message, for a reason, or raises, as the policy requires."""

_EMPTY = b'{"schema":null,"payload":null}'  # what old versions of Kafka Connect write for a message without a value
_BEFORE_ALL = 1  # a time before that of any change, in microseconds since 1970
_HINT = "write REPLICA IDENTITY FULL in the database, or name the columns of the message's key in table.keys"

NEAR = 16
"""Offsets before the messages of a partition in which the delete of a tombstone at their beginning is looked for.

The delete is one offset before its tombstone, unless markers of transactions or messages of other connectors are
between them.
"""

Preceding = Callable[[Message], Sequence[Message]]
"""Function that returns the messages in the ``NEAR`` offsets before a message in its partition, if they exist."""

Deleted = Mapping[bytes | None, bool]
"""Keys with a delete or a tombstone, and whether the last of these is a delete, whose tombstone is still to come."""


def metadata_columns(messages: Sequence[Message]) -> list[pa.Array]:
    """Return the columns of METADATA."""
    return [
        pa.array([message.key() for message in messages], pa.binary()),
        pa.array([message.headers() for message in messages], METADATA.field("_headers").type),
        pa.array([message.topic() for message in messages], pa.string()),
        pa.array([message.partition() for message in messages], pa.int32()),
        pa.array([message.offset() for message in messages], pa.int64()),
        timestamps([millis_of(message) for message in messages]),
    ]


def arrivals(messages: Sequence[Message]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the times of messages in µs since 1970, of a sample if they are many: see ``base.OnArrival``."""
    indexes, records = sampled(len(messages))
    millis = [millis_of(messages[index]) for index in indexes.tolist()]
    known = [place for place, time in enumerate(millis) if time is not None]
    return np.array([millis[place] for place in known], np.int64) * 1000, records[known]


def millis_of(message: Message) -> int | None:
    """Return a message's time in ms since 1970; None if it has none, or one outside the range of TIMESTAMP."""
    kind, time = message.timestamp()
    return time if kind != TIMESTAMP_NOT_AVAILABLE and _EARLIEST <= time <= _LATEST else None


def timestamps(millis: Sequence[int | None]) -> pa.Array:
    """Return a TIMESTAMP column of times in milliseconds since 1970."""
    return pa.array(millis, pa.int64()).cast(pa.timestamp("ms", tz="UTC")).cast(TIMESTAMP)


class TombstoneDecoder:
    """A decoder of tombstones to records with a key and an event time, and NULL in all other columns.

    The key of a message is a JSON object with the table's key columns, as the sink ``table`` writes it. For a table
    with one key column, it may also be the value of that column as text.

    The event time is that of the column ``time``, if the key or the metadata has this column. Otherwise it is the
    watermark of the query that wrote the tombstone, or else the time of the message. Such a watermark is an estimate:
    the row that the query removed can have a later time.

    Args:
        schema: columns of the records; those about the message itself have the names of METADATA.
        keys: the primary key of the table.
        time: the event-time column.
        timestamp_format: how a TIMESTAMP is written in a key.
    """

    def __init__(self, schema: pa.Schema, keys: Sequence[str], time: str, timestamp_format: str) -> None:
        self._schema = schema
        self._keys = pa.schema([schema.field(key) for key in keys if key not in METADATA.names])
        self._time = next(name for name in schema.names if name.lower() == time.lower())
        self._decoder = TextDecoder("json", self._keys, timestamp_format)
        first = self._keys.field(0) if self._keys.names else pa.field("", pa.null())
        kind, is_time = first.type, pa.types.is_timestamp(first.type)
        is_text = pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_date(kind)
        self._has_quotes = is_text or (is_time and time_format(first, timestamp_format) not in UNITS)

    def decode(self, messages: Sequence[Message], reject: Reject) -> pa.RecordBatch:
        """Return a record, with the columns of CHANGED, for each message that has a key and a time."""
        usable, texts = [], []
        for message in messages:
            try:
                texts.append(self._key_of(message))
                usable.append(message)
            except (ValueError, RecursionError) as error:
                reject(message, f"the tombstone deletes no row: {error}")
        if not self._keys.names:  # all of them are metadata
            return self._records(usable, pa.RecordBatch.from_arrays([], schema=self._keys))
        keys, origins = self._decoder.decode(
            texts, lambda index, reason: reject(usable[index], f"the key of the tombstone does not decode: {reason}")
        )
        return self._records([usable[origin] for origin in origins], keys)

    def _records(self, messages: Sequence[Message], keys: pa.RecordBatch) -> pa.RecordBatch:
        known = dict(zip(METADATA.names, metadata_columns(messages), strict=True))
        known |= dict(zip(keys.schema.names, keys.columns, strict=True))
        estimated = [False] * len(messages)
        if self._time not in known:
            watermarks = [_watermark(message) for message in messages]
            estimated = [watermark is not None for watermark in watermarks]
            times = zip(watermarks, map(millis_of, messages), strict=True)
            known[self._time] = timestamps([own if watermark is None else watermark for watermark, own in times])
        columns = [known.get(field.name, pa.nulls(len(messages), field.type)) for field in self._schema]
        records = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        return with_changes(records, messages, deleted=True, estimated=estimated)

    def _key_of(self, message: Message) -> bytes:
        """Return the key as a JSON object. Raises ValueError if it is not one of this table, or there is no time."""
        key = message.key()
        if key is None:
            raise ValueError("it has no key")
        # NULL in a key that has the time is the time of no row, as it is in any other column of the key
        own = self._time in self._keys.names or millis_of(message) is not None
        if not own and (self._time in METADATA.names or _watermark(message) is None):
            raise ValueError("it has no time")
        if not self._keys.names:
            return b"{}"
        if len(self._keys) == 1 and not key.lstrip().startswith(b"{"):
            value = json.dumps(key.decode()) if self._has_quotes else key.decode()
            return f"{{{json.dumps(self._keys.names[0])}: {value}}}".encode()
        found = json.loads(key)
        missing = [name for name in self._keys.names if not isinstance(found, dict) or name not in found]
        if missing:
            raise ValueError(f"its key has no {' and no '.join(missing)}")
        return key


def with_changes(
    records: pa.RecordBatch, messages: Sequence[Message], *, deleted: bool = False, estimated: Sequence[bool] = ()
) -> pa.RecordBatch:
    """Return the records of these messages with the columns of CHANGED."""
    none = [False] * len(messages)
    flags = [pa.array(each, pa.bool_()) for each in ([deleted] * len(messages), estimated or none)]
    offsets = pa.array([message.offset() for message in messages], pa.int64())
    schema = pa.schema([*records.schema, *CHANGED])
    return pa.RecordBatch.from_arrays([*records.columns, *flags, offsets], schema=schema)


def _watermark(message: Message) -> int | None:
    """Return the watermark of the query that wrote a message, in milliseconds since 1970; None without one."""
    text = dict(message.headers() or ()).get(WATERMARK)
    return int(text) if isinstance(text, bytes) and _NUMBER.fullmatch(text) else None


class ChangeDecoder:
    """A decoder of Debezium's messages to the records of a table, with the columns of CHANGED.

    A row is from ``after``, and the key of a delete from ``before``, or from the key of the message if ``before`` does
    not have it. A change of the key in a row deletes the row of the key before.

    A tombstone follows each delete, and repeats it without its time. It is left out, unless compaction has removed the
    delete; then it deletes what its key has by then. A connector that has crashed writes messages once more, behind
    newer ones, and a producer that does not keep the order may write a newer row between a delete and its tombstone: a
    delete still counts from its own time on, but its tombstone would delete the newer row.

    Args:
        columns: the declared columns.
        keys: the primary key of the table, of these columns.
        values: decoder of the envelope.
        message_keys: decoder of the messages' keys to the columns of the primary key.
        include_metadata: whether records have the columns about the message itself.
    """

    def __init__(
        self,
        columns: pa.Schema,
        keys: Sequence[str],
        values: EnvelopeDecoder,
        message_keys: MessageDecoder,
        *,
        include_metadata: bool = False,
    ) -> None:
        self.schema = columns.append(pa.field(CHANGED_AT, TIMESTAMP))
        self._columns = columns
        self._keys = list(keys)
        self._values = values
        self._message_keys = message_keys
        self._include_metadata = include_metadata

    def decode(
        self, messages: Sequence[Message], reject: Reject, preceding: Preceding = lambda _: ()
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of messages; those that are about no row have no values, and so are no rows.

        Args:
            messages: partition by partition, in the order of their offsets.
            reject: handler of bad messages.
            preceding: returns the messages just before one in its partition.
        """
        valued = [_has_value(message) for message in messages]
        given = list(compress(messages, valued))
        changes = self._changes(given, reject)
        origins = [given[origin] for origin in changes.origins]
        yield self._set(changes, origins)
        yield self._moved(changes, origins)
        yield from self._deleted(changes, origins, reject)
        if len(given) < len(messages):
            deletes = np.zeros(len(messages), np.bool_)
            deletes[np.flatnonzero(valued)[changes.origins[changes.deleted]]] = True
            lone = lone_tombstones(messages, valued, deletes, lambda first: self._deleted_in(preceding(first)))
            yield self._tombstones(lone, reject)

    def _changes(self, messages: Sequence[Message], reject: Reject) -> RowChanges:
        values = [message.value() or b"" for message in messages]
        return decode_changes(self._values, values, lambda index, reason: reject(messages[index], reason))

    def _deleted_in(self, messages: Sequence[Message]) -> Deleted:
        valued = np.array([_has_value(message) for message in messages], np.bool_)
        given = list(compress(messages, valued))
        changes = self._changes(given, lambda *_: None)  # a bad one was rejected where it was read itself
        deletes = set(np.flatnonzero(valued)[changes.origins[changes.deleted]].tolist())
        return {
            message.key(): place in deletes
            for place, message in enumerate(messages)
            if place in deletes or not valued[place]
        }

    def _set(self, changes: RowChanges, origins: Sequence[Message]) -> pa.RecordBatch:
        """Return the rows that are set, and what is about no row."""
        chosen = ~changes.deleted
        rows = changes.after.filter(pa.array(chosen))
        times = pc.if_else(pa.array(changes.skipped[chosen]), None, changes.times.filter(pa.array(chosen)))
        columns = [pc.if_else(pa.array(changes.skipped[chosen]), None, each) for each in rows.flatten()]
        return self._records(columns, times, list(compress(origins, chosen)))

    def _moved(self, changes: RowChanges, origins: Sequence[Message]) -> pa.RecordBatch:
        """Return the deletes of rows whose key has changed, as far as the message has the row before."""
        chosen = ~changes.deleted & ~changes.skipped & _has_keys(changes.before, self._keys)
        differ = np.zeros(len(chosen), np.bool_)
        for key in self._keys:
            earlier, now = (_column(rows, key) for rows in (changes.before, changes.after))
            differ |= pc.not_equal(earlier, now).fill_null(True).to_numpy(zero_copy_only=False)
        chosen &= differ
        rows = changes.before.filter(pa.array(chosen))
        times = changes.times.filter(pa.array(chosen))
        return self._deletes([_column(rows, key) for key in self._keys], times, list(compress(origins, chosen)))

    def _deleted(self, changes: RowChanges, origins: Sequence[Message], reject: Reject) -> Iterator[pa.RecordBatch]:
        has_keys = _has_keys(changes.before, self._keys)
        chosen = changes.deleted & has_keys
        rows, times = changes.before.filter(pa.array(chosen)), changes.times.filter(pa.array(chosen))
        yield self._deletes([_column(rows, key) for key in self._keys], times, list(compress(origins, chosen)))
        chosen = changes.deleted & ~has_keys
        keyless = list(compress(origins, chosen))
        keys, places = self._keys_of(keyless, "before has no key of the table, and ", reject)
        times = changes.times.filter(pa.array(chosen)).take(pa.array(places))
        yield self._deletes(keys.columns, times, [keyless[place] for place in places])

    def _tombstones(self, messages: Sequence[Message], reject: Reject) -> pa.RecordBatch:
        """Return tombstones as deletes at an estimated time, before all changes: their key's last one counts."""
        keys, places = self._keys_of(messages, "the tombstone deletes no row: ", reject)
        times = pa.array(np.full(len(places), _BEFORE_ALL)).cast(TIMESTAMP)
        return self._deletes(keys.columns, times, [messages[place] for place in places], estimated=True)

    def _keys_of(
        self, messages: Sequence[Message], prefix: str, reject: Reject
    ) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
        """Return the primary keys in the keys of messages, and the places of the messages that have one."""
        found, origins = self._message_keys.decode(
            [message.key() or b"" for message in messages],
            lambda place, reason: reject(
                messages[place],
                f"{prefix}{'it has no key' if messages[place].key() is None else f'its key does not decode: {reason}'}",
            ),
        )
        complete = np.ones(found.num_rows, np.bool_)
        for name, column in zip(self._keys, found.columns, strict=True):
            for place in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False) & complete):
                reject(messages[origins[place]], f"{prefix}its key has no {name}: {_HINT}")
                complete[place] = False
        return found.filter(pa.array(complete)), origins[complete]

    def _deletes(
        self, keys: Sequence[pa.Array], times: pa.Array, messages: Sequence[Message], *, estimated: bool = False
    ) -> pa.RecordBatch:
        known = dict(zip(self._keys, keys, strict=True))
        columns = [known.get(field.name, pa.nulls(len(times), field.type)) for field in self._columns]
        return self._records(columns, times, messages, deleted=True, estimated=estimated)

    def _records(
        self,
        columns: Sequence[pa.Array],
        times: pa.Array,
        messages: Sequence[Message],
        *,
        deleted: bool = False,
        estimated: bool = False,
    ) -> pa.RecordBatch:
        more = metadata_columns(messages) if self._include_metadata else []
        schema = pa.schema([*self.schema, *METADATA]) if self._include_metadata else self.schema
        records = pa.RecordBatch.from_arrays([*columns, times, *more], schema=schema)
        return with_changes(records, messages, deleted=deleted, estimated=[estimated] * len(messages))


def lone_tombstones(
    messages: Sequence[Message],
    valued: Sequence[bool],
    deletes: NDArray[np.bool_],
    deleted_before: Callable[[Message], Deleted],
) -> list[Message]:
    """Return the tombstones that no delete of their key is before, but for deletes that have another tombstone.

    Compaction that removes a delete also removes all earlier messages of its key, so an earlier delete that is still
    there is the tombstone's own.

    Args:
        messages: partition by partition, in the order of their offsets.
        valued: which of them are no tombstones.
        deletes: which of them are deletes, shape ``(messages,)``.
        deleted_before: returns the keys in the ``NEAR`` offsets before a message. It is called at most once for each
            partition, and only if a tombstone near its first message has no earlier delete or tombstone of its key.
    """
    found: list[Message] = []
    waiting: dict[bytes | None, bool] = {}
    partition, first, has_looked = None, 0, False
    for place, message in enumerate(messages):
        if partition_of(message) != partition:
            waiting, partition, first, has_looked = {}, partition_of(message), place, False
        key = message.key()
        if valued[place]:
            if deletes[place]:
                waiting[key] = True
            continue
        if key not in waiting and place - first < NEAR and not has_looked:
            waiting, has_looked = {**deleted_before(messages[first]), **waiting}, True
        if not waiting.get(key, False):
            found.append(message)
        waiting[key] = False
    return found


def _has_value(message: Message) -> bool:
    return message.value() not in (None, _EMPTY)


def _column(rows: pa.StructArray, name: str) -> pa.Array:
    return pc.struct_field(rows, [rows.type.get_field_index(name)])


def _has_keys(rows: pa.StructArray, keys: Sequence[str]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = rows.is_valid().to_numpy(zero_copy_only=False)
    for key in keys:
        found &= _column(rows, key).is_valid().to_numpy(zero_copy_only=False)
    return found
