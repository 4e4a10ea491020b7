"""Results as Protobuf messages: every field of a single value has presence, so that NULL is a field that is absent.

Fields keep the numbers that they have in the latest version of the subject. New ones get numbers of their own, and
numbers of columns that are gone are reserved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from pyspark.sql import types as T  # noqa: N812 - the conventional name
from pyspark.sql.types import DataType, StructType

from millrace_jobs.schemas.protobuf_schemas import (
    ProtobufSchema,
    check_schema,
    descriptor_set,
    file_of,
    inner_type,
    is_map,
)
from millrace_jobs.schemas.registry import SchemaRegistry
from millrace_jobs.sinks.kafka.registered.sink import SINGLE_TYPES, Encode, field_name, unsupported

_F = FieldDescriptor
_MESSAGE = FieldDescriptorProto.TYPE_MESSAGE
_REPEATED = FieldDescriptorProto.LABEL_REPEATED
_TYPES: dict[type[DataType], Any] = {
    kind: getattr(_F, f"TYPE_{each.protobuf.upper()}") for kind, each in SINGLE_TYPES.items() if each.protobuf
} | {T.DecimalType: _F.TYPE_STRING}
_ALSO = {
    _F.TYPE_INT32: {_F.TYPE_SINT32, _F.TYPE_SFIXED32, _F.TYPE_INT64, _F.TYPE_SINT64, _F.TYPE_SFIXED64},
    _F.TYPE_INT64: {_F.TYPE_SINT64, _F.TYPE_SFIXED64},
    _F.TYPE_FLOAT: {_F.TYPE_DOUBLE},
    _F.TYPE_STRING: {_F.TYPE_ENUM},
}
_KEYS = (T.StringType, T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_TIMESTAMP = "google.protobuf.Timestamp"
_FIRST_OF_PROTOBUF, _LAST_OF_PROTOBUF = 19_000, 19_999
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class ProtobufResults:
    """The format ``protobuf``."""

    kind = "PROTOBUF"

    def latest(self, registry: SchemaRegistry, document: Mapping[str, Any]) -> Any:
        """Return the file of the latest version."""
        if document.get("references"):
            raise ValueError("it imports schemas of other subjects")
        return file_of(document)

    def derived(self, columns: StructType, record: str, latest: Any | None) -> Any:
        """Return the file of the results' message, with the numbers of the latest version."""
        return message_file(columns, record, latest)

    def text(self, schema: Any) -> str:
        """Return the text of the file: not every registry reads another form."""
        return written_proto(schema)

    def encoder(self, columns: StructType, record: str, schema: Any) -> tuple[bytes, Encode]:
        """Return an encoder by the record of this name in the schema, or by its first message."""
        file: FileDescriptorProto = schema
        names = [f"{file.package}.{message.name}".lstrip(".") for message in file.message_type]
        if not names:
            raise ValueError("it has no message")
        place = names.index(record) if record in names else 0
        name, indexes = names[place], (place,)
        found = ProtobufSchema(descriptor_set([file]), name)
        check_schema(found)
        _require_fit(columns, found.descriptor, "")
        message_class = message_factory.GetMessageClass(found.descriptor)
        plain = _converter(columns)

        def encode(row: Mapping[str, Any]) -> bytes:
            try:
                return bytes(message_class(**plain(row)).SerializeToString())
            except (TypeError, ValueError, OverflowError) as error:
                raise ValueError(str(error)) from None

        # the first message of a file is a single zero
        return b"\0" if indexes == (0,) else b"".join(map(_zigzag, (len(indexes), *indexes))), encode


def message_file(columns: StructType, record: str, before: FileDescriptorProto | None = None) -> FileDescriptorProto:
    """Return a file with a message for results.

    Raises MillraceError if a column has a name or a type that no field has.
    """
    package, _, name = record.rpartition(".")
    file = FileDescriptorProto(name=f"{record}.proto", package=package, syntax="proto3")
    known = next((each for each in before.message_type if each.name == name), None) if before is not None else None
    message = file.message_type.add(name=name)
    _fill(message, columns, f".{record}", known)
    if _has_time(message):
        file.dependency.append("google/protobuf/timestamp.proto")
    return file


