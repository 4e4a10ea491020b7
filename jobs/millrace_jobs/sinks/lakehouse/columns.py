"""Columns of results as columns of a table: their types in Arrow, and what a table that exists has to have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812 - the conventional name
from pyspark.sql.types import DataType, StructType

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.lakehouse import SchemaEvolution
from millrace_api.sql.name_checks import repeated_name

_PRIMITIVES: Mapping[type[DataType], pa.DataType] = {
    T.BooleanType: pa.bool_(),
    T.ByteType: pa.int8(),
    T.ShortType: pa.int16(),
    T.IntegerType: pa.int32(),
    T.LongType: pa.int64(),
    T.FloatType: pa.float32(),
    T.DoubleType: pa.float64(),
    T.StringType: pa.string(),
    T.CharType: pa.string(),
    T.VarcharType: pa.string(),
    T.BinaryType: pa.binary(),
    T.DateType: pa.date32(),
    T.TimestampType: pa.timestamp("us", "UTC"),
    T.TimestampNTZType: pa.timestamp("us"),
}

_SQL: Mapping[pa.DataType, str] = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    pa.timestamp("us", "UTC"): "TIMESTAMP",
    pa.timestamp("us"): "TIMESTAMP_NTZ",
}

PARTITIONING = (pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.string(), pa.date32())
"""Types of columns that a table can be partitioned by: those whose values have one text."""

_ODD_CHARACTERS = frozenset(" ,;{}()\n\t=")
"""Characters that other engines refuse in the name of a table's column."""


@dataclass(frozen=True)
class TargetColumns:
    """The columns of a table that results go to.

    ``schema`` has those of the result with the types of the table; ``added`` those of them that the table lacks yet.
    """

    schema: pa.Schema
    added: tuple[pa.Field, ...] = ()


def result_schema(results: StructType, partition_by: Sequence[str], sort_by: Sequence[str], field: str) -> pa.Schema:
    """Return the columns of the results as a table would have them, which may all be NULL.

    Raises MillraceError if a table has no type for a column, cannot have its name, or cannot be partitioned as
    ``field`` says.
    """
    if (repeated := repeated_name(results.names)) is not None:
        raise MillraceError(Problem(*repeated, field=field))
    problems = []
    for column in results:
        name = column.name
        if arrow_type(column.dataType) is None:
            message = f"column {name} is {column.dataType.simpleString().upper()}, for which a table has no type"
            hint = f"cast it in the SELECT list, as in CAST({name} AS STRING) AS {name}"
            problems.append(Problem(message, hint, field=field))
        elif not _ODD_CHARACTERS.isdisjoint(name):
            message = f'a table cannot have a column with the name "{name}"'
            hint = f"give it a name of letters, digits and underscores, as in SELECT `{name}` AS a_name"
            problems.append(Problem(message, hint, field=field))
    if problems:
        raise MillraceError(*problems)
    schema = pa.schema([pa.field(each.name, arrow_type(each.dataType)) for each in results])
    _require_columns(schema, partition_by, f"{field}.partitionBy")
    _require_columns(schema, sort_by, f"{field}.sortBy")
    for name in partition_by:
        if schema.field(name).type not in PARTITIONING:
            message = f"the table cannot be partitioned by {name}, which is {sql_type(schema.field(name).type)}"
            hint = "partition it by a BOOLEAN, integer, STRING or DATE column, such as CAST(at AS DATE) AS day"
            raise MillraceError(Problem(message, hint, field=f"{field}.partitionBy"))
    if partition_by and set(partition_by) == set(schema.names):
        message = "the table is partitioned by all of its columns"
        raise MillraceError(Problem(message, "leave one out", field=f"{field}.partitionBy"))
    return schema


def require_key(schema: pa.Schema, key: Sequence[str], field: str) -> None:
    """Check that rows can be identified by these columns.

    Raises MillraceError if values of a column that are equal in SQL are not equal in the table's library.
    """
    for name in key:
        kind = schema.field(name).type
        if pa.types.is_floating(kind) or pa.types.is_nested(kind):
            message = f"{name} is {sql_type(kind)}, whose values cannot identify a row of the table"
            hint = f"cast it in the SELECT list, as in CAST({name} AS STRING) AS {name}, or leave it out of the key"
            raise MillraceError(Problem(message, hint, field=f"{field}.key"))


