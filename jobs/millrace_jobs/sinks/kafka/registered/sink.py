"""The sink that appends results to a Kafka topic as values with a schema of a registry.

The schema is found or registered before the first batch, or refused with what the registry says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional name
from pyspark.sql import types as T  # noqa: N812 - the conventional name
from pyspark.sql.types import DataType, StructType

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.registries import ResultSchemas
from millrace_jobs.schemas.registry import RefusedSchemaError, RegistryCredentials, SchemaRegistry
from millrace_jobs.sinks.base import LastBatch, ResultKeys, named
from millrace_jobs.sinks.kafka.messages import key_column
from millrace_jobs.sinks.kafka.producer import Outgoing
from millrace_jobs.sinks.kafka.sink import AppendSink
from millrace_jobs.sinks.kafka.topic import TargetTopic

Encode = Callable[[Mapping[str, Any]], bytes]
"""Returns a result, as Arrow gives it to Python, as bytes without framing; raises ValueError if it does not fit."""

_CHUNK = 10_000


class SingleType(NamedTuple):
    """A type of single values: in Avro's schemas, in Protobuf's (``TYPE_*`` in lower case), and one of its values.

    ``protobuf`` is None for a type whose values are messages.
    """

    avro: str | Mapping[str, str]
    protobuf: str | None
    sample: Any


SINGLE_TYPES: Mapping[type[DataType], SingleType] = {
    T.BooleanType: SingleType("boolean", "bool", True),
    T.ByteType: SingleType("int", "int32", 1),
    T.ShortType: SingleType("int", "int32", 1),
    T.IntegerType: SingleType("int", "int32", 1),
    T.LongType: SingleType("long", "int64", 1),
    T.FloatType: SingleType("float", "float", 0.5),
    T.DoubleType: SingleType("double", "double", 0.5),
    T.StringType: SingleType("string", "string", "a"),
    T.BinaryType: SingleType("bytes", "bytes", b"a"),
    T.DateType: SingleType({"type": "int", "logicalType": "date"}, "string", date(2024, 5, 1)),
    T.TimestampType: SingleType(
        {"type": "long", "logicalType": "timestamp-micros"}, None, datetime(2024, 5, 1, tzinfo=UTC)
    ),
    T.TimestampNTZType: SingleType(
        {"type": "long", "logicalType": "local-timestamp-micros"}, "string", datetime(2024, 5, 1)
    ),
}
"""The types of single values but DECIMAL, whose type in Avro depends on its digits."""


def rows_of(values: pa.Array) -> list[dict[str, Any]]:
    """Return the rows of a column of structs.

    Raises MillraceError if a time is beyond the year 9999, which neither Avro's nor Protobuf's libraries can write.
    """
    try:
        return list(values.to_pylist(maps_as_pydicts="strict"))
    except (OverflowError, ValueError) as error:
        message = f"a result cannot be written with a schema: {error}"
        raise MillraceError(Problem(message, "filter out times outside the years 1 to 9999 in the SQL")) from None


def field_name(name: str) -> str:
    """Return a column's name, if a field of Avro and Protobuf can have it. Raises MillraceError if it cannot."""
    if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
        message = f"column {name} cannot be a field of a schema"
        raise MillraceError(Problem(message, "name it with letters, digits and _, such as AS fare_sum"))
    return name


def unsupported(column: str, kind: object, format: str) -> MillraceError:
    """Return the error for a column that a format has no type for."""
    shown = kind.simpleString() if hasattr(kind, "simpleString") else str(kind)
    message = f"column {column} is {shown}, which cannot be written in {format}"
    return MillraceError(
        Problem(message, f"convert it in the SQL, such as CAST({column} AS STRING) or to_json({column})")
    )


class ResultFormat(Protocol):
    """A format of messages with a schema."""

    kind: str
    """The registry's name of the format."""

    def latest(self, registry: SchemaRegistry, document: Mapping[str, Any]) -> Any:
        """Return the schema that is the latest version of a subject. Raises ValueError if it cannot be used."""
        ...

    def derived(self, columns: StructType, record: str, latest: Any | None) -> Any:
        """Return the schema of results, given the latest version of its subject."""
        ...

    def text(self, schema: Any) -> str:
        """Return a schema as it is registered."""
        ...

    def encoder(self, columns: StructType, record: str, schema: Any) -> tuple[bytes, Encode]:
        """Return what stands between id and value in the framing, and what encodes results by a schema.

        Raises ValueError if results do not fit the schema.
        """
        ...


