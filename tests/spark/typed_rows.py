"""Rows of every type, with values at the edges of each."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

ROWS = 150


def edges(bits: int) -> list[int]:
    return [0, 1, -1, 2, 7, 100, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))]


TEXTS = ["", "a", "A", "b", "ab", "a ", "é", "e\u0301", "ß", "\uffff", "\U0001f600", "it's", "a\\b", "a\nb", "%",
         "Straße", "ΟΔΟΣ ΑΣ.", "İi", "ŉ", "ǆ", "ᾳ", "ﬁ", "x\U0001f600y\U0001f600z"]  # fmt: skip
FLOATS = [0.0, -0.0, 1.0, -1.5, 0.1, 1e-40, 3.4e38, float("inf"), float("-inf"), float("nan"), 16777217.0]
DOUBLES = [*FLOATS, 1.7e308, 5e-324, 2.0**53, 2.0**53 + 2, 2.0**63]
LONGS = [*edges(64), 2**53, 2**53 + 1, -(2**53) - 1, 2**31, 10**18]
TIMES = [
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(2013, 1, 1, 5, 15, tzinfo=UTC),
    datetime(2013, 1, 1, 5, 15, 0, 500_000, tzinfo=UTC),
    datetime(2013, 1, 1, 5, 15, 0, 1, tzinfo=UTC),
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(1582, 10, 10, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
]
KINDS: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
    "t": (pa.int8(), edges(8)),
    "h": (pa.int16(), edges(16)),
    "i": (pa.int32(), edges(32)),
    "l": (pa.int64(), LONGS),
    "f": (pa.float32(), FLOATS),
    "d": (pa.float64(), DOUBLES),
    "s": (pa.string(), TEXTS),
    "p": (pa.bool_(), [True, False]),
    "y": (pa.date32(), [date(1970, 1, 1), date(1969, 12, 31), date(2013, 1, 1), date(1, 1, 1)]),
    "at": (pa.timestamp("us", tz="UTC"), TIMES),
    "c": (pa.decimal128(10, 2), [Decimal("0.00"), Decimal("-1.50"), Decimal("99999999.99")]),
    "n": (pa.int32(), [0, 1, -1, 2, 7, 100, -100]),
    "m": (pa.int64(), [0, 1, -1, 3, -8, 1000]),
    "k": (pa.decimal128(5, 3), [Decimal("0.000"), Decimal("-1.005"), Decimal("99.999")]),
    "b": (pa.binary(), [b"", b"\x00", b"\x7f", b"\x80", b"\xff\x00"]),
}
"""Each type with values at its edges, by the name of the first of its two columns.

The values of ``n``, ``m`` and ``k`` are small enough for arithmetic without overflow.
"""


def made_rows() -> pa.Table:
    """Return two columns of each type, ``i`` and ``i2`` and so on, with NULL in one of eight places."""
    chance = random.Random(20130101)
    columns = {}
    for name, (kind, values) in KINDS.items():
        for column in (name, f"{name}2"):
            drawn = [None if chance.random() < 0.125 else chance.choice(values) for _ in range(ROWS)]
            columns[column] = pa.array(drawn, kind)
    return pa.table(columns)


TABLE = made_rows()
(BATCH,) = TABLE.to_batches()
