"""Protobuf schemas: descriptor sets, from a file, from text or from a registry, and the message types in them.

Schemas of a registry are asked for once in a process, with the files that they import.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.confinement import require_data
from millrace_jobs.schemas.proto_text import read_proto
from millrace_jobs.schemas.registry import AVRO, MOST_SCHEMAS, SchemaRegistry, referenced

MOST_BYTES = 4 << 20
"""Most bytes of a descriptor set."""

_WELL_KNOWN = "google/protobuf/"
_SHOWN = 8


@dataclass(frozen=True)
class ProtobufSchema:
    """A message type with the files that define it, as a serialized ``FileDescriptorSet``; picklable and hashable.

    Raises ValueError where it is used if the files do not fit together, or have no such message.
    """

    files: bytes
    message: str

    @cached_property
    def descriptor(self) -> Descriptor:
        """The message type."""
        return message_type(_pool(self.files), self.message)

    def __getstate__(self) -> dict[str, Any]:
        return {"files": self.files, "message": self.message}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)


def read_descriptor_file(path: str) -> bytes:
    """Return the contents of a file with a descriptor set.

    Raises MillraceError if it cannot be read, is larger than ``MOST_BYTES``, or the query may not read it.
    """
    require_data(path)
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - the path is checked as it is written
            found = file.read(MOST_BYTES + 1)
    except OSError as error:
        hint = "write the path of a file that protoc --include_imports --descriptor_set_out has written"
        message = f"the descriptor set cannot be read: {error.strerror}"
        raise MillraceError(Problem(message, hint, path)) from None
    if len(found) > MOST_BYTES:
        message = f"the descriptor set is larger than {MOST_BYTES >> 20} MiB"
        hint = "write one that has only the files that the message needs"
        raise MillraceError(Problem(message, hint, path))
    return found


def read_descriptor_text(text: str) -> bytes:
    """Return a descriptor set that is written in base64. Raises ValueError if it is not."""
    try:
        return base64.b64decode(text.replace("\n", ""), validate=True)
    except binascii.Error as error:
        raise ValueError(f"it is not base64: {error}") from None


def descriptor_set(files: Iterable[descriptor_pb2.FileDescriptorProto]) -> bytes:
    """Return files as a serialized descriptor set."""
    return descriptor_pb2.FileDescriptorSet(file=files).SerializeToString(deterministic=True)


def message_type(pool: descriptor_pool.DescriptorPool, name: str) -> Descriptor:
    """Return the message type of a full name. Raises ValueError if the pool's files do not have it."""
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError:
        raise ValueError(f"it has no message {name}") from None


def message_names(files: bytes) -> list[str]:
    """Return the full names of the messages at the top of the files of a descriptor set, but Protobuf's own."""
    found = descriptor_pb2.FileDescriptorSet.FromString(files)
    return [
        f"{file.package}.{each.name}".lstrip(".")
        for file in found.file
        for each in file.message_type
        if not file.name.startswith(_WELL_KNOWN)
    ]


def name_at(file: descriptor_pb2.FileDescriptorProto, indexes: Sequence[int]) -> str:
    """Return the full name of the message at a path of indexes, as the registry's framing counts them.

    Raises ValueError if the file has no message there.
    """
    names, within = [file.package] if file.package else [], file.message_type
    for index in indexes:
        if not 0 <= index < len(within):
            raise ValueError(f"it has no message at {'.'.join(map(str, indexes))}")
        names.append(within[index].name)
        within = within[index].nested_type
    return ".".join(names)


def check_schema(schema: ProtobufSchema) -> None:
    """Raise ValueError unless the files are a descriptor set with the message."""
    try:
        _ = schema.descriptor
    except ValueError as error:
        if not str(error).startswith("it has no message"):
            raise
        names = message_names(schema.files)
        listed = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
        raise ValueError(f"{error}; it has {listed or 'none'}") from None


