"""Messages without a value in the topic of a table: each deletes the row of its key."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

import pyarrow as pa
from confluent_kafka import Message

from millrace_api.sql.time_formats import UNITS
from millrace_jobs.kafka.headers import WATERMARK
from millrace_jobs.sources.base import CHANGED
from millrace_jobs.sources.formats.column_types import time_format
from millrace_jobs.sources.formats.messages import TextDecoder
from millrace_jobs.sources.kafka.metadata import METADATA, metadata_columns, millis_of, timestamps

_NUMBER = re.compile(rb"-?\d+")

Reject = Callable[[Message, str], None]
"""Handler that leaves out a message, for a reason, or raises, as the policy requires."""


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
        is_text = pa.types.is_string, pa.types.is_binary, pa.types.is_date, pa.types.is_timestamp
        first = self._keys.field(0) if self._keys.names else pa.field("", pa.null())
        kind = first.type
        in_numbers = pa.types.is_timestamp(kind) and time_format(first, timestamp_format) in UNITS
        self._has_quotes = any(each(kind) for each in is_text) and not in_numbers

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
        """Return the records of messages with these keys."""
        known = dict(zip(METADATA.names, metadata_columns(messages), strict=True))
        known |= dict(zip(keys.schema.names, keys.columns, strict=True))
        estimated = [False] * len(messages)
        if self._time not in known:
            watermarks = [_watermark(message) for message in messages]
            estimated = [watermark is not None for watermark in watermarks]
            times = zip(watermarks, map(millis_of, messages), strict=True)
            known[self._time] = timestamps([own if watermark is None else watermark for watermark, own in times])
        columns = [
            known[field.name] if field.name in known else pa.nulls(len(messages), field.type) for field in self._schema
        ]
        records = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        return with_changes(records, messages, deleted=True, estimated=estimated)

    def _has_time(self, message: Message) -> bool:
        if self._time in self._keys.names:
            return True  # NULL there is the time of no row, as it is in any other column of the key
        own = millis_of(message) is not None
        return own if self._time in METADATA.names else own or _watermark(message) is not None

    def _key_of(self, message: Message) -> bytes:
        """Return the key as a JSON object. Raises ValueError if it is not one of this table, or there is no time."""
        key = message.key()
        if key is None:
            raise ValueError("it has no key")
        if not self._has_time(message):
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


def with_positions(records: pa.RecordBatch, messages: Sequence[Message]) -> pa.RecordBatch:
    """Return the records of these messages, which are rows, with the columns of CHANGED."""
    return with_changes(records, messages, deleted=False, estimated=[False] * len(messages))


def with_changes(
    records: pa.RecordBatch, messages: Sequence[Message], *, deleted: bool, estimated: Sequence[bool]
) -> pa.RecordBatch:
    """Return the records of these messages with the columns of CHANGED."""
    flags = [pa.array(each, pa.bool_()) for each in ([deleted] * len(messages), estimated)]
    offsets = pa.array([message.offset() for message in messages], pa.int64())
    schema = pa.schema([*records.schema, *CHANGED])
    return pa.RecordBatch.from_arrays([*records.columns, *flags, offsets], schema=schema)


def _watermark(message: Message) -> int | None:
    """Return the watermark of the query that wrote a message, in milliseconds since 1970; None without one."""
    text = dict(message.headers() or ()).get(WATERMARK)
    return int(text) if isinstance(text, bytes) and _NUMBER.fullmatch(text) else None
