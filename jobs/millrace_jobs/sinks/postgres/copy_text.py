r"""Results as the text that PostgreSQL's COPY reads, encoded by Spark in its tasks: one string of a line for each row.

So no value passes through Python: the driver sends the bytes of Arrow's strings as they are. Values are separated by
tabs, NULL is ``\N``, and a backslash, a tab or a line break in a text is escaped. The text of a value by type:

- BOOLEAN, integers, DECIMAL, DOUBLE and FLOAT, with NaN and infinity: as Spark casts it, which PostgreSQL reads exactly
- TIMESTAMP: in UTC, with its offset; years before 1 have BC, years after 9999 no sign
- BINARY: ``\x`` and hexadecimal digits
- ARRAY, STRUCT, MAP: JSON, as in Kafka messages
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional name
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
    TimestampNTZType,
    TimestampType,
)

from millrace_jobs.sinks.column_names import named
from millrace_jobs.sinks.databases.column_types import JSON, NESTED, TEXTS, ColumnTypes
from millrace_jobs.sinks.databases.dialect import ColumnType

LINE = "line"
"""Name of the column with the lines."""

_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))

_TYPES = ColumnTypes(
    decimal="numeric",
    integers={ByteType: "smallint", ShortType: "smallint", IntegerType: "integer", LongType: "bigint"},
    holds={"int2": 5, "int4": 10, "int8": 19},
    others=(
        ((BooleanType,), ColumnType("boolean", frozenset({"bool"}))),
        ((FloatType,), ColumnType("real", frozenset({"float4"}))),
        ((DoubleType,), ColumnType("double precision", frozenset({"float8"}))),
        (TEXTS, ColumnType("text", frozenset({"text", "varchar", "citext", "jsonb", "uuid"}))),
        (NESTED, ColumnType("jsonb", frozenset({"jsonb"}))),
        ((BinaryType,), ColumnType("bytea", frozenset({"bytea"}))),
        ((DateType,), ColumnType("date", frozenset({"date"}))),
        ((TimestampType,), ColumnType("timestamp with time zone", frozenset({"timestamptz"}))),
        ((TimestampNTZType,), ColumnType("timestamp without time zone", frozenset({"timestamp"}))),
    ),
)


def column_type(kind: DataType) -> ColumnType | None:
    """Return the types of a table's column for a result's type; None if no column holds it."""
    return _TYPES.of(kind)


def lines(results: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return the results as the column ``LINE``, each row with a line break at its end."""
    fields = [F.coalesce(_text(results, name), F.lit("\\N")) for name in columns]
    return results.select(F.concat(F.concat_ws("\t", *fields), F.lit("\n")).alias(LINE))


def _text(results: DataFrame, name: str) -> Column:
    column, kind = named(name), results.schema[name].dataType
    if isinstance(kind, NESTED):
        return _escaped(F.to_json(column, JSON))
    if isinstance(kind, TEXTS):
        return _escaped(column)
    if isinstance(kind, BinaryType):
        return F.concat(F.lit("\\\\x"), F.hex(column))
    if isinstance(kind, TimestampType):
        return _dated(column, F.lit("+00"))
    if isinstance(kind, TimestampNTZType | DateType):
        return _dated(column, F.lit(""))
    return column.cast("string")


def _escaped(column: Column) -> Column:
    return reduce(lambda text, escape: F.replace(text, F.lit(escape[0]), F.lit(escape[1])), _ESCAPES, column)


def _dated(column: Column, zone: Column) -> Column:
    """Return the text of a time: Spark signs years before 0 and after 9999, and has a year 0, which is 1 BC."""
    text, year = column.cast("string"), F.year(column)
    rest = F.regexp_extract(text, r"^[+-]?\d+(-.*)$", 1)
    before = F.concat(F.format_string("%04d", 1 - year), rest, zone, F.lit(" BC"))
    after = F.concat(F.ltrim(text, F.lit("+")), zone)
    return F.when(year < 1, before).otherwise(after)
