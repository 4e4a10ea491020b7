"""The first rows of partitions are those of DuckDB, in every version and in any order of arrival.

``{}`` is what DuckDB needs to break ties as documented: by all other columns of the SELECT, in their order.
"""

import pytest
from hypothesis import given, settings
from pyspark.sql.types import StructType

from change_tables import disordered
from millrace_api.model.streamquery import Spec
from millrace_jobs.changes import FOREVER
from millrace_jobs.plan.control import Pin
from millrace_jobs.queries.tables.relations import TopRows, below
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
BY_HALF = "SELECT k, n, row_number() OVER (PARTITION BY n % 2 ORDER BY n DESC{}) AS r FROM p"

OF_TABLES = [
    f"{BY_HALF.format(', k')} QUALIFY r <= 2",
    "SELECT k, n FROM p QUALIFY row_number() OVER (PARTITION BY n % 2 ORDER BY n DESC, k) <= 2",
    "SELECT k FROM (SELECT k, n, row_number() OVER (ORDER BY n DESC{, k}) AS r FROM p) WHERE r BETWEEN 2 AND 3",
    "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY n ORDER BY at, k DESC) AS r FROM p) x WHERE 2 >= x.r",
    "SELECT k, n FROM p QUALIFY row_number() OVER (PARTITION BY n ORDER BY k DESC) = 1 AND n > 0",
    "SELECT n, 1 AS one FROM p QUALIFY row_number() OVER (PARTITION BY n > 0 ORDER BY n DESC NULLS FIRST) <= 2",
    "SELECT row_number() OVER (ORDER BY k) AS r FROM p QUALIFY r < 3",
    "SELECT DISTINCT n FROM p QUALIFY row_number() OVER (PARTITION BY n % 2 ORDER BY k) < 3",
    "SELECT n, count(*) AS c FROM p GROUP BY n QUALIFY row_number() OVER (ORDER BY count(*) DESC, n) <= 2",
    "SELECT n, c FROM (SELECT n, c, row_number() OVER (ORDER BY c, n) AS r FROM (SELECT n, count(*) AS c FROM p "
    "GROUP BY n HAVING count(*) > 1)) WHERE r = 1",
    "SELECT p.k, q.k AS j, p.n FROM p JOIN q ON p.n = q.n "
    "QUALIFY row_number() OVER (PARTITION BY p.n ORDER BY q.k, p.k) = 1",
    "SELECT p.k, q.n AS m FROM p LEFT JOIN q ON p.k = q.k "
    "QUALIFY row_number() OVER (ORDER BY q.n DESC NULLS FIRST{, p.k}) < 3",
    "SELECT n, count(*) AS c FROM (SELECT *, row_number() OVER (PARTITION BY n ORDER BY k) AS r FROM p) WHERE r <= 2 "
    "GROUP BY n",
    f"SELECT x.k, q.n FROM ({BY_HALF}) x LEFT JOIN q ON x.n = q.n WHERE x.r = 1".format(", k"),
    "SELECT c.k, c.n AS c FROM p c QUALIFY row_number() OVER (PARTITION BY c.n ORDER BY c.k) = 1",
    "SELECT k, n + 1 AS m FROM p QUALIFY row_number() OVER (PARTITION BY m ORDER BY k DESC) = 1 AND m > 1",
    "WITH x(j, r) AS (SELECT n, row_number() OVER (PARTITION BY k ORDER BY n) FROM p) SELECT x.j FROM x WHERE r IN (1, 2)",
    "SELECT k FROM q WHERE q.n IN (SELECT p.n FROM p QUALIFY row_number() OVER (ORDER BY p.n DESC, p.k) = 1)",
    "SELECT k, n FROM p QUALIFY row_number() OVER (ORDER BY k) = 1 UNION ALL SELECT k, n FROM q "
    "QUALIFY row_number() OVER (ORDER BY k DESC) = 1",
    "SELECT a.k, a.r FROM (SELECT k, n, row_number() OVER (ORDER BY k) AS r FROM p) a JOIN (SELECT k, row_number() OVER "
    "(ORDER BY k DESC) AS r FROM p) b ON a.r = b.r WHERE a.r <= 2 AND b.r <= 2",
]
"""Queries of the tables p and q; in braces is what breaks ties, which DuckDB has to be told."""


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


