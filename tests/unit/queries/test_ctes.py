"""A CTE is a subquery in FROM: what it means, where its errors are, and which queries may have one."""

import pytest

from millrace_api.errors import MillraceError
from millrace_api.model.streamquery import Emit
from millrace_api.sql.checks import check_sql
from millrace_api.sql.dialect import to_sql
from millrace_api.sql.parsed_query import parsed_query
from millrace_api.sql.schema_ddl import parse_schema
from millrace_api.sql.source_table import SourceTable

COLUMNS = parse_schema("at TIMESTAMP, k STRING, n INT")
TABLES = {"t": SourceTable(COLUMNS, "at"), "u": SourceTable(COLUMNS, "at")}


def problems(sql):
    return check_sql(sql, TABLES, emit=Emit.ON_UPDATE)


@pytest.mark.parametrize(
    ("sql", "meant"),
    [
        ("WITH a AS (SELECT k FROM t) SELECT a.k FROM a", "SELECT a.k FROM (SELECT k FROM t) AS a"),
        ("WITH a AS (SELECT k FROM t) SELECT B.k FROM A AS b", "SELECT B.k FROM (SELECT k FROM t) AS b"),
        ("WITH a(x) AS (SELECT k FROM t) SELECT x FROM a", "SELECT x FROM (SELECT k FROM t) AS a(x)"),
        ("WITH a(x) AS (SELECT k FROM t) SELECT y FROM a b(y)", "SELECT y FROM (SELECT k FROM t) AS b(y)"),
        (
            "WITH a AS (SELECT k FROM t), b AS (SELECT k FROM a) SELECT k FROM b UNION ALL SELECT k FROM a",
            "SELECT k FROM (SELECT k FROM (SELECT k FROM t) AS a) AS b UNION ALL SELECT k FROM (SELECT k FROM t) AS a",
        ),
        ("WITH t AS (SELECT k FROM t) SELECT k FROM t", "SELECT k FROM (SELECT k FROM t) AS t"),
        (
            "WITH a AS (SELECT k FROM t) SELECT k FROM (WITH a AS (SELECT k FROM u) SELECT k FROM a) JOIN a USING (k)",
            "SELECT k FROM (SELECT k FROM (SELECT k FROM u) AS a) JOIN (SELECT k FROM t) AS a USING (k)",
        ),
        ("WITH a AS (SELECT k FROM t) SELECT k FROM u", "SELECT k FROM u"),
        ("SELECT k FROM t", "SELECT k FROM t"),
    ],
)
def test_a_cte_is_the_subquery_that_its_name_stands_for(sql, meant):
    assert to_sql(parsed_query(sql).written_out.tree) == meant


def test_a_recursive_cte_stays():
    sql = "WITH RECURSIVE a AS (SELECT 1 AS n UNION ALL SELECT n + 1 AS n FROM a) SELECT n FROM a"
    assert parsed_query(sql).written_out is parsed_query(sql)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("WITH a AS (SELECT k\nFROM t) SELECT a.k,\n  a.m FROM a", "line 3, column 5"),
        ("WITH a AS (\n  SELECT m FROM t) SELECT k FROM t", "line 2, column 10"),
        ("WITH a AS (\n  SELECT m FROM t) SELECT x.m FROM a x JOIN a y ON x.m = y.m", "line 2, column 10"),
        ("WITH a AS (SELECT k FROM b), b AS (SELECT k FROM t) SELECT k FROM a", 'there is no source "b"'),
        ("WITH a AS (\n  SELECT k FROM t ORDER BY k) SELECT k FROM a", "line 2, column 19"),
    ],
)
def test_an_error_has_its_place_in_the_text_once(sql, said):
    [problem] = problems(sql)
    assert said in problem.message


def test_a_cte_of_a_table_needs_no_range_of_event_time():
    tables = TABLES | {"u": SourceTable(COLUMNS, "at", ("k",))}
    sql = "WITH a AS (SELECT k FROM u) SELECT t.k FROM t LEFT JOIN a ON a.k = t.k"
    assert check_sql(sql, tables, emit=Emit.ON_UPDATE) == []


def test_what_doubles_with_each_cte_is_refused_before_it_is_large():
    ctes = ["a0 AS (SELECT k FROM t)"]
    ctes += [f"a{n} AS (SELECT x.k FROM a{n - 1} x CROSS JOIN a{n - 1} y)" for n in range(1, 40)]
    sql = f"WITH {', '.join(ctes)} SELECT k FROM a39"
    [problem] = problems(sql)
    assert "too large with each CTE in the place of its name: more than 20000 parts" in problem.message
    query = parsed_query(sql)
    with pytest.raises(MillraceError):
        _ = query.written_out
