"""Which fields of a Protobuf message are read as columns, and the Arrow type of each.

Of a message that contains itself, as much is read as the column declares.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from millrace_api.sql.schema_ddl import MOST_LEVELS
from millrace_jobs.schemas.protobuf_schemas import inner_type, is_map
from millrace_jobs.sources.formats.column_types import TIMESTAMP
from millrace_jobs.sources.formats.nested_columns import is_list

_F = FieldDescriptor
SCALARS = {
    _F.TYPE_DOUBLE: pa.float64(),
    _F.TYPE_FLOAT: pa.float32(),
    _F.TYPE_INT64: pa.int64(),
    _F.TYPE_SINT64: pa.int64(),
    _F.TYPE_SFIXED64: pa.int64(),
    _F.TYPE_UINT64: pa.uint64(),
    _F.TYPE_FIXED64: pa.uint64(),
    _F.TYPE_INT32: pa.int32(),
    _F.TYPE_SINT32: pa.int32(),
    _F.TYPE_SFIXED32: pa.int32(),
    _F.TYPE_UINT32: pa.uint32(),
    _F.TYPE_FIXED32: pa.uint32(),
    _F.TYPE_BOOL: pa.bool_(),
    _F.TYPE_STRING: pa.string(),
    _F.TYPE_BYTES: pa.binary(),
}
DURATION = pa.decimal128(21, 9)
"""Seconds, with all digits of a ``google.protobuf.Duration``."""

WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
_KINDS = {"google.protobuf.Timestamp": ("time", TIMESTAMP), "google.protobuf.Duration": ("span", DURATION)}


@dataclass(frozen=True)
class MessagePart:
    """A field as it is read, or an element of one.

    Args:
        name: the field's name.
        number: its number in messages.
        wire: its type in messages, of ``FieldDescriptor``.
        kind: what it is besides: "value", "text", "enum", "time", "span", "wrapped", "message", "list" or "map".
        found: the Arrow type that it is read as.
        parts: the fields of a message, the element of a list, the key and value of a map, or what is wrapped.
        default: what an absent value is read as; None for NULL.
        names: the names of an enum by number.
    """

    name: str
    number: int
    wire: int
    kind: str
    found: pa.DataType
    parts: tuple[MessagePart, ...] = ()
    default: Any = None
    names: tuple[tuple[int, str], ...] = ()


def part_of(field: FieldDescriptor, declared: pa.DataType | None, levels: int = 0) -> MessagePart:
    """Return how a field is read as a column of a type; None reads all of it.

    Raises:
        ValueError: no column can hold the field; the text is what it is.
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
        return _message(field, declared, levels)
    is_filled = not field.is_repeated and (not field.has_presence or field.has_default_value)
    part = MessagePart(field.name, field.number, field.type, "value", pa.int32(), default=None)
    if is_filled:
        part = replace(part, default=field.default_value)
    if field.type != _F.TYPE_ENUM:
        return replace(part, kind="text" if field.type == _F.TYPE_STRING else "value", found=SCALARS[field.type])
    if declared is not None and pa.types.is_integer(declared):
        return part
    assert field.enum_type is not None
    return replace(part, kind="enum", found=pa.string(), names=_names(field.enum_type))


def _message(field: FieldDescriptor, declared: pa.DataType | None, levels: int) -> MessagePart:
    kind = inner_type(field)
    if kind.full_name in _KINDS:
        return MessagePart(field.name, field.number, field.type, *_KINDS[kind.full_name])
    if kind.full_name in WRAPPERS:
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


def _names(enum: EnumDescriptor) -> tuple[tuple[int, str], ...]:
    """Return the numbers of an enum with their names, in their order; of aliases the first."""
    names: dict[int, str] = {}
    for value in enum.values:
        names.setdefault(value.number, value.name)
    return tuple(names.items())


def _contains_itself(kind: Descriptor) -> bool:
    """Return whether a message is within itself, or has one within it that is."""
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