BETWEEN = "r.at BETWEEN s.at AND s.at + INTERVAL 3 MICROSECONDS"
OF_STREAMS = [
    "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY at DESC{, n}) AS r FROM s) WHERE r = 1",
    "SELECT k, n, at FROM s QUALIFY row_number() OVER (PARTITION BY k ORDER BY at{, n}) = 1",
    "SELECT k, n FROM s QUALIFY row_number() OVER (ORDER BY n DESC{, k}) <= 3",
    f"SELECT s.k, r.n FROM s LEFT JOIN r ON s.k = r.k AND {BETWEEN} QUALIFY row_number() OVER (PARTITION BY s.k ORDER BY "
    "r.n NULLS LAST) <= 2",
    "SELECT k, n FROM s WHERE n > 0 UNION ALL SELECT k, n FROM r QUALIFY row_number() OVER (PARTITION BY n ORDER BY k) = 1",
    "SELECT k, c FROM (SELECT k, count(*) AS c FROM s GROUP BY k) QUALIFY row_number() OVER (ORDER BY c DESC{, k}) <= 2",
]
"""Queries of streams whose rows change as records come."""


@pytest.mark.parametrize("sql", OF_STREAMS)
@settings(max_examples=5)
@given(batches=disordered(events(STREAMS, KEYS), GRACE))
def test_the_first_records_are_those_of_duckdb_after_each_batch(sql, batches):
    query, seen = StagedQuery(ours(sql), STREAMS), []
    for arrived, watermark in batches:
        seen += arrived
        query.batch(arrived, watermark)
        assert query.version(FOREVER - 1) == duckdb_rows(theirs(sql), contents_at(seen, STREAMS, FOREVER))


FINAL = [
    "SELECT k, n, at, row_number() OVER (PARTITION BY at ORDER BY n DESC{, k}) AS r FROM s QUALIFY r <= 2",
    "SELECT at, c FROM (SELECT at, n, count(*) AS c FROM s GROUP BY at, n) QUALIFY row_number() OVER (PARTITION BY at "
    "ORDER BY c DESC, n) = 1",
    f"SELECT s.k, r.n, s.at FROM s LEFT JOIN r ON s.k = r.k AND {BETWEEN} QUALIFY row_number() OVER (PARTITION BY s.at "
    "ORDER BY s.k{, r.n}) = 1",
    "SELECT k, n, at FROM s QUALIFY row_number() OVER (PARTITION BY window(at, '4 microseconds'), k ORDER BY at DESC{, n}) = 1",
    "SELECT at, count(*) AS c FROM (SELECT at, n, row_number() OVER (PARTITION BY at, n ORDER BY k) AS r FROM s) "
    "WHERE r <= 2 GROUP BY at",
]


@pytest.mark.parametrize("sql", FINAL)
@settings(max_examples=5)
@given(batches=disordered(events(STREAMS, KEYS), GRACE))
def test_the_first_rows_of_an_event_time_are_emitted_once_they_are_final(sql, batches):
    query, seen = StagedQuery(ours(sql), STREAMS, final=True), []
    for arrived, watermark in batches:
        seen += arrived
        before = query.results
        query.batch(arrived, watermark)
        assert not before - query.results, "a final row was taken back"
    query.end()
    assert (query.late, query.kept) == (0, 0)
    assert query.results == duckdb_rows(theirs(sql), contents_at(seen, STREAMS, FOREVER))


OF_RECORDS = [
    "SELECT s.k, x.k AS j FROM s JOIN (SELECT k, n FROM p QUALIFY row_number() OVER (PARTITION BY n ORDER BY k) = 1) x "
    "ON x.n = s.n",
    "SELECT s.k, x.r FROM s LEFT JOIN (SELECT k, row_number() OVER (ORDER BY n DESC, k) AS r FROM p QUALIFY r <= 2) x "
    "ON x.k = s.k",
]


@pytest.mark.parametrize("sql", OF_RECORDS)
@settings(max_examples=5)
@given(batches=disordered(events([*TABLES, "s"], KEYS), GRACE))
def test_a_record_meets_the_first_rows_of_its_own_time(sql, batches):
    query, expected = query_of_records(sql, batches)
    assert query.results == expected


