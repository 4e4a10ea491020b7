"""``ORDER BY ... LIMIT n`` keeps the first rows as DuckDB has them, in every version and in any order of arrival.

``{}`` is what DuckDB needs to break ties as documented: by all other columns of the SELECT, in their order.
"""

import re

import pytest
from hypothesis import given, settings

from change_tables import disordered
from millrace_api.sql.parsed_query import parsed_query
from millrace_api.sql.sorted_limits import sorted_limit_refusal
from millrace_jobs.changes import FOREVER
from millrace_jobs.queries.tables.scopes import NotATableQueryError
from staged_queries import (
    GRACE,
    STREAMS,
    TABLES,
    StagedQuery,
    contents_at,
    duckdb_rows,
    events,
    query_of_records,
    versions_of,
)

KEYS = "abcd"

OF_TABLES = [
    "SELECT k, n FROM p ORDER BY n DESC{, k} LIMIT 2",
    "SELECT k FROM p ORDER BY n DESC NULLS FIRST{, k} LIMIT 2 OFFSET 1",
    "SELECT n, count(*) AS c FROM p GROUP BY n ORDER BY count(*) DESC, n LIMIT 2",
    "SELECT n AS m, count(*) AS c FROM p GROUP BY n HAVING count(*) > 0 ORDER BY c DESC, m DESC LIMIT 2",
    "SELECT k, -n AS n FROM p ORDER BY n{, k} LIMIT 2",
    "SELECT k, n FROM p ORDER BY 2 DESC, 1 LIMIT 3",
    "SELECT DISTINCT n FROM p ORDER BY n DESC LIMIT 2",
    "SELECT DISTINCT p.n FROM p ORDER BY p.n LIMIT 1",
    "SELECT k, n FROM p UNION ALL SELECT k, n FROM q ORDER BY n DESC{, k} LIMIT 3",
    "(SELECT n FROM p UNION SELECT n FROM q) ORDER BY n LIMIT 2",
    "SELECT p.k, q.n AS m FROM p LEFT JOIN q ON p.k = q.k ORDER BY q.n DESC NULLS FIRST{, p.k} LIMIT 2",
    "SELECT x.k, q.n FROM (SELECT k, n FROM p ORDER BY n DESC, k LIMIT 2) x JOIN q ON x.k = q.k",
    "WITH x AS (SELECT k, n FROM p ORDER BY n DESC, k LIMIT 2) SELECT a.k, b.n FROM x a JOIN x b ON a.n = b.n",
    "SELECT n, count(*) AS c FROM (SELECT n FROM p WHERE n > 0 ORDER BY n, k LIMIT 2) GROUP BY n",
    "SELECT k FROM q WHERE q.n IN (SELECT p.n FROM p ORDER BY p.n DESC, p.k LIMIT 1)",
    "SELECT k, n FROM p QUALIFY row_number() OVER (PARTITION BY n ORDER BY k) = 1 ORDER BY n DESC LIMIT 2",
    "(SELECT k FROM p ORDER BY n DESC, k LIMIT 1) UNION ALL (SELECT k FROM q ORDER BY n, k LIMIT 1)",
    "SELECT k FROM p ORDER BY n LIMIT 0",
]
OF_STREAMS = [
    "SELECT k, n, at FROM s ORDER BY n DESC{, k, at} LIMIT 3",
    "SELECT k, count(*) AS c FROM s GROUP BY k ORDER BY c DESC, k LIMIT 2",
    "SELECT s.k, s.n, r.n AS m FROM s JOIN r ON s.k = r.k AND r.at BETWEEN s.at AND s.at + INTERVAL 3 MICROSECONDS "
    "ORDER BY s.n + r.n DESC{, s.k, s.n, r.n} LIMIT 2",
]


def ours(sql):
    return sql.replace("{", "/*").replace("}", "*/")


def theirs(sql):
    return sql.replace("{", "").replace("}", "")


