"""Avro messages by one schema, and what a decoder makes of them."""

import io
import json
import pickle

import fastavro
import pyarrow as pa

from arrow_schemas import a_schema
from millrace_jobs.sources.formats.avro_records import AvroDecoder, read_avro_schema, spark_type_of


def written(text, record):
    """A message as fastavro writes it."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(text)), record)
    return stream.getvalue()


def decoder_of(text, columns=None, timestamp_format="iso"):
    writer = read_avro_schema(text)
    types = {name: spark_type_of(kind) for name, kind in writer.types.items() if not isinstance(kind, str)}
    schema = pa.schema(list(types.items())) if columns is None else a_schema(columns)
    decoder = AvroDecoder(schema, timestamp_format, writer)
    decoder.check(writer)
    return pickle.loads(pickle.dumps(decoder))


def decoded(decoder, values):
    bad = {}
    records, origins = decoder.decode(values, lambda index, reason: bad.update({index: reason}))
    records.validate(full=True)
    return records.to_pylist(), origins.tolist(), bad


def field(kind):
    """An Avro schema with one field of this type."""
    return json.dumps({"type": "record", "name": "T", "fields": [{"name": "a", "type": kind}]})
