"""Avro schemas of a registry by their ids, each asked for once in a process: an id never gets another schema."""

from __future__ import annotations

from functools import lru_cache

from millrace_jobs.schemas.references import AVRO, MOST_SCHEMAS, referenced
from millrace_jobs.schemas.registry import SchemaRegistry
from millrace_jobs.sources.formats.avro_schemas import AvroSchema, read_avro_schema


@lru_cache(maxsize=MOST_SCHEMAS)
def avro_schema(registry: SchemaRegistry, number: int, *, of_connect: bool = False) -> AvroSchema | str:
    """Return an Avro schema, with those that it refers to, or the reason why no record can be read by it.

    ``of_connect`` as in ``read_avro_schema``.

    Raises:
        MillraceError, TransientError: as ``SchemaRegistry.schema`` does.
    """
    document = registry.schema(number)
    if document is None:
        return f"the registry has no schema {number}"
    kind = document.get("schemaType", AVRO)
    if kind != AVRO:
        return f"schema {number} of the registry is {kind}, not Avro"
    try:
        named = [each.document["schema"] for each in referenced(registry, document)]
        return read_avro_schema(document["schema"], named, of_connect=of_connect)
    except ValueError as error:
        hint = "write the messages with the schema of a record"
        return f"schema {number} of the registry cannot be used: {error}: {hint}"
