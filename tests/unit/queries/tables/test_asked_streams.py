"""EXISTS, NOT EXISTS and IN between streams have DuckDB's rows, in any order of arrival; ANTI JOINs are the same."""

import pytest
from hypothesis import given, settings

from change_tables import disordered
from millrace_jobs.changes import FOREVER
from millrace_jobs.queries.tables.relations import wrong_in_spark
from millrace_jobs.queries.tables.scopes import NotATableQueryError
from staged_queries import GRACE, STREAMS, StagedQuery, contents_at, duckdb_rows, events

AFTER = "r.at BETWEEN s.at AND s.at + INTERVAL 3 MICROSECONDS"
AROUND = "s.at BETWEEN r.at - INTERVAL 2 MICROSECONDS AND r.at + INTERVAL 4 MICROSECONDS"

PRESENT = [
    f"SELECT k, n FROM s WHERE EXISTS (SELECT 1 FROM r WHERE r.k = s.k AND {AFTER})",
    f"SELECT k, at FROM s WHERE n > 0 AND EXISTS (SELECT 1 FROM r WHERE r.k = s.k AND {AROUND} AND r.n >= s.n)",
    f"SELECT s.k, s.n FROM s WHERE s.n IN (SELECT r.n FROM r WHERE {AROUND} AND r.k > 'a')",
    "SELECT a.k, a.n FROM s a WHERE EXISTS (SELECT 1 FROM s b WHERE b.k = a.k AND b.at > a.at "
    "AND b.at <= a.at + INTERVAL 2 MICROSECONDS)",
]
ABSENT = [
    f"SELECT k, n FROM s WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.k = s.k AND {AFTER})",
    f"SELECT s.k, s.n FROM s LEFT ANTI JOIN r ON r.k = s.k AND {AROUND} AND r.n > s.n AND s.n > 0",
    f"SELECT k, n FROM s WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.k = s.k AND {AFTER}) "
    f"AND EXISTS (SELECT 1 FROM r WHERE r.n = s.n AND {AROUND})",
]
GROUPED = [f"SELECT at, count(*) AS c FROM ({sql}) GROUP BY at".replace("k, n", "k, n, at", 1)
           for sql in (PRESENT[0], ABSENT[0])]  # fmt: skip


def for_duckdb(sql):
    return sql.replace("LEFT ANTI", "ANTI")


@pytest.mark.parametrize("sql", [*PRESENT, *ABSENT, *GROUPED])
@settings(max_examples=5)
@given(batches=disordered(events(STREAMS), GRACE))
def test_a_record_is_in_the_result_by_the_partners_that_have_come(sql, batches):
    query, seen = StagedQuery(sql, STREAMS), []
    for arrived, watermark in batches:
        seen += arrived
        query.batch(arrived, watermark)
        assert query.results == duckdb_rows(for_duckdb(sql), contents_at(seen, STREAMS, FOREVER))
    query.end()
    assert (query.late, query.kept) == (0, 0)


@pytest.mark.parametrize("sql", [*PRESENT, *ABSENT, *GROUPED])
@settings(max_examples=5)
@given(batches=disordered(events(STREAMS), GRACE))
def test_final_rows_are_never_taken_back(sql, batches):
    query, seen = StagedQuery(sql, STREAMS, final=True), []
    for arrived, watermark in batches:
        seen += arrived
        before = query.results
        query.batch(arrived, watermark)
        assert not before - query.results
    query.end()
    assert (query.late, query.kept) == (0, 0)
    assert query.results == duckdb_rows(for_duckdb(sql), contents_at(seen, STREAMS, FOREVER))


def test_a_row_comes_with_its_first_partner_or_once_none_can_come():
    present, absent = (StagedQuery(sql, STREAMS, final=True) for sql in (PRESENT[0], ABSENT[0]))
    for query in (present, absent):
        query.batch([(1, "s", "a", 1), (2, "s", "b", 2)], 0)
        query.batch([(3, "r", "a", 1)], 0)
    assert (present.results, absent.results) == ({("a", 1): 1}, {})
    present.batch([(4, "r", "a", 2)], 5)
    absent.batch([], 5)
    assert absent.results == {}
    absent.batch([], 6)
    assert (present.results, absent.results) == ({("a", 1): 1}, {("b", 2): 1})


def test_equal_records_are_records_of_their_own():
    query = StagedQuery(PRESENT[0], STREAMS, final=True)
    changes = query.batch([(1, "s", "a", 1), (1, "s", "a", 1), (2, "r", "a", 1)], 0)
    assert [weight for _, weight in changes] == [1, 1]


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("EXISTS (SELECT 1 FROM r WHERE r.k = s.k)", "no range of event time, so their records would be kept forever"),
        ("NOT EXISTS (SELECT 1 FROM r WHERE r.k = s.k AND r.at > s.at)", "no upper end of event time"),
        ("n IN (SELECT n FROM r)", "no range of event time"),
        (f"EXISTS (SELECT 1 FROM r WHERE {AFTER})", "has no key"),
        (f"n NOT IN (SELECT n FROM r WHERE {AFTER})", "NOT IN"),
        (f"n > 1 OR EXISTS (SELECT 1 FROM r WHERE r.k = s.k AND {AFTER})", "a condition of its own"),
    ],
)
def test_what_would_be_kept_forever_is_refused(where, reason):
    with pytest.raises(NotATableQueryError) as refused:
        StagedQuery(f"SELECT k FROM s WHERE {where}", STREAMS)
    assert reason in f"{refused.value}: {refused.value.hint}"


@pytest.mark.parametrize("sql", [PRESENT[0], ABSENT[1]])
def test_spark_s_own_plan_does_not_have_them(sql):
    assert "EXISTS or ANTI JOIN" in wrong_in_spark(StagedQuery(sql, STREAMS).query.relation)
