"""The text of a Protobuf file with the messages of results, as a ``.proto`` file has it."""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf import descriptor_pb2

_FIELD = descriptor_pb2.FieldDescriptorProto


def written_proto(file: descriptor_pb2.FileDescriptorProto) -> str:
    """Return the text of a file of ``protobuf_results.message_file``: messages, maps and reserved numbers."""
    lines = ['syntax = "proto3";']
    lines += [f"package {file.package};"] if file.package else []
    lines += [f'import "{name}";' for name in file.dependency]
    for message in file.message_type:
        lines += _message(message, "")
    return "\n".join(lines) + "\n"


def _message(message: descriptor_pb2.DescriptorProto, indent: str) -> Iterator[str]:
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
        label = "repeated " if field.label == _FIELD.LABEL_REPEATED else "optional " if field.proto3_optional else ""
        yield f"{inner}{label}{_type(field)} {field.name} = {field.number};"
    yield f"{indent}}}"


def _type(field: descriptor_pb2.FieldDescriptorProto) -> str:
    return field.type_name or _FIELD.Type.Name(field.type).removeprefix("TYPE_").lower()
