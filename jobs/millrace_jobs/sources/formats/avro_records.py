"""Decoding of Avro messages to Arrow: fastavro decodes each message, Arrow converts whole columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
from fastavro import schemaless_reader
from numpy.typing import NDArray

from millrace_jobs.schemas.registry import SchemaRegistry
from millrace_jobs.sources.formats.avro_schemas import AvroSchema
from millrace_jobs.sources.formats.messages import RejectAt
from millrace_jobs.sources.formats.record_groups import FRAME, Part, by_framing, convertible, in_order
from millrace_jobs.sources.formats.registered_avro import avro_schema
from millrace_jobs.sources.formats.typed_columns import TypedColumn


class AvroDecoder:
    """Decoder of messages with one known schema, or framed by a schema registry, where each message names its schema.

    Columns are found by name and converted to the declared type, as with Parquet (``typed_columns``). A column that the
    writer did not have is NULL. ``of_connect`` as in ``read_avro_schema``.
    """

    def __init__(
        self,
        schema: pa.Schema,
        timestamp_format: str,
        writer: AvroSchema | SchemaRegistry,
        *,
        of_connect: bool = False,
    ) -> None:
        self.schema = schema
        self._of_connect = of_connect
        self._timestamp_format = timestamp_format
        self._writer = writer

    def decode(self, values: Sequence[bytes | None], reject: RejectAt) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
        """Decode a record from every message that has a value.

        Messages with a schema of which a type does not fit a column are bad: who may write to the topic may not end
        the query, unless its policy says so. Raises MillraceError if the registry does not answer.
        """
        bad: dict[int, str] = {}
        parts: list[Part] = []
        for name, writer, messages in self._by_schema(values, bad):
            try:
                columns = self._columns(writer)
            except ValueError as error:
                bad |= dict.fromkeys(messages, f"{name}: {error}")
            else:
                parts += convertible(partial(self._batch, columns), *_decoded(writer, messages, bad), bad)
        for index in sorted(bad):
            reject(index, bad[index])
        return in_order(parts, self.schema)

    def names(self, value: bytes) -> frozenset[str]:
        """Return the names of the fields that the writer of a message has; none if its schema is not known."""
        writer: AvroSchema | str
        if isinstance(self._writer, AvroSchema):
            writer = self._writer
        else:
            number = int.from_bytes(value[1:FRAME], "big")
            writer = avro_schema(self._writer, number, of_connect=self._of_connect)
        return frozenset() if isinstance(writer, str) else frozenset(writer.types)

    def check(self, writer: AvroSchema) -> None:
        """Raise ValueError unless the columns can be read from records of ``writer``."""
        for field in self.schema:
            if field.name not in writer.types:
                raise ValueError(f"column {field.name} is not in the Avro schema; it has {', '.join(writer.types)}")
        self._columns(writer)

    def _by_schema(
        self, values: Sequence[bytes | None], bad: dict[int, str]
    ) -> Iterator[tuple[str, AvroSchema, Mapping[int, bytes]]]:
        """Yield the payloads of the messages by index, grouped by schema, and what messages call the schema."""
        present = {index: value for index, value in enumerate(values) if value is not None}
        if isinstance(self._writer, AvroSchema):
            yield "the Avro schema", self._writer, present
            return
        for schema_id, messages in by_framing(present, bad):
            writer = avro_schema(self._writer, schema_id, of_connect=self._of_connect)
            if isinstance(writer, str):
                bad |= dict.fromkeys(messages, writer)
            else:
                yield f"schema {schema_id} of the registry", writer, messages

    def _columns(self, writer: AvroSchema) -> list[TypedColumn | None]:
        """Return how each column is read from records of ``writer``; None if the writer does not have it.

        Raises:
            ValueError: a type does not fit its column.
        """
        return [self._column(writer, field) for field in self.schema]

    def _column(self, writer: AvroSchema, field: pa.Field) -> TypedColumn | None:
        kind = writer.types.get(field.name)
        if kind is None:
            return None
        if isinstance(kind, str):
            message = f"column {field.name} is {kind}, which no column can hold, in the Avro schema"
            raise ValueError(f"{message}: leave {field.name} out of the schema")
        only = isinstance(self._writer, AvroSchema)
        column = TypedColumn(kind, field, self._timestamp_format, by_writer=True, only_writer=only)
        if not column.fits:
            raise ValueError(f"{column.misfit}: {column.hint}" if column.hint else column.misfit)
        return column

    def _batch(self, columns: list[TypedColumn | None], records: list[Any]) -> pa.RecordBatch:
        arrays = []
        for field, column in zip(self.schema, columns, strict=True):
            if column is None:
                arrays.append(pa.nulls(len(records), field.type))
            else:
                arrays.append(column.convert(pa.array([record[field.name] for record in records], column.found)))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _decoded(writer: AvroSchema, messages: Mapping[int, bytes], bad: dict[int, str]) -> tuple[list[Any], list[int]]:
    """Return the records of the messages that decode, and their indexes."""
    records, indexes = [], []
    for index, payload in messages.items():
        stream = BytesIO(payload)
        try:
            record = schemaless_reader(stream, writer.parsed, None)
        except EOFError:
            bad[index] = "it ends before its record does"
        except Exception as error:  # corrupt bytes can fail anywhere in fastavro: at an index, a length, a text
            bad[index] = f"it is not a record of its Avro schema: {error or type(error).__name__}"
        else:
            if left := len(payload) - stream.tell():
                bad[index] = f"{left} bytes follow its record"
                continue
            records.append(record)
            indexes.append(index)
    return records, indexes