def test_of_a_stream_only_the_first_rows_are_kept():
    query = StagedQuery("SELECT k, n FROM s QUALIFY row_number() OVER (PARTITION BY k ORDER BY at DESC) = 1", STREAMS)
    for second in range(1, 40):
        query.batch([(second, "s", key, second) for key in KEYS], second - 2)
    assert query.results == {(key, 39): 1 for key in KEYS}
    assert query.kept <= 5 * len(KEYS)


def test_a_row_that_stays_among_the_first_ones_is_not_emitted_again():
    query = StagedQuery("SELECT k, n FROM p QUALIFY row_number() OVER (ORDER BY n DESC) <= 3", TABLES)
    query.batch([(1, "p", key, number) for number, key in enumerate(KEYS)], 0)
    changes = query.batch([(2, "p", "a", 9)], 0)
    assert sorted((row[:2], weight) for row, weight in changes) == [(("a", 9), 1), (("b", 1), -1)]


@pytest.mark.parametrize(
    ("select", "key", "others"),
    [
        ("k, n, row_number() OVER (PARTITION BY n ORDER BY k) AS r FROM p QUALIFY r <= 2", (1, 2), [(0,)]),
        ("k, n FROM p QUALIFY row_number() OVER (PARTITION BY n ORDER BY k) <= 2", (0,), []),
        ("k, n FROM p QUALIFY row_number() OVER (PARTITION BY n ORDER BY k) = 1", (1,), [(0,)]),
        ("n FROM p QUALIFY row_number() OVER (ORDER BY n) = 1", (), []),
        ("at FROM s QUALIFY row_number() OVER (PARTITION BY k ORDER BY n) = 1", None, []),
    ],
)
def test_a_row_is_identified_by_its_partition_and_number_or_its_own_key(select, key, others):
    query = StagedQuery(f"SELECT {select}", {**TABLES, **STREAMS}).query
    assert (query.key, list(query.other_keys)) == (key, others)


@pytest.mark.parametrize(
    ("select", "reason"),
    [
        ("k, row_number() OVER (ORDER BY n) AS a, row_number() OVER (ORDER BY k) AS b FROM p QUALIFY a < 2 AND b < 2",
         "numbers its rows in two orders"),
        ("k, row_number() OVER (ORDER BY n) + 1 AS a FROM p QUALIFY row_number() OVER (ORDER BY n) < 3",
         "from the number of a row"),
        ("k FROM p QUALIFY row_number() OVER (ORDER BY n) < 3 AND row_number() OVER (ORDER BY n) < n", "with columns"),
        ("k, array(n) AS a FROM p QUALIFY row_number() OVER (ORDER BY n) = 1", "which is of type array"),
        ("k FROM p QUALIFY row_number() OVER (ORDER BY n) > 3", "has no largest number"),
        ("k, sum(n) OVER (PARTITION BY k) AS s FROM p QUALIFY row_number() OVER (ORDER BY n) = 1", "it has SUM"),
    ],
)  # fmt: skip
def test_what_cannot_be_numbered_is_refused_with_its_place(select, reason):
    with pytest.raises(NotATableQueryError, match=reason) as refused:
        StagedQuery(f"SELECT {select}", TABLES)
    assert refused.value.start is not None
    assert refused.value.hint


@pytest.mark.parametrize(
    ("select", "names", "rows"),
    [
        ("k, row_number() OVER (ORDER BY n) AS A, row_number() OVER (ORDER BY n) AS b FROM p QUALIFY b <= 2",
         ["k", "A", "b"], {("b", 1, 1): 1, ("a", 2, 2): 1}),
        ("n AS x, n AS y FROM p QUALIFY row_number() OVER (ORDER BY n) <= 2", ["x", "y"], {(2, 2): 1, (3, 3): 1}),
    ],
)  # fmt: skip
def test_a_column_that_is_selected_twice_has_both_names(select, names, rows):
    query = StagedQuery(f"SELECT {select}", TABLES)
    query.batch([(1, "p", "a", 3), (2, "p", "b", 2), (2, "p", "c", 9)], 0)
    assert (query.query.result_names, query.results) == (names, rows)


