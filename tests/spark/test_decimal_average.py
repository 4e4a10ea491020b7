"""The average of a DECIMAL, put together from partial sums, is Spark's own to the last digit."""

from __future__ import annotations

import random
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession
from sqlglot import exp

from millrace_api.sql.dialect import parse_expression
from millrace_jobs.aggregates.builtin import compile_aggregate

pytestmark = pytest.mark.spark

GROUPS, PARTS = 400, 3


@pytest.mark.parametrize(("precision", "scale"), [(1, 0), (5, 5), (9, 2), (12, 2), (13, 2), (14, 0), (14, 4), (14, 14)])
def test_an_average_of_partial_sums_is_sparks_to_the_last_digit(
    spark: SparkSession, precision: int, scale: int
) -> None:
    made, most = random.Random(precision * 100 + scale), 10**precision - 1
    near = [(0, 0), (1, 1), (0, 1), (most, most), (-most, most), (most, most - 1)]
    rows = []
    for group in range(GROUPS):
        low, high = near[group] if group < len(near) else sorted((made.randint(-most, most), made.randint(-most, most)))
        for _ in range(made.randint(1, 40)):
            units = made.randint(min(low, high), max(low, high))
            rows.append((group, made.randrange(PARTS), Decimal(units).scaleb(-scale)))
    data = spark.createDataFrame(rows, f"g INT, part INT, d DECIMAL({precision}, {scale})")
    data.createOrReplaceTempView("decimals")

    def type_of(sql: str) -> str:
        return spark.sql(f"SELECT {sql} AS x FROM decimals").schema["x"].dataType.simpleString()

    call = parse_expression("avg(d)")
    assert isinstance(call, exp.Avg)
    planned = compile_aggregate(call, 0, type_of)
    assert not isinstance(planned, str)
    partial = spark.sql("SELECT g, part, sum(d) AS a0_sum, count(d) AS a0_count FROM decimals GROUP BY g, part")
    partial.createOrReplaceTempView("partial")
    merged = ", ".join(f"{part.merge} AS {part.name}" for part in planned.parts)
    ours = spark.sql(f"SELECT g, {planned.finish} AS average FROM (SELECT g, {merged} FROM partial GROUP BY g)")
    theirs = spark.sql("SELECT g, avg(d) AS average FROM decimals GROUP BY g")
    assert sorted(ours.collect()) == sorted(theirs.collect())
    assert ours.schema["average"].dataType == theirs.schema["average"].dataType


@pytest.mark.parametrize("kind", ["DECIMAL(15,0)", "DECIMAL(38,18)"])
def test_an_average_with_too_many_digits_is_left_to_spark(kind: str) -> None:
    said = compile_aggregate(parse_expression("avg(d)"), 0, lambda _: kind.lower())
    assert isinstance(said, str)
    assert f"the average of a {kind}" in said
