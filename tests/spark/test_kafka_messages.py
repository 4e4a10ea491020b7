"""Results as JSON: each type in its form, and readable again."""

from __future__ import annotations

import json

import pytest

from millrace_jobs.sinks.base import ADMITTED, ResultKeys, WindowColumn
from millrace_jobs.sinks.kafka.messages import NO_END, encoded, fetched_rows

pytestmark = pytest.mark.spark

START = 1_704_067_200_000_000  # 2024-01-01 in microseconds

TYPES = {
    "TIMESTAMP '2024-01-01 00:00:00.000001Z'": '"2024-01-01T00:00:00.000001Z"',
    "TIMESTAMP '2024-01-01 02:00:00+02:00'": '"2024-01-01T00:00:00.000000Z"',
    "TIMESTAMP_NTZ '2024-01-01 00:00:00.5'": '"2024-01-01T00:00:00.500000"',
    "DATE '2024-02-29'": '"2024-02-29"',
    "CAST(12.30 AS DECIMAL(38, 18))": "12.300000000000000000",
    "CAST(1 AS DECIMAL(38, 0)) * 9007199254740993": "9007199254740993",
    "9223372036854775807": "9223372036854775807",
    "0.1D": "0.1",
    "DOUBLE('NaN')": '"NaN"',
    "DOUBLE('-Infinity')": '"-Infinity"',
    "true": "true",
    "'ä \"quoted\" \\n'": '"ä \\"quoted\\" \\n"',
    "X'00FF10'": '"AP8Q"',
    "CAST(NULL AS STRING)": "null",
    "array(1, NULL)": "[1,null]",
    "map('a', 1.5, 'b', NULL)": '{"a":1.5,"b":null}',
    "map(7, named_struct('x', CAST(NULL AS INT)))": '{"7":{"x":null}}',
    "window(TIMESTAMP '2024-01-01 00:07:00Z', '10 minutes')": (
        '{"start":"2024-01-01T00:00:00.000000Z","end":"2024-01-01T00:10:00.000000Z"}'
    ),
    "INTERVAL '1 02:03' DAY TO MINUTE": "\"INTERVAL '1 02:03' DAY TO MINUTE\"",
}


def rows(spark, sql, keys):
    return list(fetched_rows(encoded(spark.sql(sql), keys).toArrow()))


def test_each_type_has_its_form(spark):
    columns = ", ".join(f"{sql} AS c{number}" for number, sql in enumerate(TYPES))
    ((key, value, end),) = rows(spark, f"SELECT {columns}", ResultKeys())
    assert (key, end) == (None, NO_END)
    assert value == "{" + ",".join(f'"c{number}":{text}' for number, text in enumerate(TYPES.values())) + "}"
    json.loads(value)


def test_the_key_has_its_columns_in_their_order_and_the_value_has_all(spark):
    sql = "SELECT 1 AS n, NULL AS `a.b`, 'x' AS `back``quoted`"
    ((key, value, _),) = rows(spark, sql, ResultKeys(("back`quoted", "a.b")))
    assert key == '{"back`quoted":"x","a.b":null}'
    assert value == '{"n":1,"a.b":null,"back`quoted":"x"}'


def test_keys_that_are_equal_have_one_text(spark):
    nan, minus = "double('NaN')", "CAST('-0.0' AS DOUBLE)"
    sql = f"SELECT * FROM VALUES ({minus}, float({minus}), -{nan}), (0D, 0F, {nan}) AS t (d, `f.g`, n)"
    found = rows(spark, sql, ResultKeys(("d", "f.g", "n")))
    assert [key for key, _, _ in found] == ['{"d":0.0,"f.g":0.0,"n":"NaN"}'] * 2
    assert found[0][1] == '{"d":-0.0,"f.g":-0.0,"n":"NaN"}'


def test_a_table_of_one_row_has_the_key_of_no_columns(spark):
    assert rows(spark, "SELECT 1 AS n", ResultKeys(())) == [("{}", '{"n":1}', NO_END)]


def test_rows_that_are_not_admitted_have_no_value(spark):
    sql = f"SELECT * FROM VALUES ('a', true), ('b', false) AS t(k, {ADMITTED})"
    assert rows(spark, sql, ResultKeys(("k",), retracts=True)) == [
        ('{"k":"a"}', '{"k":"a"}', NO_END),
        ('{"k":"b"}', None, NO_END),
    ]


@pytest.mark.parametrize(("part", "column"), [("window", "w"), ("start", "w.start AS w"), ("end", "w.end AS w")])
def test_the_end_of_a_window_is_known_from_any_part_of_it(spark, part, column):
    inner = "SELECT window(TIMESTAMP '2024-01-01 00:07:00.5Z', '10 minutes') AS w"
    keys = ResultKeys(("w",), WindowColumn("w", part, 600_000_000))
    ((_, _, end),) = rows(spark, f"SELECT {column} FROM ({inner})", keys)
    assert end == START + 600_000_000


def test_a_row_without_a_window_does_not_expire(spark):
    keys = ResultKeys(("w",), WindowColumn("w", "start", 1))
    ((_, _, end),) = rows(spark, "SELECT CAST(NULL AS TIMESTAMP) AS w", keys)
    assert end == NO_END
