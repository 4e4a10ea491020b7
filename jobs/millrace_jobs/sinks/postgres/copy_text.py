r"""Results as the text that PostgreSQL's COPY reads, encoded by Spark in its tasks: one string of a line for each row.

So no value passes through Python: the driver sends the bytes of Arrow's strings as they are. Values are separated by
tabs, NULL is ``\N``, and a backslash, a tab or a line break in a text is escaped. The text of a value by type:

- BOOLEAN, integers, DECIMAL, DOUBLE and FLOAT, with NaN and infinity: as Spark casts it, which PostgreSQL reads exactly
- TIMESTAMP: in UTC, with its offset; years before 1 have BC, years after 9999 no sign
- BINARY: ``\x`` and hexadecimal digits
- ARRAY, STRUCT, MAP: JSON, as in Kafka messages
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from types import MappingProxyType

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional name
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from millrace_jobs.sinks.base import TIMES_AS_TEXT
from millrace_jobs.sinks.column_names import named
from millrace_jobs.sinks.databases.dialect import ColumnType

LINE = "line"
"""Name of the column with the lines."""

_JSON = {"ignoreNullFields": "false", "timeZone": "UTC", **TIMES_AS_TEXT}
_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))
_TEXTS = (StringType, CharType, VarcharType)
_NESTED = (ArrayType, StructType, MapType)
_INTEGERS: Mapping[type[DataType], tuple[str, int]] = MappingProxyType(
    {ByteType: ("smallint", 3), ShortType: ("smallint", 5), IntegerType: ("integer", 10), LongType: ("bigint", 19)}
)
"""Smallest type of PostgreSQL that holds a type of integers, and the digits that its values have."""

_HOLDS = {"int2": 5, "int4": 10, "int8": 19}


def column_type(kind: DataType) -> ColumnType | None:
    """Return the types of a table's column for a result's type; None if no column holds it."""
    if isinstance(kind, DecimalType):
        digits = (kind.precision - kind.scale, kind.scale)
        return ColumnType(f"numeric({kind.precision},{kind.scale})", frozenset({"numeric"}), digits)
    if type(kind) in _INTEGERS:
        name, integers = _INTEGERS[type(kind)]
        wide = {each for each, holds in _HOLDS.items() if holds >= integers}
        return ColumnType(name, frozenset({*wide, "numeric"}), (integers, 0))
    if isinstance(kind, _NESTED):
        return ColumnType("jsonb", frozenset({"jsonb"}))
    return next((each for kinds, each in _TYPES if isinstance(kind, kinds)), None)


_TYPES: tuple[tuple[tuple[type[DataType], ...], ColumnType], ...] = (
    ((BooleanType,), ColumnType("boolean", frozenset({"bool"}))),
    ((FloatType,), ColumnType("real", frozenset({"float4"}))),
    ((DoubleType,), ColumnType("double precision", frozenset({"float8"}))),
    (
        (StringType, CharType, VarcharType),
        ColumnType("text", frozenset({"text", "varchar", "citext", "jsonb", "uuid"})),
    ),
    ((BinaryType,), ColumnType("bytea", frozenset({"bytea"}))),
    ((DateType,), ColumnType("date", frozenset({"date"}))),
    ((TimestampType,), ColumnType("timestamp with time zone", frozenset({"timestamptz"}))),
    ((TimestampNTZType,), ColumnType("timestamp without time zone", frozenset({"timestamp"}))),
)


def lines(results: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return the results as the column ``LINE``, each row with a line break at its end."""
    fields = [F.coalesce(_text(results, name), F.lit("\\N")) for name in columns]
    return results.select(F.concat(F.concat_ws("\t", *fields), F.lit("\n")).alias(LINE))


def _text(results: DataFrame, name: str) -> Column:
    column, kind = named(name), results.schema[name].dataType
    if isinstance(kind, _NESTED):
        return _escaped(F.to_json(column, _JSON))
    if isinstance(kind, _TEXTS):
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