def _fill(message: DescriptorProto, columns: StructType, path: str, before: DescriptorProto | None) -> None:
    numbers = {field.name: field.number for field in before.field} if before is not None else {}
    reserved = {number for each in before.reserved_range for number in range(each.start, each.end)} if before else set()
    gone = reserved | {number for name, number in numbers.items() if name not in columns.names}
    last = max([*numbers.values(), *reserved], default=0)
    for column in columns:
        number = numbers.get(column.name)
        if number is None:
            number = last = last + 1 if last + 1 != _FIRST_OF_PROTOBUF else _LAST_OF_PROTOBUF + 1
        field = message.field.add(name=field_name(column.name), number=number, label=_F.LABEL_OPTIONAL)
        _type_field(message, field, column.dataType, path, before)
    for number in sorted(gone):
        message.reserved_range.add(start=number, end=number + 1)


def _type_field(
    message: DescriptorProto, field: FieldDescriptorProto, kind: DataType, path: str, before: DescriptorProto | None
) -> None:
    if isinstance(kind, T.ArrayType) and not isinstance(kind.elementType, T.ArrayType | T.MapType):
        field.label, single = _REPEATED, kind.elementType
    elif isinstance(kind, T.MapType) and isinstance(kind.keyType, _KEYS):
        name = "".join(part.capitalize() for part in field.name.split("_")) + "Entry"
        pair = StructType().add("key", kind.keyType).add("value", kind.valueType)
        entry = message.nested_type.add(name=name)
        entry.options.map_entry = True
        for number, part in enumerate(pair, start=1):
            inner = entry.field.add(name=part.name, number=number, label=_F.LABEL_OPTIONAL)
            if isinstance(part.dataType, T.ArrayType | T.MapType):
                raise unsupported(field.name, kind, "Protobuf")
            _type_single(message, inner, part.dataType, path, before, f"{field.name}_value")
        field.label, field.type, field.type_name = _REPEATED, _MESSAGE, f"{path}.{name}"
        return
    else:
        single = kind
    _type_single(message, field, single, path, before, field.name)
    if field.label == _F.LABEL_OPTIONAL and field.type != _F.TYPE_MESSAGE:
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{field.name}")


def _type_single(
    message: DescriptorProto,
    field: FieldDescriptorProto,
    kind: DataType,
    path: str,
    before: DescriptorProto | None,
    name: str,
) -> None:
    """Give a field the type of single values; a struct gets a message of its own, named by ``name``."""
    if isinstance(kind, T.TimestampType):
        field.type, field.type_name = _MESSAGE, f".{_TIMESTAMP}"
    elif isinstance(kind, StructType):
        inner = f"{name}_row"
        field.type, field.type_name = _MESSAGE, f"{path}.{inner}"
        known = next((each for each in before.nested_type if each.name == inner), None) if before is not None else None
        _fill(message.nested_type.add(name=inner), kind, f"{path}.{inner}", known)
    elif type(kind) in _TYPES:
        field.type = _TYPES[type(kind)]
    else:
        raise unsupported(field.name, kind, "Protobuf")


def _has_time(message: DescriptorProto) -> bool:
    return any(field.type_name == f".{_TIMESTAMP}" for field in message.field) or any(
        map(_has_time, message.nested_type)
    )


def _zigzag(number: int) -> bytes:
    encoded, found = number << 1, bytearray()
    while encoded > 0x7F:
        found.append(encoded & 0x7F | 0x80)
        encoded >>= 7
    return bytes([*found, encoded])


