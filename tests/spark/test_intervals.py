"""Spark itself about the lengths of time that the parser without it accepts and refuses."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from py4j.java_gateway import get_field
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from interval_texts import INTERVALS, REFUSED_INTERVALS, REFUSED_WINDOWS, WINDOWS, random_text
from millrace_api.sql.intervals import Interval, LengthError, parse_interval

pytestmark = pytest.mark.spark

AT = "timestamp'2026-01-01 00:00:00' AS at, 1 AS n"


@pytest.mark.parametrize(("lengths", "expected"), WINDOWS.items())
def test_spark_accepts_the_window_lengths_that_the_parser_accepts(
    spark: SparkSession, lengths: str, expected: tuple[int, int, int]
) -> None:
    times = spark.sql(f"SELECT window(at, {lengths}) AS w FROM (SELECT {AT})")
    size, slide, start = expected
    rows = times.selectExpr("unix_micros(w.start) AS since", "unix_micros(w.end) AS until").collect()
    assert len(rows) == size // slide
    assert {row.until - row.since for row in rows} == {size}
    assert {(row.since - start) % slide for row in rows} == {0}


@pytest.mark.parametrize("lengths", REFUSED_WINDOWS)
def test_spark_refuses_the_window_lengths_that_the_parser_refuses(spark: SparkSession, lengths: str) -> None:
    with pytest.raises(PySparkException):
        spark.sql(f"SELECT window(at, {lengths}) AS w FROM (SELECT {AT})")


@pytest.mark.parametrize(("literal", "micros"), INTERVALS.items())
def test_spark_has_the_same_length_for_a_constant_interval(spark: SparkSession, literal: str, micros: int) -> None:
    [row] = spark.sql(f"SELECT at + {literal} - at AS length FROM (SELECT {AT})").collect()
    assert row.length == timedelta(microseconds=micros)


@pytest.mark.parametrize("literal", REFUSED_INTERVALS)
def test_spark_refuses_the_intervals_that_the_parser_refuses(spark: SparkSession, literal: str) -> None:
    with pytest.raises(PySparkException):
        spark.sql(f"SELECT at + {literal} AS t FROM (SELECT {AT})")


def test_the_parser_agrees_with_spark_on_generated_texts(spark: SparkSession) -> None:
    """Spark's parser and ours give the same interval, or refuse the same text."""
    jvm = spark._jvm
    assert jvm is not None
    spark_s, utf8 = jvm.org.apache.spark.sql.catalyst.util.IntervalUtils, jvm.org.apache.spark.unsafe.types.UTF8String

    def by_spark(text: str) -> Interval | None:
        found = spark_s.safeStringToInterval(utf8.fromString(text))
        if found is None:
            return None
        return Interval(*(get_field(found, name) for name in ("months", "days", "microseconds")))

    def by_us(text: str) -> Interval | None:
        try:
            return parse_interval(text)
        except LengthError:
            return None

    draw = random.Random(37)
    texts = {random_text(draw) for _ in range(2000)}
    expected = {text: by_spark(text) for text in texts}
    assert {text: by_us(text) for text in texts} == expected
    assert len(texts) // 4 < sum(interval is not None for interval in expected.values()) < 3 * len(texts) // 4
