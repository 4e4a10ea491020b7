"""Protobuf messages as Arrow columns, in compiled code throughout.

Protobuf's own parser reads each message, refuses what is no message, and writes it again without unknown fields: fields
that were there twice are merged, and of a oneof there is one. ``ptars`` turns these to Arrow. It is given descriptors
that have only the fields that columns need, each with presence, and enums, times and maps as the plain fields that they
are in messages. What these mean is applied to whole columns afterwards. Of a message that contains itself, as much is
read as the column declares.

Only such rewritten messages may go to ``ptars``: it takes a message in another form for what it is not, or the process
ends, as with groups that are deep within each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, EncodeError
from ptars import HandlerPool

from millrace_api.sql.schema_ddl import MOST_LEVELS
from millrace_jobs.schemas.protobuf_schemas import ProtobufSchema, inner_type, is_map
from millrace_jobs.sources.formats.column_types import TIMESTAMP, is_list, put_together, taken_apart

_F = FieldDescriptor
_NAMES_OF_SCALARS = {
    pa.float64(): ("DOUBLE",),
    pa.float32(): ("FLOAT",),
    pa.int64(): ("INT64", "SINT64", "SFIXED64"),
    pa.uint64(): ("UINT64", "FIXED64"),
    pa.int32(): ("INT32", "SINT32", "SFIXED32"),
    pa.uint32(): ("UINT32", "FIXED32"),
    pa.bool_(): ("BOOL",),
    pa.string(): ("STRING",),
    pa.binary(): ("BYTES",),
}
_SCALARS = {getattr(_F, f"TYPE_{name}"): kind for kind, names in _NAMES_OF_SCALARS.items() for name in names}
DURATION = pa.decimal128(21, 9)
"""Seconds, with all digits of a ``google.protobuf.Duration``."""

_WRAPPED = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
_WRAPPERS = {f"google.protobuf.{name}Value" for name in _WRAPPED}
_KINDS = {"google.protobuf.Timestamp": ("time", TIMESTAMP), "google.protobuf.Duration": ("span", DURATION)}

_LEAST_SECOND, _MOST_SECOND = -62_135_596_800, 253_402_300_799
_LONGEST_SECONDS = 315_576_000_000
_MOST_NANOS = 999_999_999

_NO_FIELD = (1 << 29) - 1
"""The highest number of a field; a message of which nothing is read gets one of this number, which ``ptars`` needs."""


@dataclass(frozen=True)
class MessagePart:
    """A field as it is read, or an element of one."""

    name: str  # the field's name
    number: int  # its number in messages
    wire: int  # its type in messages, of ``FieldDescriptor``
    kind: str  # what it is besides: "value", "text", "enum", "time", "span", "wrapped", "message", "list" or "map"
    found: pa.DataType  # the Arrow type that it is read as
    # the fields of a message, the element of a list, the key and value of a map, or what is wrapped
    parts: tuple[MessagePart, ...] = ()
    default: Any = None  # what an absent value is read as; None for NULL
    names: tuple[tuple[int, str], ...] = ()  # the names of an enum by number


def part_of(field: FieldDescriptor, declared: pa.DataType | None, levels: int = 0) -> MessagePart:
    """Return how a field is read as a column of a type; None reads all of it.

    Raises ValueError if no column can hold the field; the text is what it is.
    """
    if levels > MOST_LEVELS:
        raise ValueError(f"of a type with more than {MOST_LEVELS} levels of messages, lists and maps")
    if is_map(field):
        fields = inner_type(field).fields_by_name
        inner = declared.item_type if declared is not None and pa.types.is_map(declared) else None
        key, value = part_of(fields["key"], None, levels + 1), part_of(fields["value"], inner, levels + 1)
        parts = _never_null(key, fields["key"]), _never_null(value, fields["value"])
        return MessagePart(field.name, field.number, field.type, "map", pa.map_(key.found, value.found), parts)
    if field.is_repeated:
        inner = declared.value_type if declared is not None and is_list(declared) else None
        element = _single(field, inner, levels + 1)
        return MessagePart(field.name, field.number, field.type, "list", pa.list_(element.found), (element,))
    return _single(field, declared, levels)


def message_parts(kind: Descriptor, wanted: dict[str, pa.DataType] | None, levels: int = 0) -> tuple[MessagePart, ...]:
    """Return how the fields of a message are read: those of the wanted ones that it has; None for all."""
    return tuple(
        part_of(field, None if wanted is None else wanted[field.name], levels + 1)
        for field in kind.fields
        if wanted is None or field.name in wanted
    )


def _single(field: FieldDescriptor, declared: pa.DataType | None, levels: int) -> MessagePart:
    """Return how one value of a field is read, as if it were not repeated."""
    if field.type == _F.TYPE_GROUP:
        raise ValueError("a group")
    if field.type == _F.TYPE_MESSAGE:
        return _message_part(field, declared, levels)
    is_filled = not field.is_repeated and (not field.has_presence or field.has_default_value)
    part = MessagePart(field.name, field.number, field.type, "value", pa.int32(), default=None)
    if is_filled:
        part = replace(part, default=field.default_value)
    if field.type != _F.TYPE_ENUM:
        return replace(part, kind="text" if field.type == _F.TYPE_STRING else "value", found=_SCALARS[field.type])
    if declared is not None and pa.types.is_integer(declared):
        return part
    assert field.enum_type is not None
    names: dict[int, str] = {}
    for value in field.enum_type.values:
        names.setdefault(value.number, value.name)  # of aliases the first
    return replace(part, kind="enum", found=pa.string(), names=tuple(names.items()))


def _message_part(field: FieldDescriptor, declared: pa.DataType | None, levels: int) -> MessagePart:
    kind = inner_type(field)
    if kind.full_name in _KINDS:
        return MessagePart(field.name, field.number, field.type, *_KINDS[kind.full_name])
    if kind.full_name in _WRAPPERS:
        inner = kind.fields_by_name["value"]
        value = _never_null(_single(inner, declared, levels), inner)
        return MessagePart(field.name, field.number, field.type, "wrapped", value.found, (value,))
    wanted = None
    if declared is not None:
        wanted = {each.name: each.type for each in declared} if pa.types.is_struct(declared) else {}
    elif _contains_itself(kind):
        raise ValueError(f"of type {kind.full_name}, which contains itself")
    parts = message_parts(kind, wanted, levels)
    found = pa.struct([(part.name, part.found) for part in parts])
    return MessagePart(field.name, field.number, field.type, "message", found, parts)


def _never_null(part: MessagePart, field: FieldDescriptor) -> MessagePart:
    """Return a part of a map or a wrapper, which is zero where it is absent, whatever the syntax of the file."""
    return replace(part, default=field.default_value) if part.kind in ("value", "text", "enum") else part


def _contains_itself(kind: Descriptor) -> bool:
    done: set[str] = set()
    above: list[tuple[str, list[Descriptor]]] = [(kind.full_name, _within(kind))]
    while above:
        name, waiting = above[-1]
        if not waiting:
            done.add(name)
            above.pop()
            continue
        inner = waiting.pop()
        if any(inner.full_name == each for each, _ in above):
            return True
        if inner.full_name not in done:
            above.append((inner.full_name, _within(inner)))
    return False


def _within(kind: Descriptor) -> list[Descriptor]:
    return [field.message_type for field in kind.fields if field.message_type is not None]


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
        raise ValueError(f"it is not a message {schema.message}: {why}")

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
        return {part.name: _finished(batch.column(f"f{part.number}"), part) for part in self._parts}


def _add_message(file: descriptor_pb2.FileDescriptorProto, parts: Sequence[MessagePart]) -> str:
    """Add a message with fields as they are on the wire, and those within it; return its name."""
    name = f"M{len(file.message_type)}"
    file.message_type.add(name=name)
    index = len(file.message_type) - 1
    for part in parts:
        element = part.parts[0] if part.kind == "list" else part
        # texts are bytes, which are checked later, and enums are numbers
        kind = {_F.TYPE_STRING: _F.TYPE_BYTES, _F.TYPE_ENUM: _F.TYPE_INT32}.get(element.wire, element.wire)
        within = _wire_parts(element)
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


def _wire_parts(part: MessagePart) -> Sequence[MessagePart] | None:
    """Return the fields of a message, an entry of a map, a time or a wrapper; None for a single value."""
    if part.kind in ("time", "span"):
        seconds = MessagePart("seconds", 1, _F.TYPE_INT64, "value", pa.int64(), default=0)
        return seconds, MessagePart("nanos", 2, _F.TYPE_INT32, "value", pa.int32(), default=0)
    return part.parts if part.kind in ("message", "map", "wrapped") else None


def _finished(column: pa.Array, part: MessagePart) -> pa.Array:
    """Return a decoded column as one of the type ``part.found``."""
    if part.kind == "message" and not part.parts:
        return pa.array([None if gone else {} for gone in column.is_null().to_pylist()], part.found)
    if part.kind in ("list", "map", "message"):
        found, offsets = taken_apart(column, part.found)
        parts = [_finished(each, field) for each, field in zip(found, part.parts, strict=True)]
        return put_together(part.found, parts, offsets, column.is_null())
    if part.kind in ("time", "span"):
        seconds, nanos = (pc.fill_null(each, 0) for each in column.flatten())
        moments = _times(seconds, nanos) if part.kind == "time" else _spans(seconds, nanos)
        return pc.if_else(column.is_valid(), moments, pa.scalar(None, part.found))
    if part.kind == "wrapped":
        value = _finished(column.flatten()[0], part.parts[0])
        return pc.if_else(column.is_valid(), value, pa.scalar(None, part.found))
    if part.default is not None:
        column = pc.fill_null(column, part.default.encode() if part.kind == "text" else part.default)
    if part.kind == "text":
        return column.cast(pa.string())
    if part.kind != "enum":
        return column
    numbers, names = (pa.array(list(each)) for each in zip(*part.names, strict=True))
    places = pc.index_in(column, value_set=numbers.cast(pa.int32()))
    return pc.coalesce(names.take(places), column.cast(pa.string()))  # a number without a name is its digits


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
    nano = pa.scalar("0.000000001").cast(pa.decimal128(9, 9))
    parts = pc.multiply(nanos.cast(pa.decimal128(10, 0)), nano)
    return pc.add(seconds.cast(pa.decimal128(20, 0)).cast(pa.decimal128(30, 9)), parts).cast(DURATION)


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