def _require_fit(columns: StructType, kind: Descriptor, path: str) -> None:
    """Raise ValueError unless a message has a field of a suitable type for each column."""
    for column in columns:
        name = f"{path}{column.name}"
        field = kind.fields_by_name.get(column.name)
        if field is None:
            raise ValueError(f"{kind.full_name} has no field {name}")
        single, declared = field, column.dataType
        if isinstance(declared, T.MapType):
            wanted, declared = is_map(field), declared.valueType
            single = inner_type(field).fields_by_name["value"] if wanted else field
        elif isinstance(declared, T.ArrayType):
            wanted, declared = field.is_repeated and not is_map(field), declared.elementType
        else:
            wanted = not field.is_repeated
        if isinstance(declared, StructType) and wanted and single.message_type is not None:
            _require_fit(declared, single.message_type, f"{name}.")
        elif not wanted or not _is_suitable(declared, single):
            raise ValueError(f"{name} is {column.dataType.simpleString()}, which its field in {kind.full_name} is not")


def _is_suitable(kind: DataType, field: FieldDescriptor) -> bool:
    if isinstance(kind, T.TimestampType):
        return field.message_type is not None and field.message_type.full_name == _TIMESTAMP
    wanted = _TYPES.get(type(kind))
    return wanted is not None and (field.type == wanted or field.type in _ALSO.get(wanted, ()))


def _converter(kind: DataType) -> Callable[[Any], Any]:
    """Return a function of values that are not NULL; within structs, NULL fields are left out."""
    if isinstance(kind, StructType):
        fields = {field.name: _converter(field.dataType) for field in kind}
        return lambda row: {name: fields[name](each) for name, each in row.items() if each is not None}
    if isinstance(kind, T.ArrayType):
        element = _converter(kind.elementType)
        return lambda values: [element(_present(each)) for each in values]
    if isinstance(kind, T.MapType):
        value = _converter(kind.valueType)
        return lambda entries: {key: value(_present(each)) for key, each in entries.items()}
    if isinstance(kind, T.TimestampType):
        return _moment
    if isinstance(kind, T.DecimalType):
        return lambda number: format(number, "f")
    if isinstance(kind, T.DateType):
        return lambda day: day.isoformat()
    if isinstance(kind, T.TimestampNTZType):
        return lambda moment: moment.isoformat(timespec="microseconds")
    return lambda value: value


def _present(value: Any) -> Any:
    if value is None:
        raise ValueError("an array or a map has a NULL in it, which Protobuf does not have")
    return value


def _moment(moment: datetime) -> dict[str, int]:
    seconds, micros = divmod((moment - _EPOCH) // _MICROSECOND, 1_000_000)
    return {"seconds": seconds, "nanos": micros * 1_000}


def written_proto(file: FileDescriptorProto) -> str:
    """Return the text of a file of ``protobuf_results.message_file``: messages, maps and reserved numbers."""
    lines = ['syntax = "proto3";']
    lines += [f"package {file.package};"] if file.package else []
    lines += [f'import "{name}";' for name in file.dependency]
    for message in file.message_type:
        lines += _message(message, "")
    return "\n".join(lines) + "\n"


def _message(message: DescriptorProto, indent: str) -> Iterator[str]:
    yield f"{indent}message {message.name} {{"
    inner = f"{indent}  "
    for gone in message.reserved_range:
        yield f"{inner}reserved {gone.start};"
    entries = {each.name: each for each in message.nested_type if each.options.map_entry}
    for each in message.nested_type:
        if each.name not in entries:
            yield from _message(each, inner)
    for field in message.field:
        entry = entries.get(field.type_name.rpartition(".")[2])
        if entry is not None:
            key, value = entry.field
            yield f"{inner}map<{_type(key)}, {_type(value)}> {field.name} = {field.number};"
            continue
        label = (
            "repeated "
            if field.label == FieldDescriptorProto.LABEL_REPEATED
            else "optional "
            if field.proto3_optional
            else ""
        )
        yield f"{inner}{label}{_type(field)} {field.name} = {field.number};"
    yield f"{indent}}}"


def _type(field: FieldDescriptorProto) -> str:
    return field.type_name or FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