def _pool(files: bytes) -> descriptor_pool.DescriptorPool:
    """Return a pool with the files of a descriptor set, in whatever order they are, and the well-known ones.

    Raises ValueError if it is no descriptor set, or a file in it does not fit the others.
    """
    if len(files) > MOST_BYTES:
        raise ValueError(f"it is larger than {MOST_BYTES >> 20} MiB")
    try:
        found = descriptor_pb2.FileDescriptorSet.FromString(files)
    except DecodeError:
        raise ValueError("it is not a descriptor set, as protoc --descriptor_set_out writes it") from None
    if not found.file:
        raise ValueError("it is empty")
    given = {file.name: file for file in found.file}
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()
    for name in given:
        _add(pool, name, given, added)
    return pool


def _add(
    pool: descriptor_pool.DescriptorPool,
    name: str,
    given: Mapping[str, descriptor_pb2.FileDescriptorProto],
    added: set[str],
) -> None:
    """Add a file to a pool after the files that it imports."""
    waiting: list[tuple[str, bool]] = [(name, False)]
    while waiting:
        each, imported = waiting.pop()
        if each in added:
            continue
        file = given.get(each) or well_known_file(each)
        if file is None:
            hint = "write the descriptor set with protoc --include_imports"
            raise ValueError(f"the file {each}, which another one imports, is not in it: {hint}")
        if not imported:
            if (each, True) in waiting:
                raise ValueError(f"the file {each} imports itself")
            waiting.append((each, True))
            waiting += [(needed, False) for needed in file.dependency if needed not in added]
            continue
        try:
            pool.Add(file)
        except TypeError as error:
            raise ValueError(f"the file {each} cannot be used: {error}") from None
        added.add(each)


def well_known_file(name: str) -> descriptor_pb2.FileDescriptorProto | None:
    """Return a file of Protobuf's own types, such as ``google/protobuf/timestamp.proto``; None for another one."""
    if not name.startswith(_WELL_KNOWN):
        return None
    from google.protobuf import (  # noqa: F401 - the import adds the files to the default pool
        any_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )

    try:
        file = descriptor_pool.Default().FindFileByName(name)
    except KeyError:
        return None
    found = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(found)
    return found


def inner_type(field: FieldDescriptor) -> Descriptor:
    """Return the message that is the type of a field."""
    assert field.message_type is not None, f"{field.full_name} is no message"
    return field.message_type


def is_map(field: FieldDescriptor) -> bool:
    """Whether a field is a map."""
    kind = field.message_type
    return bool(field.is_repeated and kind is not None and kind.GetOptions().map_entry)


@lru_cache(maxsize=MOST_SCHEMAS)
def protobuf_schema(registry: SchemaRegistry, number: int, indexes: tuple[int, ...]) -> ProtobufSchema | str:
    """Return the message at ``indexes`` of a Protobuf schema, or the reason why no message can be read by it.

    Raises MillraceError or TransientError as ``SchemaRegistry.schema`` does.
    """
    found = _protobuf_files(registry, number)
    if isinstance(found, str):
        return found
    main, files = found
    try:
        schema = ProtobufSchema(files, name_at(main, indexes))
        check_schema(schema)
    except ValueError as error:
        return f"schema {number} of the registry cannot be used: {error}"
    return schema


@lru_cache(maxsize=MOST_SCHEMAS)
def _protobuf_files(registry: SchemaRegistry, number: int) -> tuple[descriptor_pb2.FileDescriptorProto, bytes] | str:
    """Return the file of a schema, and the descriptor set of it and all that it imports."""
    document = registry.schema(number)
    if document is None:
        return f"the registry has no schema {number}"
    kind = document.get("schemaType", AVRO)
    if kind != "PROTOBUF":
        return f"schema {number} of the registry is {kind}, not Protobuf"
    try:
        main, imported = file_of(document), []
        for each in referenced(registry, document, is_known=lambda name: well_known_file(name) is not None):
            imported.append(file_of(each.document))
            imported[-1].name = each.name  # by which others import it
    except ValueError as error:
        return f"schema {number} of the registry cannot be used: {error}"
    return main, descriptor_set([*imported, main])


def file_of(document: Mapping[str, Any]) -> descriptor_pb2.FileDescriptorProto:
    """Return the file that a registry has, as serialized descriptors or as the text of a ``.proto`` file.

    Raises ValueError if it is neither.
    """
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(document["schema"], validate=True))
    except (binascii.Error, DecodeError, ValueError):  # text has characters that are not base64's
        return read_proto(document["schema"])
    file.name = file.name or "schema.proto"
    return file
