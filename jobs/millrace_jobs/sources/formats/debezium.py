"""Debezium's envelope: the row ``before`` and ``after`` a change of a database, and the change's kind and time.

https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-events describes it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millrace_jobs.sources.formats.column_types import TIMESTAMP
from millrace_jobs.sources.formats.messages import RejectAt
from millrace_jobs.sources.formats.text_values import within_range

UNAVAILABLE: Final = "__debezium_unavailable_value"
"""What stands for a large value that the change has not touched, and that PostgreSQL therefore does not send."""

_UNAVAILABLE_BYTES = (b"__debezium_unavailable_value", b"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1Z")
_SETS = ("c", "r", "u")
_MESSAGE = "m"

_TRUNCATED = (
    "op t truncates the table, which deletes rows without their keys: write skipped.operations: t in the connector, "
    "and delete the rows with DELETE"
)
_FLATTENED = (
    "it is no change of Debezium: it has no op: write the messages without the transformation ExtractNewRecordState, "
    "or read them with format: json"
)
_NO_VALUE = (
    "the database has sent no value of {}, since the change has not touched it: write ALTER TABLE ... REPLICA IDENTITY "
    "FULL in the database, or leave the column out of the schema"
)
_DECIMALS = (
    "write decimal.handling.mode: string in the connector, or value.converter.schemas.enable: true, since the digits "
    "behind the point are in the schema of the message"
)


class EnvelopeDecoder(Protocol):
    """A decoder of message values to records that also knows which fields a message has."""

    schema: pa.Schema

    def decode(self, values: Sequence[bytes | None], reject: RejectAt) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
        """Decode values to records in order."""

    def names(self, value: bytes) -> Collection[str]:
        """Return the names of a message's fields."""


def envelope_schema(columns: pa.Schema) -> pa.Schema:
    """Return the schema of the envelope around rows with these columns, as far as it is read."""
    row = pa.struct(list(columns))
    source = pa.struct([("ts_ms", pa.int64()), ("ts_us", pa.int64()), ("ts_ns", pa.int64())])
    return pa.schema([("before", row), ("after", row), ("op", pa.string()), ("source", source)])


@dataclass(frozen=True)
class RowChanges:
    """Changes of rows in the order of their messages. Shapes ``(changes,)``.

    ``before`` and ``after`` are the rows, NULL where the message has none. ``deleted`` is true for a change that only
    deletes a row, and ``skipped`` for a message that is about no row.
    """

    before: pa.StructArray
    after: pa.StructArray
    times: pa.Array
    deleted: NDArray[np.bool_]
    skipped: NDArray[np.bool_]
    origins: NDArray[np.int64]


def decode_changes(decoder: EnvelopeDecoder, values: Sequence[bytes], reject: RejectAt) -> RowChanges:
    """Decode messages to changes; bad messages go to ``reject``.

    Heartbeats, transactions, changes of the database's schema and logical messages are no changes of rows: they are
    ``skipped``.
    """
    records, origins = decoder.decode(values, lambda index, reason: reject(index, _explained(reason)))
    ops = records.column("op").to_pylist()
    times = _times(records.column("source"))
    before, after = records.column("before"), records.column("after")
    after, missing = _completed(before, after, [values[origin] for origin in origins])
    has_after, has_time = (each.is_valid().to_pylist() for each in (after, times))
    kept, skipped = [], []
    for place, op in enumerate(ops):
        if op is None:
            reason = None if _is_about_no_row(decoder.names(values[origins[place]])) else _FLATTENED
        else:
            reason = _fault(op, has_after=has_after[place], has_time=has_time[place]) or missing.get(place)
        if reason is not None:
            reject(int(origins[place]), reason)
            continue
        kept.append(place)
        skipped.append(op in (None, _MESSAGE))
    chosen = pa.array(kept, pa.int64())
    deleted = np.array([ops[place] == "d" for place in kept], np.bool_)
    before, after, times = (column.take(chosen) for column in (before, after, times))
    return RowChanges(before, after, times, deleted, np.array(skipped, np.bool_), origins[kept])


