"""The types of columns, each with ordinary values and with those at which readers, writers and operators go wrong.

A TIMESTAMP is a number of microseconds since 1970 and a DATE one of days, so that no time is outside of Python's range.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

Value = Any
Draw = Callable[[random.Random], Value]

SECOND = 1_000_000
DAY = 86_400 * SECOND
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros(*moment: int) -> int:
    """Return the microseconds since 1970 of year, month, day, and so on."""
    passed = datetime(*moment, tzinfo=UTC) - _EPOCH  # type: ignore[misc, arg-type]
    return (passed.days * 86_400 + passed.seconds) * SECOND + passed.microseconds


def days(*day: int) -> int:
    """Return the days since 1970 of year, month and day."""
    return (date(*day) - _EPOCH.date()).days


EARLIEST = micros(1, 1, 1)
LATEST = micros(9999, 12, 31, 23, 59, 59, 999_999)


@dataclass(frozen=True)
class Kind:
    """A type: its names in Spark and DuckDB, its Arrow type, and its values."""

    spark: str
    duckdb: str
    arrow: pa.DataType
    nasty: tuple[Value, ...]
    ordinary: Draw

    @property
    def is_integer(self) -> bool:
        return pa.types.is_integer(self.arrow)

    @property
    def is_decimal(self) -> bool:
        return pa.types.is_decimal(self.arrow)

    @property
    def is_floating(self) -> bool:
        return pa.types.is_floating(self.arrow)

    def draw(self, chance: random.Random, oddity: float = 0.4) -> Value:
        """Return a value, which is a nasty one as often as ``oddity`` says."""
        return chance.choice(self.nasty) if chance.random() < oddity else self.ordinary(chance)


def _integers(spark: str, arrow: pa.DataType) -> Kind:
    most = 2 ** (arrow.bit_width - 1)
    nasty = (0, 1, -1, most - 1, -most, *(n for n in (2**31, 2**53 + 1, -(2**53) - 1) if -most <= n < most))
    return Kind(spark, spark, arrow, nasty, lambda chance: chance.randrange(-100, 100))


def _floats(spark: str, arrow: pa.DataType) -> Kind:
    made = np.float32 if arrow == pa.float32() else np.float64
    bounds = np.finfo(made)
    odd = ["nan", "inf", "-inf", "0.0", "-0.0", "0.1", "-1.5", "1e16", "16777217", "1e-7", "123456789.125"]
    nasty = (*(float(made(text)) for text in odd), float(bounds.max), float(bounds.smallest_subnormal))
    return Kind(spark, spark, arrow, nasty, lambda chance: chance.randrange(-400, 400) / 4)


def _decimals(precision: int, scale: int) -> Kind:
    name = f"DECIMAL({precision},{scale})"

    def unscaled(number: int) -> Decimal:
        digits = tuple(int(digit) for digit in str(abs(number)))
        return Decimal((int(number < 0), digits, -scale))

    most = 10**precision - 1
    nasty = tuple(unscaled(number) for number in (0, 1, -1, most, -most, 10 ** (precision - 1), 5))
    small = min(most, 10 ** (scale + 2))
    return Kind(
        name, name, pa.decimal128(precision, scale), nasty, lambda chance: unscaled(chance.randrange(-small, small))
    )


TEXTS = ("", " ", "a", "A", "a ", " a", "é", "e\u0301", "ß", "\U0001f600", "it's", "NULL", "null", "NaN", "N/A", "true", "1",
         "0x10", "-0", "+5", "007", "1e3", "2024-01-01", "{}", "[1]", "#c", "-", "\ufeff", "\u00a0", "\u2028", "a\tb", "%", "a;b|c",
         "a,b", "x" * 300, "aGk=", "Zm9v", "İ", "\x1f", "\x7f")  # fmt: skip
"""Texts that every format holds without quoting."""
QUOTED_TEXTS = ('"', 'a"b', '""', '5" pipe', "C:\\data,old\\", 'q"\\', "\\", "\\\\", "\\N", "a\\b", '\\"', '","')
BROKEN_TEXTS = ("a\nb", "a\rb", "\r\n", "\n", "\x00")
"""Texts with line breaks, and the character 0."""

WORDS = ("oslo", "bergen", "rome", "ulm", "x", "y")
"""Texts without trouble."""
_BYTES = (b"", b"\x00", b"\xff\xfe", b"abc", b"aGk=", "é".encode(), b"\x80", bytes(range(118, 138)), b",", b'"')
_DATES = tuple(days(*day) for day in [
    (1, 1, 1), (1582, 10, 4), (1582, 10, 10), (1582, 10, 15), (1899, 12, 31), (1969, 12, 31), (1970, 1, 1), (2000, 2, 29),
    (2024, 3, 31), (2038, 1, 19), (2262, 4, 12), (9999, 12, 31),
])  # fmt: skip
_TIMES = (EARLIEST, LATEST, *(micros(*moment) for moment in [
    (1582, 10, 10), (1601, 1, 1), (1883, 11, 18, 12, 3, 58), (1969, 12, 31, 23, 59, 59, 999_999), (1970, 1, 1),
    (2016, 12, 31, 23, 59, 59, 999_999), (2024, 3, 31, 1, 30), (2024, 10, 27, 1, 0, 0, 1), (2038, 1, 19, 3, 14, 8),
    (2262, 4, 11, 23, 47, 16, 854_776), (2300, 6, 1), (9999, 12, 31),
]))  # fmt: skip

KINDS = {
    "boolean": Kind("BOOLEAN", "BOOLEAN", pa.bool_(), (True, False), lambda chance: chance.random() < 0.5),
    "tinyint": _integers("TINYINT", pa.int8()),
    "smallint": _integers("SMALLINT", pa.int16()),
    "int": _integers("INT", pa.int32()),
    "bigint": _integers("BIGINT", pa.int64()),
    "float": _floats("FLOAT", pa.float32()),
    "double": _floats("DOUBLE", pa.float64()),
    "money": _decimals(10, 2),
    "share": _decimals(5, 5),
    "huge": _decimals(38, 0),
    "fine": _decimals(38, 18),
    "string": Kind(
        "STRING", "VARCHAR", pa.string(), TEXTS + QUOTED_TEXTS + BROKEN_TEXTS, lambda chance: chance.choice(WORDS)
    ),
    "binary": Kind("BINARY", "BLOB", pa.binary(), _BYTES, lambda chance: chance.randbytes(3)),
    "date": Kind("DATE", "DATE", pa.date32(), _DATES, lambda chance: days(2024, 1, 1) + chance.randrange(400)),
    "timestamp": Kind(
        "TIMESTAMP",
        "TIMESTAMP",
        pa.timestamp("us"),
        _TIMES,
        lambda chance: micros(2024, 1, 1) + chance.randrange(400 * DAY),
    ),
}


def arrow_array(values: list[Value], arrow: pa.DataType) -> pa.Array:
    """Return values as an Arrow array."""
    if pa.types.is_timestamp(arrow):
        return pa.array(values, pa.int64()).cast(arrow)
    if pa.types.is_date32(arrow):
        return pa.array(values, pa.int32()).cast(arrow)
    return pa.array(values, arrow)


def plain_values(column: pa.ChunkedArray) -> list[Value]:
    """Return the values of a column of any Arrow type in the form that this module gives them."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", tz=kind.tz)).cast(pa.int64()).to_pylist()
    if pa.types.is_date32(kind):
        return column.cast(pa.int32()).to_pylist()
    if pa.types.is_struct(kind):
        whole = column.combine_chunks()
        fields = [plain_values(pa.chunked_array([whole.field(index)])) for index in range(kind.num_fields)]
        valid = whole.is_valid().to_pylist()
        rows = zip(*fields, strict=True)
        return [row if there else None for row, there in zip(rows, valid, strict=True)]
    return column.to_pylist()