@pytest.mark.parametrize("sql", OF_TABLES)
@settings(max_examples=5)
@given(batches=disordered(events(TABLES, KEYS), GRACE))
def test_the_first_rows_of_tables_are_those_of_duckdb_in_every_version(sql, batches):
    last, versions, seen = StagedQuery(ours(sql), TABLES), StagedQuery(ours(sql), TABLES, versions=True), []
    for arrived, watermark in batches:
        seen += arrived
        for query in (last, versions):
            query.batch(arrived, watermark)
        assert last.version(FOREVER - 1) == duckdb_rows(theirs(sql), contents_at(seen, TABLES, FOREVER))
    for time, contents in versions_of(seen, TABLES).items():
        assert versions.version(time) == duckdb_rows(theirs(sql), contents), time


@pytest.mark.parametrize("sql", OF_STREAMS)
@settings(max_examples=5)
@given(batches=disordered(events(STREAMS, KEYS), GRACE))
def test_the_first_rows_of_streams_are_those_of_duckdb_after_every_batch(sql, batches):
    query, seen = StagedQuery(ours(sql), STREAMS), []
    for arrived, watermark in batches:
        seen += arrived
        query.batch(arrived, watermark)
        assert query.version(FOREVER - 1) == duckdb_rows(theirs(sql), contents_at(seen, STREAMS, FOREVER))


@settings(max_examples=10)
@given(batches=disordered(events([*TABLES, "s"], KEYS), GRACE))
def test_a_record_meets_the_first_rows_of_its_own_time(batches):
    query, expected = query_of_records(
        "SELECT s.k, x.k AS j FROM s JOIN (SELECT k, n FROM p ORDER BY n DESC, k LIMIT 2) x ON x.n = s.n", batches
    )
    assert query.results == expected


@pytest.mark.parametrize(
    ("select", "key"),
    [
        ("k, n FROM p ORDER BY n LIMIT 3", (0,)),
        ("n, count(*) AS c FROM p GROUP BY n ORDER BY c LIMIT 3", (0,)),
        ("n FROM p ORDER BY n LIMIT 1", ()),
        ("n FROM p ORDER BY n LIMIT 2", None),
        ("k, n FROM s ORDER BY n LIMIT 3", None),
    ],
)
def test_a_row_is_identified_by_its_own_key(select, key):
    assert StagedQuery(f"SELECT {select}", {**TABLES, **STREAMS}).query.key == key


def test_of_a_stream_only_the_first_rows_are_kept():
    query = StagedQuery("SELECT k, n FROM s ORDER BY n DESC LIMIT 3", STREAMS)
    for second in range(1, 40):
        query.batch([(second, "s", key, second) for key in KEYS], second - 2)
    assert query.results == {("a", 39): 1, ("b", 39): 1, ("c", 39): 1}
    assert query.kept <= 20


def test_rows_without_an_end_are_never_final():
    with pytest.raises(NotATableQueryError, match="never final"):
        StagedQuery("SELECT k FROM s ORDER BY at LIMIT 3", STREAMS, final=True)


def test_a_query_without_a_sorted_limit_is_what_it_was():
    parsed = parsed_query("SELECT k FROM p QUALIFY row_number() OVER (ORDER BY k) = 1")
    assert parsed.written_out is parsed


