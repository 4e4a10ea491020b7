"""What both sides of a join read is computed once or for each side: the same rows, versions and changes in both ways."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from change_tables import disordered
from millrace_api.model.streamquery import Spec
from millrace_jobs.changes import FOREVER
from millrace_jobs.queries.dry_compile import dry_compile
from millrace_jobs.queries.tables.read_costs import read_costs, share_of
from millrace_jobs.queries.tables.scopes import NotATableQueryError
from millrace_jobs.queries.tables.table_query import _relation_steps
from staged_queries import GRACE, TABLES, StagedQuery, contents_at, duckdb_rows

GROUPS = "WITH x AS (SELECT n, count(*) AS c FROM p GROUP BY n)"
ROWS = "WITH x AS (SELECT k, n FROM p WHERE n > 0)"
RECORDS = "WITH x AS (SELECT k, n, at FROM s WHERE n > 0)"

OF_TABLES = [
    f"{GROUPS} SELECT a.n, b.n AS m FROM x a JOIN x b ON a.c = b.c AND a.n > 0",
    f"{GROUPS} SELECT x.n, x.c, m.most FROM x JOIN (SELECT max(c) AS most FROM x) m ON x.c = m.most",
    f"{GROUPS} SELECT t.total, x.n, x.c FROM (SELECT sum(c) AS total FROM x WHERE n > 0) t JOIN x ON x.c < t.total",
    f"{GROUPS} SELECT x.n, g.c FROM x JOIN (SELECT c, max(n) AS n FROM x GROUP BY c HAVING count(*) < 3) g ON x.n = g.n",
    f"{ROWS} SELECT a.k, b.k AS j FROM x a LEFT JOIN x b ON a.n = b.n AND b.k > 'a'",
    f"{ROWS} SELECT x.k FROM x WHERE EXISTS (SELECT 1 FROM x y WHERE y.n = x.n AND y.k > x.k)",
    f"{ROWS} SELECT a.k, b.k AS j FROM x a FULL JOIN x b ON a.k = b.k AND a.n = 1 AND b.n = 1",
    "WITH x AS (SELECT p.k, q.n FROM p JOIN q ON p.n = q.n) "
    "SELECT x.k, g.c FROM x JOIN (SELECT n, count(*) AS c FROM x GROUP BY n) g ON g.n = x.n",
    "WITH x AS (SELECT k, n FROM p), y AS (SELECT a.k, b.k AS j FROM x a JOIN x b ON a.n = b.n) "
    "SELECT a.k, b.j FROM y a JOIN y b ON a.j = b.k",
    "SELECT a.k, b.n FROM (SELECT k, n FROM p) a JOIN (SELECT k, n FROM p) b ON a.n = b.n",
    "WITH x AS (SELECT k, n FROM p) SELECT a.k FROM x a CROSS JOIN x b",
    "WITH x AS (SELECT DISTINCT n FROM p) SELECT a.n FROM x a LEFT JOIN x b ON a.n > 0",
    "WITH x AS (SELECT k, row_number() OVER (ORDER BY k) AS r FROM p) SELECT b.k FROM (SELECT * FROM x WHERE r = 1) a "
    "RIGHT JOIN (SELECT * FROM x WHERE r <= 3) b ON a.r = b.r",
]
"""Queries of the tables p and q that read a subquery twice."""


def events(sources):
    values = st.integers(0, 2) | st.none()
    found = st.tuples(st.integers(1, 20), st.sampled_from(sorted(sources)), st.sampled_from("ab"), values)
    return found.filter(lambda event: event[1] in TABLES or event[3] is not None)


@pytest.mark.parametrize("sql", OF_TABLES)
@settings(max_examples=2)
@given(batches=disordered(events(TABLES), GRACE))
def test_computed_once_or_twice_a_query_of_tables_has_duckdb_s_rows_in_every_version(sql, batches):
    last = [StagedQuery(sql, TABLES, once=once) for once in (False, True)]
    versions, seen = [StagedQuery(sql, TABLES, versions=True, once=once) for once in (False, True)], []
    for arrived, watermark in batches:
        seen += arrived
        for query in (*last, *versions):
            query.batch(arrived, watermark)
        assert last[0].rows == last[1].rows
        assert versions[0].rows == versions[1].rows
        assert last[1].version(FOREVER - 1) == duckdb_rows(sql, contents_at(seen, TABLES, FOREVER))
    for time in sorted({event[0] for event in seen}):
        assert versions[1].version(time) == duckdb_rows(sql, contents_at(seen, TABLES, time)), time


OF_STREAMS = [
    f"{RECORDS} SELECT a.n, b.n AS m FROM x a LEFT JOIN x b ON a.k = b.k "
    "AND b.at BETWEEN a.at AND a.at + INTERVAL 3 MICROSECONDS AND b.n = 2",
    f"{RECORDS} SELECT x.k, x.n, g.most FROM x JOIN (SELECT k, max(n) AS most FROM x GROUP BY k) g ON g.k = x.k",
    f"{RECORDS} SELECT x.n, g.c FROM (SELECT n, count(*) AS c FROM x WHERE k = 'a' GROUP BY n) g "
    "RIGHT JOIN x ON g.n = x.n",
]


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("sql", OF_STREAMS)
@settings(max_examples=2)
@given(batches=disordered(events("s"), GRACE))
def test_records_that_both_sides_read_make_the_same_changes(sql, final, batches):
    queries = [StagedQuery(sql, {"s": False}, final=final and "GROUP" not in sql, once=once) for once in (False, True)]
    for arrived, watermark in batches:
        for query in queries:
            query.batch(arrived, watermark)
        assert queries[0].rows == queries[1].rows
    for query in queries:
        query.end()
    assert queries[0].rows == queries[1].rows


@pytest.mark.parametrize(
    ("sql", "stages"), [(OF_TABLES[0], (5, 3)), (OF_TABLES[1], (6, 4)), (OF_TABLES[4], (3, 2)), (OF_TABLES[8], (7, 3))]
)
def test_what_is_computed_once_is_in_the_state_once(sql, stages):
    queries = [StagedQuery(sql, TABLES, once=once) for once in (False, True)]
    for query in queries:
        query.batch([(at, "p", key, at) for at, key in enumerate("abcdef", 1)], 0)
    assert tuple(query.stages for query in queries) == stages
    assert queries[0].kept > queries[1].kept


OVER_ALL = "WITH x AS {} (SELECT k, n, at FROM s{}) SELECT x.k FROM x JOIN (SELECT max(n) AS n FROM x) g ON g.n = x.n"
"""Records that are passed on through the one group of all of them."""


def translated(sql, sources, partitions):
    return replace(StagedQuery(sql, sources).query, partitions=partitions).with_reads_by_cost()


@pytest.mark.parametrize(
    ("where", "partitions", "once"),
    [
        ("", 1, True),
        ("", 8, False),
        (" WHERE n > 0", 8, False),
        (" WHERE n > 0", 2, True),
        (" WHERE n = 0", 8, True),
        (" WHERE n = 0", 16, True),
    ],
)
def test_records_are_read_again_where_passing_them_through_one_task_takes_longer(where, partitions, once):
    query = translated(OVER_ALL.format("", where), {"s": False}, partitions)
    costs = read_costs(query.meeting["x"], partitions)
    assert query.once == (("x",) if once else ())
    assert (costs.once.seconds <= costs.twice.seconds) is once


@pytest.mark.parametrize("partitions", [1, 16])
@pytest.mark.parametrize("sql", [OF_TABLES[0], OF_TABLES[1], OF_TABLES[7]])
def test_what_has_a_state_is_computed_once(sql, partitions):
    query = translated(sql, TABLES, partitions)
    costs = read_costs(query.meeting["x"], partitions)
    assert query.once == ("x",)
    assert 2 * costs.once.state == costs.twice.state > 0


@pytest.mark.parametrize(("how", "once"), [("MATERIALIZED", ("x",)), ("NOT MATERIALIZED", ())])
@pytest.mark.parametrize("partitions", [1, 16])
def test_the_sql_can_ask_for_either_way(how, once, partitions):
    assert translated(OVER_ALL.format(how, ""), {"s": False}, partitions).once == once


@pytest.mark.parametrize(
    "sql",
    [
        "WITH x AS {} (SELECT k, n FROM p) SELECT a.k FROM x a JOIN q ON a.k = q.k JOIN x b ON b.n = q.n",
        "WITH x AS {} (SELECT k, n FROM p) SELECT k FROM x UNION ALL SELECT k FROM x",
        "WITH x AS {} (SELECT k, n FROM p) SELECT a.k FROM x a JOIN x b ON a.n = b.n JOIN x c ON c.n = b.n",
    ],
)
def test_what_cannot_be_computed_once_is_refused_only_if_the_sql_asks_for_it(sql):
    assert translated(sql.format(""), TABLES, 2).once == ()
    with pytest.raises(NotATableQueryError, match="x is AS MATERIALIZED, and its readers are not"):
        translated(sql.format("MATERIALIZED"), TABLES, 2)


def test_a_checkpoint_keeps_what_it_began_with():
    filtered = " WHERE n > 0"
    free, forced = (translated(OVER_ALL.format(how, filtered), {"s": False}, 2) for how in ("", "MATERIALIZED"))
    began = replace(free, once=())
    assert free.once == ("x",)
    assert free.continued(began.layout()).layout() == began.layout()
    assert began.continued(free.layout()).layout() == free.layout()
    now = forced.continued(began.layout()).layout()
    assert "subqueries that are computed once" not in began.layout()
    assert now["subqueries that are computed once"] == ["x"]


@pytest.mark.parametrize(
    ("where", "share"),
    [
        ("", 1),
        ("a = 1", 0.1),
        ("(a > 1) AND b = 2", 1 / 30),
        ("a = 1 OR b = 1", 0.19),
        ("NOT a = 1", 0.9),
        ("a IN (1, 2)", 0.2),
        ("a BETWEEN 1 AND 2", 0.25),
        ("a <> 1", 0.9),
    ],
)
def test_the_share_of_rows_that_pass_is_that_of_system_r(where, share):
    assert share_of(where) == pytest.approx(share)


def test_explain_says_how_it_is_computed_and_what_both_ways_cost():
    query = translated(OF_TABLES[1], TABLES, 2)
    steps = list(query._compute_steps())
    assert steps[0].startswith("compute  x once, by cost: ")
    assert steps[0].count(" us a record and ") == 2
    assert "; for each side, " in steps[0]
    shown = _relation_steps(query.relation, [query.meeting["x"].relation], [])
    assert sum(step.startswith("table    p") for step in shown) == 1
    (step,) = replace(query, once=())._compute_steps()
    assert step.startswith("compute  x for each side, as its state began: ")
    assert sum(step.startswith("table    p") for step in _relation_steps(query.relation, [], [])) == 2


@pytest.mark.parametrize(("how", "refused"), [("MATERIALIZED", True), ("NOT MATERIALIZED", False), ("", False)])
def test_spark_s_own_plan_computes_a_cte_for_each_reader(how, refused):
    source = {
        "kafka": {"bootstrapServers": "kafka:9092", "topic": "s"},
        "schema": "at TIMESTAMP, k STRING, n INT",
        "watermark": {"column": "at", "delay": "1s"},
    }
    sql = f"""WITH x AS {how} (SELECT k, at FROM s) SELECT a.k, a.at FROM x a LEFT SEMI JOIN x b
              ON a.k = b.k AND b.at BETWEEN a.at AND a.at + INTERVAL 1 MINUTE"""
    sink = {"files": {"path": "out", "format": "csv"}}
    problems = dry_compile(Spec.model_validate({"sources": {"s": source}, "query": {"sql": sql}, "sink": sink}))
    assert [problem.message.startswith("x is AS MATERIALIZED, and Spark's own plan") for problem in problems] == (
        [True] if refused else []
    )


def test_different_subqueries_of_one_text_that_draw_at_random_are_computed_each_for_itself():
    drawn = "(SELECT k, n FROM p WHERE rand() < 0.5)"
    assert StagedQuery(f"SELECT a.k, b.n FROM {drawn} a JOIN {drawn} b ON a.k = b.k", TABLES).query.common == ()
    one = StagedQuery(f"WITH x AS {drawn} SELECT a.k, b.n FROM x a JOIN x b ON a.k = b.k", TABLES)
    assert [each.readers for each in one.query.common] == [2]
    two = StagedQuery(f"WITH x AS {drawn}, y AS {drawn} SELECT x.k, y.n FROM x JOIN y ON x.k = y.k", TABLES)
    assert two.query.common == ()


def test_what_one_cte_asks_for_is_not_asked_of_another_one_of_the_same_text():
    rows = "(SELECT k, n FROM p)"
    StagedQuery(f"WITH x AS {rows}, y AS MATERIALIZED {rows} SELECT k FROM x UNION ALL SELECT k FROM y", TABLES)


def test_the_user_s_functions_are_not_called_with_rows_that_only_the_other_side_reads():
    sql = "WITH x AS (SELECT k, n FROM p) SELECT a.k, b.m FROM x a JOIN (SELECT k, n AS m FROM x{}) b ON a.k = b.k"
    for where, names in ((" WHERE n > 0", set()), ("", {"x"})):
        query = StagedQuery(sql.format(where), TABLES).query
        assert replace(query, functions={"f": "BIGINT"}).meeting.keys() == names


@pytest.mark.parametrize("bound", ["a.r <= 2 AND b.r <= 3", "a.r <= 3 AND b.r = 2"])
def test_a_cte_that_is_computed_once_has_as_many_rows_for_each_reader(bound):
    sql = f"""WITH x AS {{}} (SELECT k, n, row_number() OVER (ORDER BY n) AS r FROM p)
        SELECT a.k, b.k AS j FROM x a JOIN x b ON a.n = b.n WHERE {bound}"""
    with pytest.raises(NotATableQueryError, match="x is AS MATERIALIZED, and its readers ask for its first"):
        StagedQuery(sql.format("MATERIALIZED"), TABLES)
    assert StagedQuery(sql.format(""), TABLES).query.common == ()
