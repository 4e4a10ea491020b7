r"""Results as rows of an INSERT, encoded by Spark in its tasks: one text ``(1,'a',NULL),`` for each row.

So no value passes through Python: the driver sends the bytes of Arrow's strings as they are. LOAD DATA LOCAL would be a
little less text, but many servers refuse it, and it turns every error of a value into a warning. The text of a value:

- BOOLEAN and integers: as Spark casts it
- FLOAT, DOUBLE: with an exponent, which MySQL reads exactly; NaN and infinity as a number that it refuses
- DECIMAL: in quotes, so that MySQL reads it as a decimal even with an exponent
- STRING: in quotes, with backslashes and quotes escaped, which the sessions' ``sql_mode`` allows
- TIMESTAMP, TIMESTAMP_NTZ: in UTC, as sessions have it
- BINARY: hexadecimal digits
- ARRAY, STRUCT, MAP: JSON, as in Kafka messages
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional name
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from millrace_jobs.sinks.base import named
from millrace_jobs.sinks.databases.dialect import JSON, NESTED, PART, TEXTS, ColumnType, ColumnTypes
from millrace_jobs.tables.changes import WEIGHT

ROWS = "row"
"""Name of the column with the rows."""

DIGEST = "millrace_digest"
"""Staged column of weighted changes: rows are the same exactly if it is, whatever the collations of their columns."""

TEXT = "longtext CHARACTER SET utf8mb4"
"""The type for texts of any length, in any language."""

_DOCUMENT = ColumnType("json", frozenset({"json", "longtext"}))
_EXACT_DOCUMENT = ColumnType(
    TEXT, frozenset({"longtext"}), lossy={"json": "in which MySQL changes FLOAT, DOUBLE and DECIMAL"}
)
"""MySQL reads all of JSON's numbers but integers of 64 bits as doubles, not always as the closest one, and without a
warning (its bug 116160). MariaDB keeps JSON as its text, and reports the type as longtext."""


_TYPES = ColumnTypes(
    decimal="decimal",
    integers={ByteType: "tinyint", ShortType: "smallint", IntegerType: "int", LongType: "bigint"},
    holds={"tinyint": 3, "smallint": 5, "mediumint": 7, "int": 10, "bigint": 19},
    others=(
        ((BooleanType,), ColumnType("tinyint(1)", frozenset({"tinyint"}))),
        ((FloatType,), ColumnType("float", frozenset({"float"}))),
        ((DoubleType,), ColumnType("double", frozenset({"double"}))),
        (TEXTS, ColumnType(TEXT, frozenset({"varchar", "tinytext", "text", "mediumtext", "longtext", "json"}))),
        ((BinaryType,), ColumnType("longblob", frozenset({"varbinary", "tinyblob", "blob", "mediumblob", "longblob"}))),
        ((DateType,), ColumnType("date", frozenset({"date"}))),
        ((TimestampType,), ColumnType("datetime(6)", frozenset({"datetime(6)", "timestamp(6)"}))),
        ((TimestampNTZType,), ColumnType("datetime(6)", frozenset({"datetime(6)"}))),
    ),
    most_scale=30,
)


def column_type(kind: DataType) -> ColumnType | None:
    """Return the types of a table's column for a result's type; None if no column holds it."""
    if isinstance(kind, NESTED):
        return _EXACT_DOCUMENT if _has_inexact(kind) else _DOCUMENT
    return _TYPES.of(kind)


def _has_inexact(kind: DataType) -> bool:
    """Return whether values of a type have FLOAT, DOUBLE or DECIMAL in them; keys of maps are texts in JSON."""
    if isinstance(kind, ArrayType):
        return _has_inexact(kind.elementType)
    if isinstance(kind, MapType):
        return _has_inexact(kind.valueType)
    if isinstance(kind, StructType):
        return any(_has_inexact(each.dataType) for each in kind)
    return isinstance(kind, FloatType | DoubleType | DecimalType)


def rows(results: DataFrame, columns: Sequence[str], mark: str | None) -> DataFrame:
    """Return the results as the column ``ROWS``, each row with a comma at its end; weighted changes with DIGEST."""
    fields = [F.coalesce(_literal(results, name), F.lit("NULL")) for name in columns]
    if mark == WEIGHT:
        values = [field for field, name in zip(fields, columns, strict=True) if name not in (WEIGHT, PART)]
        fields.append(F.concat(F.lit("x'"), F.sha2(F.concat_ws(",", *values), 256), F.lit("'")))
    return results.select(F.concat(F.lit("("), F.concat_ws(",", *fields), F.lit("),")).alias(ROWS))


def _literal(results: DataFrame, name: str) -> Column:
    column, kind = named(name), results.schema[name].dataType
    if isinstance(kind, NESTED):
        return _quoted(_escaped(F.to_json(column, JSON)))
    if isinstance(kind, TEXTS):
        return _quoted(_escaped(column))
    if isinstance(kind, BinaryType):
        return F.concat(F.lit("x"), _quoted(F.hex(column)))
    if isinstance(kind, TimestampType | TimestampNTZType | DateType | DecimalType):
        return _quoted(column.cast("string"))
    if isinstance(kind, FloatType | DoubleType):
        number = column.cast("double")
        text = number.cast("string")
        is_none = F.isnan(number) | (F.abs(number) == float("inf"))
        return (
            F.when(is_none, F.lit("1e999"))
            .when(F.contains(text, F.lit("E")), text)
            .otherwise(F.concat(text, F.lit("E0")))
        )
    return column.cast("string")


def _quoted(text: Column) -> Column:
    return F.concat(F.lit("'"), text, F.lit("'"))


def _escaped(text: Column) -> Column:
    return F.replace(F.replace(text, F.lit("\\"), F.lit("\\\\")), F.lit("'"), F.lit("''"))
