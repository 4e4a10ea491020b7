"""Protobuf schemas of a registry by their ids, each asked for once in a process, with the files that they import."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError

from millrace_jobs.schemas.proto_text import read_proto
from millrace_jobs.schemas.protobuf_schemas import (
    ProtobufSchema,
    check_schema,
    descriptor_set,
    name_at,
    well_known_file,
)
from millrace_jobs.schemas.references import AVRO, MOST_SCHEMAS, Referenced, referenced
from millrace_jobs.schemas.registry import SchemaRegistry


@lru_cache(maxsize=MOST_SCHEMAS)
def protobuf_schema(registry: SchemaRegistry, number: int, indexes: tuple[int, ...]) -> ProtobufSchema | str:
    """Return the message at ``indexes`` of a Protobuf schema, or the reason why no message can be read by it.

    Raises:
        MillraceError, TransientError: as ``SchemaRegistry.schema`` does.
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
        main = file_of(document)
        imported = [_imported(each) for each in referenced(registry, document, is_known=_is_well_known)]
    except ValueError as error:
        return f"schema {number} of the registry cannot be used: {error}"
    return main, descriptor_set([*imported, main])


def _imported(found: Referenced) -> descriptor_pb2.FileDescriptorProto:
    """Return the file of a schema under the name by which others import it."""
    file = file_of(found.document)
    file.name = found.name
    return file


def file_of(document: Mapping[str, Any]) -> descriptor_pb2.FileDescriptorProto:
    """Return the file that a registry has, as serialized descriptors or as the text of a ``.proto`` file.

    Raises:
        ValueError: it is neither.
    """
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(document["schema"], validate=True))
    except (binascii.Error, DecodeError, ValueError):  # text has characters that are not base64's
        return read_proto(document["schema"])
    file.name = file.name or "schema.proto"
    return file


def _is_well_known(name: str) -> bool:
    return well_known_file(name) is not None
