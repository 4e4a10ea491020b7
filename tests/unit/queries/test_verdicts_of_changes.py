"""Verdicts on changed aggregates: ``millrace diff``, which has only the queries, says what a run would say."""

import pytest

from millrace_api.sql.outline import aggregate_text
from millrace_api.sql.parsed_query import parsed_sql
from millrace_api.validation.evolution import compare
from millrace_jobs.queries.compile import choose_execution
from millrace_jobs.queries.dry_compile import DeclaredTypes
from millrace_jobs.queries.routed.aggregation import Aggregation
from millrace_jobs.sources.connector import schema_of
from unit.checkpoint.changed_queries import FILES, a_query

SOURCE = {
    **FILES,
    "schema": "at TIMESTAMP, city STRING, text STRING, n BIGINT, fare DOUBLE, price DECIMAL(20,2), flag BOOLEAN, "
    "s STRUCT<a: INT, b: STRING>, xs ARRAY<INT>, m MAP<STRING, INT>, `a b` INT",
}
TOPIC = {"bootstrapServers": "a:9092", "topic": "latest"}
TABLE = {"table": {"keys": ["city"]}}
WINDOW = "FROM trips GROUP BY window(at, '10 minutes'), city"
MERGED = (
    "sum(n)", "sum(`a b`)", "avg(fare)", "avg(round(fare, 1))", "max(s.a)", "min(xs[0])", "stddev(n)",
    "approx_count_distinct(n)", "sum(n) FILTER (WHERE fare > 1)", "sum(price)",
)  # fmt: skip
NOT_MERGED = (
    "avg(price)", "avg(CAST(n AS DECIMAL(20, 2)))", "avg(price * 2)", "min(s)", "max(xs)", "max(m)", "count(n, city)",
    "count(xs)", "min(struct(n, city))", "min(array(n))", "count(DISTINCT n)", "try_sum(n)", "std(n)", "any(flag)",
    "every(flag)", "first(n)", "max_by(n, fare)", "median(n)", "try_sum(n) FILTER (WHERE fare > 1)",
)  # fmt: skip
ROUTED = (
    WINDOW, "FROM trips", "FROM trips AS q GROUP BY q.city", "FROM trips GROUP BY upper(city), s.a",
    "FROM trips WHERE n IN (1, 2) GROUP BY city HAVING sum(n) > 3",
    "FROM trips GROUP BY window(trips.at, '1 hour')", "FROM `Trips` GROUP BY `a b`",
)  # fmt: skip
NOT_ROUTED = (
    "FROM trips GROUP BY window(at, '10 minutes'), window(at, '20 minutes')",
    "FROM trips GROUP BY window(text, '10 minutes')",
    "FROM trips GROUP BY window(CAST(text AS TIMESTAMP), '10 minutes')",
    "FROM trips GROUP BY window(at, '40000 days')",
    "FROM trips GROUP BY s", "FROM trips GROUP BY m", "FROM trips GROUP BY struct(city)",
    "FROM trips GROUP BY array(city)",
    "FROM trips AS t(at, city, text, n, fare, price, flag, s, xs, m, ab) GROUP BY city",
    "FROM default.trips GROUP BY city", "FROM trips GROUP BY ROLLUP(city)",
)  # fmt: skip
SPECS = {
    "routed": {},
    "native": {"partitioner": {"algorithm": "native"}},
    "closed": {"emit": "OnWindowClose"},
    "held back": {"emit": "OnWindowEnd"},
    "changelog": {"sink": {"files": {"path": "out", "key": ["city"]}}},
    "history": {"sink": {"table": {**TOPIC, "history": {"topic": "versions", "retention": "1h"}}}},
    "table": {"sink": {"table": TOPIC}},
}


def counted_by_a_run(query, held=()):
    """The aggregates for which a run would find columns, as it compiles a query over a state with these."""
    schemas = {name: schema_of(source) for name, source in query.spec.sources.items()}
    chosen = choose_execution(query.spec, parsed_sql(query.spec), schemas, DeclaredTypes(schemas), 1, {}, held)
    return tuple(each.call for each in chosen.aggregates) if isinstance(chosen, Aggregation) else ()


def verdicts(call, tail, spec, source=SOURCE):
    """The verdicts of ``compare`` and of a run, for an aggregate that moves, that stays alone, and that leaves."""
    first = "{0} AS x, count(*) AS c, max(n) AS m"
    for items in ("count(*) AS c, {0} AS x, max(n) AS m", "{0} AS x, max(n) AS m", "max(n) AS m, count(*) AS c"):
        before, now = (
            a_query(source, query={"sql": f"SELECT {text.format(call)} {tail}"}, **spec) for text in (first, items)
        )
        held = counted_by_a_run(before)
        forbidden, _ = compare(before, now, tuple(map(aggregate_text, held)))
        if held and not forbidden:
            assert counted_by_a_run(now, held) == held
        yield not compare(before, now)[0], not forbidden


@pytest.mark.parametrize("call", MERGED)
@pytest.mark.parametrize("spec", ["routed", "native"])
def test_aggregates_that_are_merged_move_and_leave(call, spec):
    assert set(verdicts(call, WINDOW, SPECS[spec])) == {(True, True)}


@pytest.mark.parametrize("call", NOT_MERGED)
def test_aggregates_that_are_not_merged_stay(call):
    assert set(verdicts(call, WINDOW, {})) == {(False, False)}


@pytest.mark.parametrize("tail", ROUTED)
def test_aggregates_of_groups_that_are_routed_move_and_leave(tail):
    assert set(verdicts("sum(n)", tail, {})) == {(True, True)}


@pytest.mark.parametrize("tail", NOT_ROUTED)
def test_aggregates_of_groups_that_are_not_routed_stay(tail):
    assert set(verdicts("sum(n)", tail, {})) == {(False, False)}


@pytest.mark.parametrize(
    "tail",
    [
        "FROM trips GROUP BY session_window(at, '5 minutes'), city",
        "FROM (SELECT DISTINCT n, city FROM trips) AS t GROUP BY city",
    ],
)
def test_aggregates_of_operators_on_tables_stay(tail):
    assert set(verdicts("sum(n)", tail, SPECS["table"])) == {(False, False)}


@pytest.mark.parametrize(
    ("spec", "call", "verdict"),
    [
        ("closed", "sum(n)", True),
        ("closed", "stddev(n)", True),
        ("held back", "sum(n)", True),
        ("held back", "stddev(n)", False),
        ("held back", "min(s)", False),
        ("changelog", "sum(n)", False),
        ("history", "sum(n)", False),
    ],
)
def test_how_results_are_emitted_decides_what_merges(spec, call, verdict):
    assert set(verdicts(call, WINDOW, SPECS[spec])) == {(verdict, verdict)}


def test_deviations_of_one_group_over_all_records_stay():
    assert set(verdicts("variance(n)", "FROM trips", {})) == {(False, False)}


def test_aggregates_over_a_table_stay():
    assert set(verdicts("sum(n)", "FROM trips GROUP BY city", SPECS["table"], {**SOURCE, **TABLE})) == {(False, False)}
