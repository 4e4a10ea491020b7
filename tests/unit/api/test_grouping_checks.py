"""Columns that are neither grouped nor aggregated; in doubt, Spark's analyzer decides in the run."""

import pytest

from millrace_api.model.streamquery import Emit
from millrace_api.sql.checks import check_sql
from millrace_api.sql.schema_ddl import parse_schema
from millrace_api.sql.source_table import SourceTable

TABLES = {
    "e": SourceTable(parse_schema("at TIMESTAMP, k STRING, v INT, s STRUCT<a: INT, b: INT>"), "at"),
    "z": SourceTable(parse_schema("k STRING, place STRING"), static=True),
}


def problems(sql):
    return [str(problem) for problem in check_sql(sql, TABLES, emit=Emit.ON_UPDATE)]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT window(at, '60 seconds').start, count(*) FROM e GROUP BY window(at, '1 minute')",
        "SELECT count(*) FROM e GROUP BY window(at, '60 seconds'), window(at, '1 minute')",
        "SELECT nvl(v, 0), count(*) FROM e GROUP BY ifnull(v, 0)",
        "SELECT 1 < v, count(*) FROM e GROUP BY v > 1",
        "SELECT NOT (v > 1) AS low, count(*) FROM e GROUP BY v <= 1",
        "SELECT concat(k, '!'), count(*) FROM e GROUP BY k || '!' HAVING length(concat(k, '!')) > 1",
        "SELECT s.a, count(*) FROM e GROUP BY s['a']",
        "SELECT s.a + s.b, count(*) FROM e GROUP BY s",
        "SELECT e.*, count(*) FROM e JOIN z ON e.k = z.k GROUP BY at, e.k, v, s",
        "SELECT * EXCEPT (at, v, s), count(*) FROM e GROUP BY k",
    ],
)
def test_what_spark_may_take_for_grouped_is_left_to_spark(sql):
    assert problems(sql) == []


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT v, count(*) FROM e GROUP BY k", "v is not in GROUP BY"),
        ("SELECT v + 1, count(*) FROM e GROUP BY k", "v is not in GROUP BY"),
        ("SELECT v, count(*) FROM e GROUP BY v + 1", "v is not in GROUP BY"),
        ("SELECT (v) AS w, count(*) FROM e GROUP BY v + 1", "v is not in GROUP BY"),
        ("SELECT at, count(*) FROM e GROUP BY window(at, '1 minute')", "at is not in GROUP BY"),
        ("SELECT k, count(*) FROM e GROUP BY k HAVING v > 1", "v is not in GROUP BY"),
        ("SELECT s.b, count(*) FROM e GROUP BY s.a", "s.b is not in GROUP BY"),
        ("SELECT k, count(*) FROM e", "k is neither grouped nor aggregated"),
        ("SELECT *, count(*) FROM e GROUP BY k", 'the SELECT list has *, and "at" is not grouped'),
        ("SELECT z.*, count(*) FROM e JOIN z ON e.k = z.k GROUP BY z.k", '"place" is not grouped'),
        (
            "SELECT count(*) FROM e GROUP BY window(at, '60 seconds'), window(at, '2 minutes')",
            "the query groups by two windows",
        ),
    ],
)
def test_what_no_grouped_expression_can_be_is_refused(sql, said):
    (problem,) = problems(sql)
    assert said in problem