def record_name(query: str) -> str:
    """Return the name of a query's record, if its sink names none."""
    return "millrace." + "".join(part.capitalize() for part in query.replace(".", "-").split("-"))


@dataclass(frozen=True)
class ResultSchema:
    """Which schema the results of a query have in a registry.

    ``field`` is that of the sink's ``schemas``.
    """

    format: ResultFormat
    spec: ResultSchemas
    topic: str
    record: str
    columns: StructType
    field: str = "spec.sink.kafka.schemas"

    @property
    def subject(self) -> str:
        """The subject of the schema."""
        return self.spec.subject(self.topic, self.record)

    def registry(self) -> SchemaRegistry:
        """Return the registry. Raises MillraceError if its URL is none."""
        return SchemaRegistry(self.spec.registry, RegistryCredentials.of(self.spec.login), f"{self.field}.registry")

    def writer(self) -> Encode:
        """Return what encodes results with the registry's framing; register the schema, if the sink is to.

        Raises:
            MillraceError: the registry does not have the schema, or does not accept it, or results do not fit it.
            TransientError: the registry does not answer.
        """
        registry = self.registry()
        latest = registry.version(self.subject, "latest")
        try:
            if latest is not None and (kind := latest.get("schemaType", "AVRO")) != self.format.kind:
                raise ValueError(f"it is {kind}, not {self.format.kind}")
            schema = None if latest is None else self.format.latest(registry, latest)
            if self.spec.register_schema:
                schema = self.format.derived(self.columns, self.record, schema)
                body = {"schema": self.format.text(schema), "schemaType": self.format.kind}
                number = self._registered(registry, body)
            elif latest is None:
                hint = "register a schema there, or write register: true"
                raise self._problem(f"the subject {self.subject} has no schema in the registry", hint)
            elif isinstance(known := latest.get("id"), int):
                number = known
            else:
                message = f"the registry's answer for the subject {self.subject} has no id"
                raise self._problem(message, "check the registry")
            between, encode = self.format.encoder(self.columns, self.record, schema)
        except ValueError as error:
            message = f"the results do not fit the schema of the subject {self.subject}: {error}"
            raise self._problem(message, "select columns with its names and types, or write another topic") from None
        frame = b"\0" + number.to_bytes(4, "big") + between
        return lambda row: frame + self._encoded(encode, row)

    def _registered(self, registry: SchemaRegistry, schema: dict[str, Any]) -> int:
        known = registry.registered(self.subject, schema)
        if known is not None:
            return known
        objections = registry.objections(self.subject, schema)
        if objections:
            raise self._incompatible(objections)
        try:
            return registry.register(self.subject, schema)
        except RefusedSchemaError as error:
            raise self._incompatible(str(error)) from None

    def _incompatible(self, said: str) -> MillraceError:
        message = f"the subject {self.subject} does not accept the schema of the results: {said}"
        hint = "keep the names and types of the columns that it has, or write another topic or record"
        return self._problem(message, f"{hint}, or change the compatibility of the subject")

    def _encoded(self, encode: Encode, row: Mapping[str, Any]) -> bytes:
        try:
            return encode(row)
        except ValueError as error:
            message = f"a result does not fit the schema of the subject {self.subject}: {error}"
            raise self._problem(message, "convert it in the SQL, or filter it out") from None

    def _problem(self, message: str, hint: str) -> MillraceError:
        return MillraceError(Problem(message, hint, field=self.field))


class RegisteredSink(AppendSink):
    """An ``AppendSink`` whose values are Avro or Protobuf with the framing of a schema registry; keys are JSON."""

    def __init__(
        self, topic: TargetTopic, keys: ResultKeys, query: str, checkpoint_id: str, schema: ResultSchema
    ) -> None:
        super().__init__(topic, keys, query, checkpoint_id)
        self.schema = schema
        self._encode: Encode | None = None

    def prepare(self, last: LastBatch) -> None:
        """Find or register the schema before anything is written, and take over the topic's transactions."""
        self._encode = self.schema.writer()
        super().prepare(last)

    def _encoded(self, results: DataFrame) -> DataFrame:
        columns = [named(name) for name in self.schema.columns.names]
        return results.select(key_column(results, self._keys).alias("key"), F.struct(*columns).alias("value"))

    def _messages(self, fetched: pa.RecordBatch) -> Iterator[Outgoing]:
        assert self._encode is not None
        for start in range(0, fetched.num_rows, _CHUNK):
            chunk = fetched.slice(start, _CHUNK)
            keys = chunk.column("key").to_pylist()
            for key, row in zip(keys, rows_of(chunk.column("value")), strict=True):
                yield Outgoing(key, self._encode(row))
