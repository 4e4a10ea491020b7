"""Results as plain Python values for encoders: maps as dicts, and the types and names that a schema can have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from millrace_api.errors import MillraceError, Problem


class SingleType(NamedTuple):
    """A type of single values: in Avro's schemas, in Protobuf's (``TYPE_*`` in lower case), and one of its values.

    ``protobuf`` is None for a type whose values are messages.
    """

    avro: str | Mapping[str, str]
    protobuf: str | None
    sample: Any


SINGLE_TYPES: Mapping[type[DataType], SingleType] = MappingProxyType(
    {
        BooleanType: SingleType("boolean", "bool", True),
        ByteType: SingleType("int", "int32", 1),
        ShortType: SingleType("int", "int32", 1),
        IntegerType: SingleType("int", "int32", 1),
        LongType: SingleType("long", "int64", 1),
        FloatType: SingleType("float", "float", 0.5),
        DoubleType: SingleType("double", "double", 0.5),
        StringType: SingleType("string", "string", "a"),
        BinaryType: SingleType("bytes", "bytes", b"a"),
        DateType: SingleType({"type": "int", "logicalType": "date"}, "string", date(2024, 5, 1)),
        TimestampType: SingleType(
            {"type": "long", "logicalType": "timestamp-micros"}, None, datetime(2024, 5, 1, tzinfo=UTC)
        ),
        TimestampNTZType: SingleType(
            {"type": "long", "logicalType": "local-timestamp-micros"}, "string", datetime(2024, 5, 1)
        ),
    }
)
"""The types of single values but DECIMAL, whose type in Avro depends on its digits."""


def rows_of(values: pa.Array) -> list[dict[str, Any]]:
    """Return the rows of a column of structs.

    Raises:
        MillraceError: a time is beyond the year 9999, which neither Avro's nor Protobuf's libraries can write.
    """
    try:
        return list(values.to_pylist(maps_as_pydicts="strict"))
    except (OverflowError, ValueError) as error:
        message = f"a result cannot be written with a schema: {error}"
        raise MillraceError(Problem(message, "filter out times outside the years 1 to 9999 in the SQL")) from None


def field_name(name: str) -> str:
    """Return a column's name, if a field of Avro and Protobuf can have it.

    Raises:
        MillraceError: it cannot.
    """
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
