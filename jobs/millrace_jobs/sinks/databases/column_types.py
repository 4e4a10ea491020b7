"""The types of columns that hold the types of results, as far as the databases agree on how they are found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    CharType,
    DataType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    VarcharType,
)

from millrace_jobs.sinks.base import TIMES_AS_TEXT
from millrace_jobs.sinks.databases.dialect import ColumnType

TEXTS = (StringType, CharType, VarcharType)
"""Types of texts."""

NESTED = (ArrayType, StructType, MapType)
"""Types whose values become JSON."""

JSON = {"ignoreNullFields": "false", "timeZone": "UTC", **TIMES_AS_TEXT}
"""Options of Spark by which they do."""

_DIGITS: Mapping[type[DataType], int] = MappingProxyType({ByteType: 3, ShortType: 5, IntegerType: 10, LongType: 19})
"""Digits that the values of a type of integers have."""


@dataclass(frozen=True)
class ColumnTypes:
    """The column types of a database.

    Attributes:
        decimal: name of its decimals.
        integers: name of the smallest type that holds a type of integers.
        holds: digits of the integers that each of its types holds, by ``TableColumn.base``.
        others: what columns hold the types of results but for decimals and integers.
        most_scale: most digits after the point.
    """

    decimal: str
    integers: Mapping[type[DataType], str]
    holds: Mapping[str, int]
    others: tuple[tuple[tuple[type[DataType], ...], ColumnType], ...]
    most_scale: int = 38

    def of(self, kind: DataType) -> ColumnType | None:
        """Return the types of a table's column for a result's type; None if no column holds it."""
        if isinstance(kind, DecimalType):
            digits = (kind.precision - kind.scale, kind.scale)
            name = f"{self.decimal}({kind.precision},{kind.scale})"
            return ColumnType(name, frozenset({self.decimal}), digits) if kind.scale <= self.most_scale else None
        if (integers := _DIGITS.get(type(kind))) is not None:
            wide = {each for each, digits in self.holds.items() if digits >= integers}
            return ColumnType(self.integers[type(kind)], frozenset({*wide, self.decimal}), (integers, 0))
        return next((each for kinds, each in self.others if isinstance(kind, kinds)), None)
