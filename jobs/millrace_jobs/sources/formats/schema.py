"""Conversion of declared columns to an Arrow schema."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from millrace_api.errors import MillraceError, Problem

TIMESTAMP = pa.timestamp("us", tz="UTC")
"""Spark's TIMESTAMP: microseconds since 1970-01-01 UTC."""

_TYPES = {
    "STRING": pa.string(),
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "DATE": pa.date32(),
    "TIMESTAMP": TIMESTAMP,
    "BINARY": pa.binary(),
}
_SYNONYMS = {"BYTE": "TINYINT", "SHORT": "SMALLINT", "INTEGER": "INT", "LONG": "BIGINT", "REAL": "FLOAT"}
_DECIMAL = re.compile(r"(?:DECIMAL|DEC|NUMERIC)(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")
MAX_PRECISION = 38
"""The maximum number of digits of a DECIMAL."""


def arrow_schema(columns: Sequence[tuple[str, str]]) -> pa.Schema:
    """Return the Arrow schema of (name, Spark type) pairs; every column is nullable.

    Raises MillraceError with one problem per column whose type is not supported or whose name is a duplicate.
    """
    fields, problems = [], []
    for position, (name, spark_type) in enumerate(columns):
        arrow_type = _arrow_type(spark_type)
        if arrow_type is None:
            problems.append(
                Problem(
                    f"column {name} has the type {spark_type!r}, which a source cannot have",
                    f"write one of {', '.join(_TYPES)}, DECIMAL(precision, scale)",
                )
            )
        elif name in (earlier for earlier, _ in columns[:position]):
            problems.append(Problem(f"column {name} is declared twice", "name every column once"))
        else:
            fields.append(pa.field(name, arrow_type))
    if problems:
        raise MillraceError(*problems)
    return pa.schema(fields)


def spark_type(arrow_type: pa.DataType) -> str:
    """Return the Spark name of a type, for messages."""
    names = {known: name for name, known in _TYPES.items()}
    if pa.types.is_decimal(arrow_type):
        return f"DECIMAL({arrow_type.precision},{arrow_type.scale})"
    return names.get(arrow_type, str(arrow_type))


def _arrow_type(spark_type: str) -> pa.DataType | None:
    text = spark_type.strip().upper()
    if match := _DECIMAL.fullmatch(text):
        precision, scale = int(match[1] or 10), int(match[2] or 0)
        if 1 <= precision <= MAX_PRECISION and scale <= precision:
            return pa.decimal128(precision, scale)
        return None
    return _TYPES.get(_SYNONYMS.get(text, text))