def _fault(op: str, *, has_after: bool, has_time: bool) -> str | None:
    """Return why a message of this kind is bad, or None."""
    if op == "t":
        return _TRUNCATED
    if op not in (*_SETS, "d", _MESSAGE):
        return f"its op is {op!r}, which is none of c, r, u, d, t and m"
    if op in _SETS and not has_after:
        return f"its op is {op}, and it has no after"
    if op != _MESSAGE and not has_time:
        return "it has no source.ts_ms, ts_us or ts_ns in the years 1970 to 9999, which is the time of the change"
    return None


def _explained(reason: str) -> str:
    """Return a reason with what to write where the encoding of Debezium is the cause."""
    if "does not fit DECIMAL" in reason or "string where DECIMAL" in reason:
        return f"{reason.partition(': write')[0]}: {_DECIMALS}"
    if "where INT is expected" in reason and "string" in reason:
        return f"{reason}; a DATE is a number of days unless timeFormats has a format for it"
    return reason


def _is_about_no_row(names: Collection[str]) -> bool:
    """Return whether a message with these fields is a heartbeat, begins or ends a transaction, or changes a schema."""
    is_heartbeat = "ts_ms" in names and set(names) <= {"ts_ms", "ts_us", "ts_ns"}
    is_transaction = {"status", "id", "event_count"} <= set(names)
    return is_heartbeat or is_transaction or "ddl" in names or "tableChanges" in names


def _times(source: pa.StructArray) -> pa.Array:
    """Return the times of changes, to the microsecond where Debezium says it; NULL outside the years 1970 to 9999."""
    millis, micros, nanos = source.flatten()
    is_small = pc.less(pc.abs(millis), 2**63 // 1000)
    found = pc.coalesce(micros, pc.divide(nanos, 1000), pc.multiply(pc.if_else(is_small, millis, None), 1000))
    found = pc.if_else(pc.less(found, 0), None, found)
    try:
        return within_range(found, "").cast(TIMESTAMP)
    except ValueError:
        return pa.concat_arrays([_one_time(each) for each in found])


def _one_time(micros: pa.Scalar) -> pa.Array:
    try:
        return within_range(pa.array([micros.as_py()], pa.int64()), "").cast(TIMESTAMP)
    except ValueError:
        return pa.nulls(1, TIMESTAMP)


def _completed(
    before: pa.StructArray, after: pa.StructArray, values: Sequence[bytes]
) -> tuple[pa.StructArray, dict[int, str]]:
    """Return the rows with values that the database has not sent from the rows before, and why some have none."""
    if not any(text in value for value in values for text in _UNAVAILABLE_BYTES):
        return after, {}
    reasons: dict[int, str] = {}
    columns = []
    for field, earlier, column in zip(after.type, before.flatten(), after.flatten(), strict=True):
        is_missing = _unavailable(column)
        if is_missing is not None and pc.any(is_missing).as_py():
            has_earlier = pc.and_(before.is_valid(), pc.invert(_unavailable(earlier)))
            without = pc.and_(is_missing, pc.invert(has_earlier))
            reasons |= dict.fromkeys(np.flatnonzero(without.to_numpy(zero_copy_only=False)).tolist(), field.name)
            column = pc.if_else(is_missing, earlier, column)
        columns.append(column)
    completed = pa.StructArray.from_arrays(columns, fields=list(after.type), mask=after.is_null())
    return completed, {place: _NO_VALUE.format(name) for place, name in reasons.items()}


def _unavailable(column: pa.Array) -> pa.Array | None:
    """Return where a column has the text for a missing value; None if its type cannot have it."""
    kind = column.type
    if pa.types.is_string(kind):
        found = pc.equal(column, UNAVAILABLE)
    elif pa.types.is_binary(kind):
        found = pc.equal(column, UNAVAILABLE.encode())
    elif pa.types.is_list(kind) and pa.types.is_string(kind.value_type):
        found = pa.array([each == [UNAVAILABLE] for each in column.to_pylist()], pa.bool_())
    else:
        return None
    return found.fill_null(False)
