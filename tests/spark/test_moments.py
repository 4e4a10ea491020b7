"""Deviations of values that are large against them: the answer is exact arithmetic's, however they were merged."""

from __future__ import annotations

from fractions import Fraction
from math import sqrt
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from .answers import latest
from .streams import Placing, Stream
from .tables import parquet

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("name", pa.string()), ("stamp", pa.int64()), ("reading", pa.float64())])
SQL = (
    "SELECT name, stddev(stamp) AS stamps, stddev_pop(reading) AS readings, variance(reading) AS spread,"
    " stddev(CASE WHEN name = 'b' THEN reading END) AS some FROM events GROUP BY name"
)
PLACINGS: list[Placing] = [("native", 1, 2), ("shuffle", 7, 3), ("hash", 2, 1), ("pkg", 4, 2), ("native", 2, 2)]


def exact_variance(values: list[float | int], less: int) -> float:
    exact = [Fraction(value) for value in values]
    mean = sum(exact) / len(exact)
    return float(sum((value - mean) ** 2 for value in exact) / (len(exact) - less))


def test_deviations_keep_their_digits(spark: SparkSession, tmp_path: Path) -> None:
    """Sums of squares would be wrong in the fourth digit of ``stamps`` here."""
    random = np.random.default_rng(3)
    batches, seen = [], {"a": ([], []), "b": ([], [])}
    for placing in PLACINGS:
        rows = []
        for name in ("a", "b"):
            stamps = (1_700_000_000 + random.integers(0, 600, 40)).tolist()
            readings = (8_492.0 + random.normal(0, 0.6, 40)).tolist()
            rows += [(name, stamp, reading) for stamp, reading in zip(stamps, readings, strict=True)]
            seen[name][0].extend(stamps)
            seen[name][1].extend(readings)
        rows += [("empty", None, None), ("huge", None, 1e300), ("huge", None, 1e300), ("infinite", None, float("inf"))]
        batches.append((placing, parquet(SCHEMA, rows)))
    stream = Stream(spark, tmp_path, schema="name STRING, stamp BIGINT, reading DOUBLE", sql=SQL, format="parquet")
    stream.feed(batches)
    results = {row[0]: row[1:] for row in latest(stream.results(), 1)}
    assert results.pop("empty") == (None, None, None, None)
    for name in ("huge", "infinite"):  # without a finite square
        assert str(results.pop(name)) == "(None, nan, nan, None)"
    for name, (stamps, readings) in seen.items():
        expected = [sqrt(exact_variance(stamps, 1)), sqrt(exact_variance(readings, 0)), exact_variance(readings, 1)]
        assert results[name][:3] == pytest.approx(expected, rel=1e-9)
        assert results[name][3] == (pytest.approx(sqrt(expected[2]), rel=1e-9) if name == "b" else None)
