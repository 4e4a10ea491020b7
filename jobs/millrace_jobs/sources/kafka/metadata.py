"""The columns about messages themselves: key, headers, place and time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message
from numpy.typing import NDArray

from millrace_jobs.sources.base import sampled
from millrace_jobs.sources.formats.column_types import TIMESTAMP

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