def test_rows_without_an_end_are_never_final():
    with pytest.raises(NotATableQueryError, match="never final"):
        StagedQuery("SELECT k FROM s QUALIFY row_number() OVER (PARTITION BY k ORDER BY at) = 1", STREAMS, final=True)


def test_the_first_rows_of_a_window_wait_for_its_end():
    sql = "SELECT k FROM s QUALIFY row_number() OVER (PARTITION BY window(at, '9 microseconds') ORDER BY n) = 1"
    query = StagedQuery(sql, STREAMS, final=True)
    assert (query.query.waits, query.query.longest) == (True, 9)
    query.batch([(3, "s", "a", 2), (4, "s", "b", 1), (9, "s", "c", 1)], 8)
    assert query.results == {}
    query.batch([], 9)
    assert query.results == {("b",): 1}


def explained(sql, sources):
    source = {
        "kafka": {"bootstrapServers": "kafka:9092", "topic": "t"},
        "schema": "at TIMESTAMP, k STRING, n BIGINT",
        "watermark": {"column": "at", "delay": "0s"},
    }
    table = {"table": {"keys": ["k"]}}
    read = {name: source | (table if is_table else {}) for name, is_table in sources.items()}
    spec = Spec.model_validate({"sources": read, "query": {"sql": sql}, "sink": {"console": {}}, "emit": "OnUpdate"})
    _, steps = StagedQuery(sql, sources).query.explain(StructType(), spec, {}, Pin(1, "hash", 2, 4), None)
    return [step for step in steps if step.startswith("top")]


def test_explain_says_which_rows_are_kept_and_until_when():
    sql = "SELECT k, n FROM p QUALIFY row_number() OVER (PARTITION BY n % 2 ORDER BY at DESC, k) <= 3"
    assert explained(sql, {"p": True}) == [
        "top      first 3 rows of each p.n % 2, by p.at DESC, k; state of all rows, forever"
    ]
    sql = "SELECT k, n FROM s QUALIFY row_number() OVER (PARTITION BY window(at, '60000000 microseconds'), k ORDER BY n) = 1"
    assert explained(sql, {"s": False}) == [
        "top      first row of each k and window of 60 s, by n; state of these rows, until the watermark passes them"
    ]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT k FROM ((SELECT k, n AS r, 0 AS z FROM p) UNION ALL "
        "(SELECT k, n AS z, row_number() OVER (ORDER BY k) AS r FROM q)) x WHERE r <= 1",
        "SELECT q.k FROM q LEFT ANTI JOIN (SELECT k, row_number() OVER (ORDER BY k) AS n FROM p) x ON q.k = x.k WHERE n <= 1",
        "WITH x AS (SELECT k, row_number() OVER (ORDER BY k) AS r FROM p) "
        "SELECT k FROM x WHERE r <= 1 UNION ALL SELECT k FROM x",
    ],
)
def test_a_number_that_another_select_limits_has_no_largest_one(sql):
    with pytest.raises(NotATableQueryError, match="no largest number"):
        StagedQuery(sql, TABLES)


def test_groups_of_first_rows_in_a_window_stay_until_the_window_ends():
    query = StagedQuery(
        "SELECT at, count(*) AS c, min(n) AS m FROM (SELECT at, n, row_number() OVER "
        "(PARTITION BY window(at, '4 microseconds'), at ORDER BY n) AS r FROM s) WHERE r <= 1 GROUP BY at",
        STREAMS,
    )
    query.batch([(1, "s", "a", 5)], 0)
    query.batch([], 3)
    query.batch([(1, "s", "b", 2)], 3)
    assert [row[1:] for row in query.results] == [(1, 2)]


def test_the_state_has_the_same_name_whatever_columns_the_query_has():
    first = "SELECT k, n FROM p{} QUALIFY row_number() OVER (ORDER BY n) = 1"
    one, other = (
        StagedQuery(first.format(more), TABLES).query.relation for more in ("", " WHERE n > 0 AND at IS NOT NULL")
    )
    assert [top.groups.parts[0].name for each in (one, other) for top in below(each) if isinstance(top, TopRows)] == [
        "millrace_top_rows"
    ] * 2
