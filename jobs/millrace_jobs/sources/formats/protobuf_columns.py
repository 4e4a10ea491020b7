"""Protobuf messages as Arrow columns, in compiled code throughout.

Protobuf's own parser reads each message, refuses what is no message, and writes it again without unknown fields: fields
that were there twice are merged, and of a oneof there is one. ``ptars`` turns these to Arrow. It is given descriptors
that have only the fields that columns need, each with presence, and enums, times and maps as the plain fields that they
are in messages. What these mean is applied to whole columns afterwards.

Only such rewritten messages may go to ``ptars``: it takes a message in another form for what it is not, or the process
ends, as with groups that are deep within each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, EncodeError
from ptars import HandlerPool

from millrace_jobs.schemas.protobuf_schemas import ProtobufSchema
from millrace_jobs.sources.formats.column_types import TIMESTAMP
from millrace_jobs.sources.formats.nested_columns import put_together, taken_apart
from millrace_jobs.sources.formats.protobuf_fields import DURATION, MessagePart

_F = FieldDescriptor
_LEAST_SECOND, _MOST_SECOND = -62_135_596_800, 253_402_300_799
_LONGEST_SECONDS = 315_576_000_000
_MOST_NANOS = 999_999_999
_NO_FIELD = (1 << 29) - 1
"""The highest number of a field; a message of which nothing is read gets one of this number, which ``ptars`` needs."""


def rewriter(schema: ProtobufSchema) -> Callable[[bytes], bytes]:
    """Return a function that rewrites messages for ``ProtobufColumns``; it raises ValueError with what is wrong."""
    message_class = message_factory.GetMessageClass(schema.descriptor)

    def rewritten(payload: bytes) -> bytes:
        try:
            message = message_class.FromString(payload)
            message.DiscardUnknownFields()
            return bytes(message.SerializeToString())
        except DecodeError as error:
            why = str(error).rpartition(": ")[2] or type(error).__name__
        except EncodeError as error:  # the parser does not see that they are missing
            why = f"it lacks required fields: {str(error).rpartition(': ')[2]}"
        raise ValueError(f"it is no message {schema.message}: {why}")

    return rewritten


class ProtobufColumns:
    """Reads some fields of rewritten messages as Arrow columns of the types ``MessagePart.found``."""

    def __init__(self, parts: Sequence[MessagePart]) -> None:
        self._parts = tuple(parts)
        file = descriptor_pb2.FileDescriptorProto(name="columns.proto", package="columns", syntax="proto3")
        name = _add_message(file, self._parts)
        pool = descriptor_pool.DescriptorPool()
        pool.Add(file)
        kind = pool.FindMessageTypeByName(f"columns.{name}")
        self._handlers = HandlerPool([kind.file])
        self._handler = self._handlers.get_for_message(kind)

    def read(self, rewritten: Sequence[bytes]) -> dict[str, pa.Array]:
        """Return the columns by name. Raises ValueError if a time is none, or a text is not UTF-8."""
        batch = self._handler.list_to_record_batch(list(rewritten))
        return {part.name: _finished(batch.column(_column(part)), part) for part in self._parts}


def _column(part: MessagePart) -> str:
    return f"f{part.number}"


def _add_message(file: descriptor_pb2.FileDescriptorProto, parts: Sequence[MessagePart]) -> str:
    """Add a message with fields as they are on the wire, and those within it; return its name."""
    name = f"M{len(file.message_type)}"
    file.message_type.add(name=name)
    index = len(file.message_type) - 1
    for part in parts:
        element = part.parts[0] if part.kind == "list" else part
        kind, within = _wire_type(element), _wire_parts(element)
        inner = f".columns.{_add_message(file, within)}" if within is not None else None
        _add_field(file.message_type[index], part.number, kind, inner, repeated=part.kind in ("list", "map"))
    if not parts:
        _add_field(file.message_type[index], _NO_FIELD, _F.TYPE_BOOL, None, repeated=False)
    return name


def _add_field(
    message: descriptor_pb2.DescriptorProto, number: int, kind: Any, inner: str | None, *, repeated: bool
) -> None:
    label = _F.LABEL_REPEATED if repeated else _F.LABEL_OPTIONAL
    field = message.field.add(name=f"f{number}", number=number, type=kind, label=label)
    if inner is not None:
        field.type_name = inner
    elif not repeated:
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_f{number}")


def _wire_type(part: MessagePart) -> Any:
    """Return the type of a field for ``ptars``: texts are bytes, which are checked later, and enums are numbers."""
    if part.wire == _F.TYPE_STRING:
        return _F.TYPE_BYTES
    return _F.TYPE_INT32 if part.wire == _F.TYPE_ENUM else part.wire


def _wire_parts(part: MessagePart) -> Sequence[MessagePart] | None:
    """Return the fields of a message, an entry of a map, a time or a wrapper; None for a single value."""
    if part.kind in ("time", "span"):
        seconds = MessagePart("seconds", 1, _F.TYPE_INT64, "value", pa.int64(), default=0)
        return seconds, MessagePart("nanos", 2, _F.TYPE_INT32, "value", pa.int32(), default=0)
    return part.parts if part.kind in ("message", "map", "wrapped") else None


def _finished(column: pa.Array, part: MessagePart) -> pa.Array:
    """Return a decoded column as one of the type ``part.found``."""
    if part.kind == "list":
        (values,), offsets = taken_apart(column, part.found)
        return put_together(part.found, [_finished(values, part.parts[0])], offsets, column.is_null())
    if part.kind == "map":
        entries, offsets = taken_apart(column, part.found)
        parts = [_finished(entry, each) for entry, each in zip(entries, part.parts, strict=True)]
        return put_together(part.found, parts, offsets, column.is_null())
    if part.kind == "message":
        return _message(column, part)
    if part.kind in ("time", "span"):
        seconds, nanos = (pc.fill_null(each, 0) for each in column.flatten())
        moments = _times(seconds, nanos) if part.kind == "time" else _spans(seconds, nanos)
        return pc.if_else(column.is_valid(), moments, pa.scalar(None, part.found))
    if part.kind == "wrapped":
        value = _finished(column.flatten()[0], part.parts[0])
        return pc.if_else(column.is_valid(), value, pa.scalar(None, part.found))
    if part.default is not None:
        column = pc.fill_null(column, _wire_default(part))
    if part.kind == "text":
        return column.cast(pa.string())
    return _named(column, part) if part.kind == "enum" else column


def _wire_default(part: MessagePart) -> Any:
    return part.default.encode() if part.kind == "text" else part.default


def _message(column: pa.Array, part: MessagePart) -> pa.Array:
    missing = column.is_null()
    if not part.parts:
        return pa.array([None if gone else {} for gone in missing.to_pylist()], part.found)
    parts = [_finished(each, field) for each, field in zip(column.flatten(), part.parts, strict=True)]
    return put_together(part.found, parts, None, missing)


def _named(numbers: pa.Array, part: MessagePart) -> pa.Array:
    """Return the names of an enum; a number without a name is its digits."""
    known = pa.array([number for number, _ in part.names], pa.int32())
    names = pa.array([name for _, name in part.names], pa.string())
    places = pc.index_in(numbers, value_set=known)
    return pc.coalesce(names.take(places), numbers.cast(pa.string()))


def _times(seconds: pa.Array, nanos: pa.Array) -> pa.Array:
    """Return timestamps; of a fraction of a second six digits count. Raises ValueError if one is out of range."""
    whole, fraction = _checked(seconds, nanos, _LEAST_SECOND, _MOST_SECOND, 0, "google.protobuf.Timestamp")
    return pa.array(whole * 1_000_000 + fraction // 1_000, pa.int64()).cast(TIMESTAMP)


def _spans(seconds: pa.Array, nanos: pa.Array) -> pa.Array:
    """Return seconds with all digits. Raises ValueError if one is out of range, or its parts have two signs."""
    kind = "google.protobuf.Duration"
    whole, fraction = _checked(seconds, nanos, -_LONGEST_SECONDS, _LONGEST_SECONDS, -_MOST_NANOS, kind)
    if (whole * np.sign(fraction) < 0).any():
        raise ValueError(f"a {kind} has seconds and nanos of different signs")
    parts = pc.add(seconds.cast(pa.decimal128(20, 0)).cast(pa.decimal128(30, 9)), _as_fraction(nanos))
    return parts.cast(DURATION)


def _as_fraction(nanos: pa.Array) -> pa.Array:
    return pc.multiply(nanos.cast(pa.decimal128(10, 0)), pa.scalar("0.000000001").cast(pa.decimal128(9, 9)))


def _checked(
    seconds: pa.Array, nanos: pa.Array, least: int, most: int, least_nanos: int, kind: str
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    whole, fraction = seconds.to_numpy(zero_copy_only=False), nanos.to_numpy(zero_copy_only=False).astype(np.int64)
    wrong = (whole < least) | (whole > most) | (fraction < least_nanos) | (fraction > _MOST_NANOS)
    if wrong.any():
        place = int(np.argmax(wrong))
        message = f"a {kind} has {whole[place]} seconds and {fraction[place]} nanos, which are out of its range"
        raise ValueError(message)
    return whole, fraction