ROWS = [(1, "p", "a", 2), (2, "p", "b", 1), (3, "p", "c", 2), (4, "p", "d", 0), (5, "q", "a", 1), (6, "q", "b", 2)]
ROWS += [(7, "q", "e", 5)]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT k, -n AS n FROM p ORDER BY 2, 1 LIMIT 2",
        "SELECT 5 - n AS n, count(*) AS c FROM p GROUP BY 5 - n ORDER BY 1 DESC LIMIT 1",
        "SELECT k AS n, n AS m FROM p ORDER BY 2, 1 LIMIT 1",
        "SELECT n AS k, concat(k, 'z') AS u FROM p ORDER BY 2 DESC LIMIT 1",
        "SELECT n, count(*) FROM p GROUP BY n ORDER BY 2 DESC, 1 LIMIT 1",
        "SELECT DISTINCT k AS j, n AS k FROM p ORDER BY k, j LIMIT 2",
        "SELECT k AS j, n AS k FROM p UNION ALL SELECT k, n FROM q ORDER BY k, j LIMIT 2",
        "SELECT DISTINCT n AS a, -n AS n FROM p ORDER BY n LIMIT 1",
        "SELECT n AS x, -n AS y FROM p UNION SELECT n, n FROM q ORDER BY 2 DESC LIMIT 1",
        "SELECT k, n FROM p UNION ALL SELECT k, n FROM q ORDER BY 2 DESC, n + 1, 1 LIMIT 2",
        "SELECT DISTINCT n % 2 AS odd FROM p ORDER BY n % 2 DESC LIMIT 1",
        "SELECT DISTINCT * FROM p ORDER BY n, k LIMIT 2",
    ],
)
def test_positions_and_names_mean_columns_of_the_result(sql):
    query = StagedQuery(sql, TABLES)
    query.batch(ROWS, 0)
    assert query.version(FOREVER - 1) == duckdb_rows(sql, contents_at(ROWS, TABLES, FOREVER))


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT n, -n FROM p UNION SELECT n, n FROM q ORDER BY 2 DESC LIMIT 1", "is the position of -n, which has no"),
        ("SELECT -n, k AS n FROM p ORDER BY 1 LIMIT 1", "is the position of -n, which has no name"),
        ("SELECT n AS a, k AS a FROM p ORDER BY 1 LIMIT 1", "is the position of n AS a, which has no name of its own"),
        ("SELECT DISTINCT n FROM p ORDER BY k LIMIT 1", "reads columns of the result: k is none"),
        (
            "SELECT DISTINCT n FROM p GROUP BY n ORDER BY count(*) DESC LIMIT 1",
            r"columns of the result: COUNT\(\*\) is",
        ),
        (
            "SELECT k, n FROM p UNION SELECT k, n FROM q ORDER BY p.k LIMIT 1",
            "reads columns of the result: p.k is none",
        ),
        ("SELECT k FROM p ORDER BY rand() LIMIT 2", "another value each time"),
        ("SELECT k, n FROM p ORDER BY -1 LIMIT 2", "is the same for all rows"),
        ("SELECT k, n FROM p ORDER BY 3 LIMIT 2", "3 is not a position"),
        ("SELECT *, n FROM p ORDER BY 2 LIMIT 2", "that \\* stands for"),
        ("SELECT n FROM p ORDER BY n LIMIT 5 OFFSET 100", "write a LIMIT and OFFSET of 100 or less"),
    ],
)
def test_what_does_not_mean_one_column_for_certain_is_refused(sql, said):
    refusal = sorted_limit_refusal(parsed_query(sql).tree)
    assert refusal is not None
    assert re.search(said, "; ".join(refusal)), refusal


@pytest.mark.parametrize(
    "sql",
    [
        "(SELECT k, n FROM p ORDER BY n DESC, k LIMIT 3) LIMIT 2",
        "(SELECT k FROM p) LIMIT 2",
        "SELECT x.k FROM ((SELECT k, n FROM p ORDER BY n, k LIMIT 3) LIMIT 2) x",
    ],
)
def test_a_limit_without_an_order_is_refused_in_parentheses_too(sql):
    with pytest.raises(NotATableQueryError, match="it has LIMIT"):
        StagedQuery(sql, TABLES)


@pytest.mark.parametrize(
    "sql",
    [
        "WITH x(a, b) AS (SELECT p.n, q.n FROM p JOIN q ON p.k = q.k UNION SELECT n, 9 FROM q ORDER BY 2, 1 LIMIT 2) "
        "SELECT a, b FROM x",
        "SELECT x.a FROM (SELECT DISTINCT p.n + 5 AS a, p.n, q.n FROM p JOIN q ON p.k = q.k ORDER BY a LIMIT 1) x",
        "SELECT * FROM (SELECT p.n, q.n FROM p JOIN q ON p.k = q.k) x",
    ],
)
def test_columns_of_one_name_are_never_taken_for_each_other(sql):
    with pytest.raises(NotATableQueryError, match=r"several columns with the name n|it has ORDER BY"):
        StagedQuery(sql, TABLES)
