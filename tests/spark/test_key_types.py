"""A key of every type that a source can have, NULL and NaN among the values, under every algorithm."""

from __future__ import annotations

import random
from collections import Counter
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from millrace_jobs.partitioners.registry import ALGORITHMS

from .answers import assert_same, latest
from .streams import Placing, Stream
from .tables import parquet

pytestmark = pytest.mark.spark

NAN = float("nan")

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "STRING": (pa.string(), ["", "a", "A", "é", "日本"]),
    "BOOLEAN": (pa.bool_(), [True, False]),
    "TINYINT": (pa.int8(), [-128, 0, 127]),
    "SMALLINT": (pa.int16(), [-(2**15), 2**15 - 1]),
    "INT": (pa.int32(), [-(2**31), 0, 2**31 - 1]),
    "BIGINT": (pa.int64(), [-(2**63), -1, 2**63 - 1]),
    "FLOAT": (pa.float32(), [NAN, 0.5, -0.0, 0.0, float("inf")]),
    "DOUBLE": (pa.float64(), [NAN, 0.1, -0.0, 0.0, float("-inf"), 5e-324]),
    "DATE": (pa.date32(), [date(1, 1, 1), date(1969, 12, 31), date(2024, 2, 29)]),
    "TIMESTAMP": (
        pa.timestamp("us"),
        [datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(9999, 12, 31, 23, 59, 59, 999_999)],
    ),
    "BINARY": (pa.binary(), [b"", b"\x00", b"\x00\x00", b"\xff"]),
    "DECIMAL(5,2)": (pa.decimal128(5, 2), [Decimal("-999.99"), Decimal("0.00"), Decimal("0.01")]),
    "DECIMAL(38,0)": (pa.decimal128(38, 0), [Decimal(10**38 - 1), Decimal(-1)]),
}
NAMES = [f"k{i}" for i in range(len(VALUES))]
SCHEMA = pa.schema([(name, arrow_type) for name, (arrow_type, _) in zip(NAMES, VALUES.values(), strict=True)])
COLUMNS = ", ".join(f"{name} {spark_type}" for name, spark_type in zip(NAMES, VALUES, strict=True))
KEYS = ", ".join(NAMES)


def batches(count: int) -> list[list[tuple[Any, ...]]]:
    """Rows that differ in one column from one that is all NULL or all first values, and so collide in the others."""
    plain = [tuple([None] * len(VALUES)), tuple(values[0] for _, values in VALUES.values())]
    rows = list(plain)
    for base in plain:
        for position, (_, values) in enumerate(VALUES.values()):
            rows += [(*base[:position], value, *base[position + 1 :]) for value in [None, *values]]
    chance = random.Random(count)
    return [chance.choices(rows, k=len(rows)) for _ in range(count)]


def as_spark_groups(value: Any) -> Any:
    """Spark's equality of keys: -0.0 is 0.0, and NaN equals NaN."""
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    return value


@pytest.mark.in_turn
def test_every_algorithm_groups_by_all_types_at_once(spark, tmp_path):
    placings: list[Placing] = [(name, 7, 3) for name in ALGORITHMS]
    fed = batches(len(placings))
    stream = Stream(
        spark, tmp_path, schema=COLUMNS, sql=f"SELECT {KEYS}, count(*) AS records FROM events GROUP BY {KEYS}"
    )
    files = [parquet(SCHEMA, rows) for rows in fed]
    reports = [report for report in stream.feed(list(zip(placings, files, strict=True))) if report.rows]
    assert [report.pin.algorithm for report in reports] == [name for name, _, _ in placings]
    expected = Counter(tuple(map(as_spark_groups, row)) for rows in fed for row in rows)
    actual = {tuple(map(as_spark_groups, row[:-1])): row[-1] for row in latest(stream.results(), len(NAMES))}
    assert len(expected) > 80
    assert_same(
        [(*key, count) for key, count in actual.items()], [(*key, count) for key, count in expected.items()], len(NAMES)
    )