def match_columns(
    result: pa.Schema, table: pa.Schema, name: str, key: Sequence[str], evolution: SchemaEvolution, field: str
) -> TargetColumns:
    """Return the columns that are written to a table that exists.

    Args:
        result: columns of the results, as from ``result_schema``.
        table: columns of the table.
        name: the table in SQL.
        key: columns in which no result is NULL.
        evolution: what happens to columns that the table lacks.
        field: the field of the spec that describes the table.

    Raises MillraceError if the table does not suit the results, with the SQL that changes it.
    """
    problems, columns, added = [], [], []
    for wanted in result:
        if wanted.name not in table.names:
            others = [each for each in table.names if each.lower() == wanted.name.lower()]
            kind = sql_type(wanted.type)
            if others:
                message = f"the table has no column {wanted.name}, but {others[0]}"
                problems.append(Problem(message, f"write AS {others[0]} in the SELECT list", field=field))
            elif evolution is SchemaEvolution.REFUSE:
                message = f"the table has no column {wanted.name}, which is {kind} in the result"
                hint = f"ALTER TABLE {name} ADD COLUMN `{wanted.name}` {kind}; or write schemaEvolution: AddColumns"
                problems.append(Problem(message, hint, field=field))
            added.append(wanted)
            columns.append(wanted)
            continue
        found = table.field(wanted.name)
        if not _holds(found.type, wanted.type):
            has, given = sql_type(found.type), sql_type(wanted.type)
            message = f"column {wanted.name} of the table is {has}, and the result has {given}"
            cast = f"CAST({wanted.name} AS {has}) AS {wanted.name}"
            hint = f"write {cast} in the SELECT list, or ALTER TABLE {name} ALTER COLUMN `{wanted.name}` TYPE {given};"
            problems.append(Problem(message, hint, field=field))
        columns.append(pa.field(wanted.name, found.type, metadata=found.metadata))
    for each in table:
        if not each.nullable and each.name not in key:
            has = "may be NULL in the result" if each.name in result.names else "is not in the result"
            hint = f"ALTER TABLE {name} ALTER COLUMN `{each.name}` DROP NOT NULL;"
            problems.append(Problem(f"column {each.name} of the table is NOT NULL, and {has}", hint, field=field))
    if problems:
        raise MillraceError(*problems)
    return TargetColumns(pa.schema(columns), tuple(added))


def arrow_type(kind: DataType) -> pa.DataType | None:
    """Return the type of a table's column for a type of results; None if a table has none."""
    if isinstance(kind, T.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, T.ArrayType):
        element = arrow_type(kind.elementType)
        return None if element is None else pa.list_(element)
    if isinstance(kind, T.MapType):
        key, value = arrow_type(kind.keyType), arrow_type(kind.valueType)
        return None if key is None or value is None else pa.map_(key, value)
    if isinstance(kind, StructType):
        fields = [(each.name, arrow_type(each.dataType)) for each in kind]
        known = [pa.field(name, each) for name, each in fields if each is not None]
        return pa.struct(known) if known and len(known) == len(fields) else None
    return _PRIMITIVES.get(type(kind))


def sql_type(kind: pa.DataType) -> str:
    """Return the name of a type in SQL."""
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"ARRAY<{sql_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"MAP<{sql_type(kind.key_type)},{sql_type(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"STRUCT<{','.join(f'{each.name}:{sql_type(each.type)}' for each in kind)}>"
    return _SQL.get(kind, str(kind).upper())


def _holds(table: pa.DataType, result: pa.DataType) -> bool:
    """Return whether a column holds all values of the result's type, without a change."""
    if pa.types.is_signed_integer(table) and pa.types.is_signed_integer(result):
        return bool(table.bit_width >= result.bit_width)
    return sql_type(table) == sql_type(result)


def _require_columns(schema: pa.Schema, names: Sequence[str], field: str) -> None:
    for name in names:
        if name not in schema.names:
            message = f'the result has no column "{name}"'
            raise MillraceError(Problem(message, f"write one of {', '.join(schema.names)}", field=field))
