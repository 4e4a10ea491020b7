"""Encoding records as Avro, one record per message, without the framing of a schema registry."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import fastavro
import pyarrow as pa

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.produce.encoding import Encode
from millrace_jobs.sources.formats.avro_schema import read_avro_schema


def avro_encoder(writer_schema: str) -> Encode:
    """Return an encoder for an Avro schema given as JSON text.

    Raises:
        MillraceError: the schema is not valid. The encoder raises it for a record that does not fit the schema.
    """
    try:
        read_avro_schema(writer_schema)
    except ValueError as error:
        raise MillraceError(Problem(f"avro.writerSchema cannot be used: {error}", "correct it")) from None
    schema = fastavro.parse_schema(json.loads(writer_schema))

    def encode(records: pa.RecordBatch) -> list[bytes]:
        return [_message(write, record) for record in records.to_pylist()]

    def write(target: io.BytesIO, record: object) -> None:
        fastavro.schemaless_writer(target, schema, record)

    return encode


def _message(write: Callable[[io.BytesIO, object], None], record: dict[str, object]) -> bytes:
    target = io.BytesIO()
    try:
        write(target, record)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        message = f"record {record} does not fit avro.writerSchema: {error}"
        raise MillraceError(Problem(message, "correct the writer schema, or the schema of the input")) from None
    return target.getvalue()
