"""Types of SQL expressions: from Spark, or without it, as far as they follow from the columns that they read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
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
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types

from millrace_api.sql.dialect import StreamingSql, parse_expression


class ExpressionTypes(Protocol):
    """What the compilation of a query asks about types."""

    def of(self, columns: Mapping[str, DataType], expressions: Sequence[str]) -> list[DataType]:
        """Return the types of expressions over columns of these types."""

    def in_source(self, source: str, expression: str) -> str:
        """Return the type, as text, of an expression over a source, which may be a call of an aggregate."""


class SparkTypes:
    """The types that Spark's analyzer gives; the sources are views of its session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._found: dict[tuple[str, str], str] = {}

    def of(self, columns: Mapping[str, DataType], expressions: Sequence[str]) -> list[DataType]:
        """Return the types of expressions over columns of these types."""
        rows = self._spark.createDataFrame([], StructType([StructField(*column) for column in columns.items()]))
        return [field.dataType for field in rows.selectExpr(*expressions).schema]

    def in_source(self, source: str, expression: str) -> str:
        """Return the type, as text, of an expression over a source."""
        if (source, expression) not in self._found:
            kind = self._spark.sql(f"SELECT {expression} FROM {source}").schema[0].dataType
            self._found[source, expression] = kind.simpleString()
        return self._found[source, expression]


UNKNOWN = TimestampType()
"""The type of an expression whose type only Spark knows. No operator refuses a time: as a key, in a window, compared
or aggregated."""

_SIMPLE: Mapping[exp.DType, DataType] = {
    exp.DType.BOOLEAN: BooleanType(),
    exp.DType.TINYINT: ByteType(),
    exp.DType.SMALLINT: ShortType(),
    exp.DType.INT: IntegerType(),
    exp.DType.BIGINT: LongType(),
    exp.DType.FLOAT: FloatType(),
    exp.DType.DOUBLE: DoubleType(),
    exp.DType.TEXT: StringType(),
    exp.DType.BINARY: BinaryType(),
    exp.DType.DATE: DateType(),
}
_NESTED: Mapping[exp.DType, DataType] = {
    exp.DType.ARRAY: ArrayType(StringType()),
    exp.DType.MAP: MapType(StringType(), StringType()),
    exp.DType.STRUCT: StructType([StructField("field", StringType())]),
}
"""No operator asks for the types of what is in them."""


class DeclaredTypes:
    """The types that follow from the declared columns of the sources; ``UNKNOWN`` for all others."""

    def __init__(self, schemas: Mapping[str, pa.Schema]) -> None:
        self._columns = {
            name: {field.name.lower(): field.dataType for field in from_arrow_schema(schema)}
            for name, schema in schemas.items()
        }

    def of(self, columns: Mapping[str, DataType], expressions: Sequence[str]) -> list[DataType]:
        """Return the types of expressions over columns of these types, as far as they are known."""
        return [_type_of(text, columns) for text in expressions]

    def in_source(self, source: str, expression: str) -> str:
        """Return the type, as text, of an expression over a source, as far as it is known."""
        return _type_of(expression, self._columns[source]).simpleString()


def _type_of(text: str, columns: Mapping[str, DataType]) -> DataType:
    expression = parse_expression(text)
    if isinstance(expression, exp.Column):
        return columns.get(expression.name.lower(), UNKNOWN) if not expression.table else UNKNOWN
    for column in expression.find_all(exp.Column):
        kind = UNKNOWN if column.table else columns.get(column.name.lower(), UNKNOWN)
        column.type = exp.DType.UNKNOWN if kind is UNKNOWN else exp.DataType.build(kind.simpleString(), StreamingSql)
    try:
        found = annotate_types(expression, dialect=StreamingSql, overwrite_types=False).type
    except (SqlglotError, KeyError):  # KeyError: a field of a struct
        return UNKNOWN
    if found is None:
        return UNKNOWN
    if found.this is exp.DType.DECIMAL:
        sizes = [int(each.name) for each in found.expressions]
        return DecimalType(*sizes) if sizes else DecimalType()
    return _SIMPLE.get(found.this) or _NESTED.get(found.this, UNKNOWN)
