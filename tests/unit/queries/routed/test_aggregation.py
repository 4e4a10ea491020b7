import pyarrow as pa
import pytest

from millrace_api.errors import MillraceError
from millrace_api.sql.parsed_query import parsed_query
from millrace_jobs.queries.routed.aggregation import aggregation_of
from millrace_jobs.queries.sql_aggregates import NotRoutableError, longest_window
from millrace_jobs.windows import Window

MINUTE = 60_000_000
MOMENT = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [("a", pa.string()), ("B", pa.int64()), ("v", pa.float64()), ("start", pa.string()), ("day", pa.int32()),
     ("at", MOMENT), ("day at", MOMENT), ("xs", pa.list_(pa.int32()))]
)  # fmt: skip


def type_of(sql):
    types = {"a": "string", "start": "string", "v": "double", "xs": "array<int>", "B": "bigint"}
    return types.get(sql.strip("`"), "double" if "DOUBLE" in sql else "bigint")


def routed(sql, **more):
    return aggregation_of(parsed_query(sql), {"t": SCHEMA, **more}, type_of)


def refusal(sql, **more):
    with pytest.raises(NotRoutableError) as refused:
        routed(sql, **more)
    return str(refused.value)


def keys(plan):
    return [key.sql for key in plan.keys]


@pytest.mark.parametrize(
    ("select", "group_by", "expected"),
    [
        ("a", "a", ["a"]),
        ("a", "A", ["a"]),
        ("a", "x.a, x.b", ["a", "B"]),
        ("1, a", "2", ["a"]),
        ("a", "1, upper(a)", ["a", "UPPER(a)"]),
        ("a", "(a)", ["a"]),
        ("1", "b % 10, v > 1", ["B % 10", "v > 1"]),
        ("b + 1 AS k", "k", ["B + 1"]),
        ("b + 1 AS k", "K, a", ["B + 1", "a"]),
    ],
)
def test_keys_are_the_expressions_that_are_grouped_by(select, group_by, expected):
    assert keys(routed(f"SELECT {select}, count(*) FROM t AS x GROUP BY {group_by}")) == expected


def test_without_group_by_there_is_one_group():
    assert keys(routed("SELECT count(*) FROM t")) == []


def test_a_column_comes_before_an_alias_of_its_name():
    plan = routed("SELECT upper(a) AS a, count(*) FROM t GROUP BY a")
    assert keys(plan) == ["a"]
    assert plan.select[0] == "UPPER(k0)"


@pytest.mark.parametrize(
    ("select", "group_by", "expected"),
    [
        ("a", "a", "k0"),
        ("A", "a", "k0"),
        ("`a`", "a", "k0"),
        ("a", "`A`", "k0"),
        ("t.a", "a", "k0"),
        ("a", "(a)", "k0"),
        ("(a)", "a", "(k0)"),
        ("upper(a)", "a", "UPPER(k0)"),
        ("upper(a)", "upper(a)", "k0"),
        ("a", "upper(a), a", "k1"),
        ("upper( A )", "Upper(`a`)", "k0"),
        ("5", "a", "5"),
        ("window.start", "window(at, '1 minute')", "window.start"),
        ("window.start", "window(at, '1 minute'), start", "window.start"),
        ("start", "window(at, '1 minute'), start", "k0"),
        ("window(at, '1 minute')", "window(at, '1 minute')", "window"),
        ("window", "window(at, '1 minute')", "window"),
        ("window(at, '1 minute').end", "window(at, '1 minute')", "window.end"),
        ("extract(DAY FROM CAST(day AS DATE))", "day", "EXTRACT(DAY FROM CAST(k0 AS DATE))"),
        ("CASE WHEN a = 'x' THEN day END", "a, day", "CASE WHEN k0 = 'x' THEN k1 END"),
    ],
)
def test_keys_in_the_select_list_are_columns_of_the_state(select, group_by, expected):
    plan = routed(f"SELECT {select}, count(*) FROM t GROUP BY {group_by}")
    assert plan.select[0] == expected


@pytest.mark.parametrize(
    ("item", "expected", "calls"),
    [
        ("count(*)", "(CAST(coalesce(a0, 0L) AS bigint))", ["COUNT(*)"]),
        ("count(*) + 1 AS n", "(CAST(coalesce(a0, 0L) AS bigint)) + 1", ["COUNT(*)"]),
        ("sum(b) / count(*)", None, ["SUM(B)", "COUNT(*)"]),
        ("round(avg(v), 1)", None, ["AVG(v)"]),
        ("max(b) - max(t.B)", None, ["MAX(B)"]),
        ("sum(b * 2)", None, ["SUM(B * 2)"]),
        ("CASE WHEN min(v) > 0 THEN max(v) END", None, ["MAX(v)", "MIN(v)"]),
        ("count(*) FILTER (WHERE v > 1)", None, ["COUNT(*) FILTER(WHERE v > 1)"]),
        ("sum(b) FILTER (WHERE v > 1) + sum(b)", None, ["SUM(B) FILTER(WHERE v > 1)", "SUM(B)"]),
        ("stddev(v), variance(v)", None, ["STDDEV(v)", "VARIANCE(v)"]),
        ("approx_count_distinct(a, 0.05)", None, ["APPROX_COUNT_DISTINCT(a, 0.05)"]),
    ],
)
def test_aggregates_are_computed_from_their_partial_results(item, expected, calls):
    plan = routed(f"SELECT {item} FROM t GROUP BY a")
    assert [aggregate.call for aggregate in plan.aggregates] == calls
    assert expected in (None, plan.select[0])
    names = [part.name for part in plan.parts]
    assert len(names) == len(set(names))
    assert all(not any(call in text for call in calls) for text in plan.select)


def test_a_filtered_aggregate_is_fed_nulls():
    (count, total) = routed("SELECT count(*) FILTER (WHERE v > 1), sum(b) FILTER (WHERE v > 1) FROM t").parts
    assert count.input == "CASE WHEN v > 1 THEN 1L END"
    assert total.input == "CASE WHEN v > 1 THEN B END"


@pytest.mark.parametrize(
    ("having", "expected"),
    [
        ("count(*) > 5", "(CAST(coalesce(a0, 0L) AS bigint)) > 5"),
        ("n > 5", "((CAST(coalesce(a0, 0L) AS bigint))) > 5"),
        ("N > 5 AND a <> 'x'", "((CAST(coalesce(a0, 0L) AS bigint))) > 5 AND k0 <> 'x'"),
        ("max(b) > 1", "(CAST(a1 AS bigint)) > 1"),
        ("k = 'X'", "(UPPER(k0)) = 'X'"),
    ],
)
def test_having_is_evaluated_over_the_results(having, expected):
    plan = routed(f"SELECT a, upper(a) AS k, count(*) AS n FROM t GROUP BY a HAVING {having}")
    assert plan.having == expected


def test_where_is_a_filter_over_the_source():
    plan = routed("SELECT count(*) FROM t x WHERE x.V > 1 AND `day at` IS NOT NULL")
    assert (plan.source, plan.where, plan.having) == ("t", "v > 1 AND NOT `day at` IS NULL", "")


@pytest.mark.parametrize(
    ("call", "window"),
    [
        ("window(at, '5 minutes')", Window("at", 5 * MINUTE, 5 * MINUTE)),
        ("WINDOW(AT, '5 minutes')", Window("at", 5 * MINUTE, 5 * MINUTE)),
        ("window(t.at, '5 minutes', '1 minute')", Window("at", 5 * MINUTE, MINUTE)),
        ("window(at, '5 minutes', '2 minutes', '30 seconds')", Window("at", 5 * MINUTE, 2 * MINUTE, MINUTE // 2)),
        ("window(`day at`, '1 day')", Window("day at", 1440 * MINUTE, 1440 * MINUTE)),
        ("window(at, '1 WEEK')", Window("at", 7 * 1440 * MINUTE, 7 * 1440 * MINUTE)),
        ("window(at, '1 hour 30 minutes', '.5 seconds')", Window("at", 90 * MINUTE, MINUTE // 120)),
        ("window(at, 60000000)", Window("at", MINUTE, MINUTE)),
        ("window(at, '5 minutes', '2 minutes', '-30 seconds')", Window("at", 5 * MINUTE, 2 * MINUTE, -MINUTE // 2)),
    ],
)
def test_windows_have_their_column_size_and_slide(call, window):
    plan = routed(f"SELECT window.start, a, count(*) FROM t GROUP BY {call}, a")
    assert (plan.window, keys(plan)) == (window, ["a"])


def test_a_window_may_be_named_by_alias_or_ordinal():
    for group_by in ("w, a", "1, 2", "a, W"):
        plan = routed(f"SELECT window(at, '5 minutes') AS w, a, count(*) FROM t GROUP BY {group_by}")
        assert (plan.window, keys(plan)) == (Window("at", 5 * MINUTE, 5 * MINUTE), ["a"])
        assert plan.select[:2] == ("window", "k0")


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT a FROM t", "it has no aggregate, so there is nothing to combine"),
        (
            "SELECT count(*), stddev(v) FROM t",
            "it has a deviation or variance without GROUP BY, which cannot be merged before the first record",
        ),
        ("SELECT a FROM t GROUP BY a", "it has no aggregate, so there is nothing to combine"),
        ("SELECT count(*) FROM t UNION ALL SELECT 1", "it is a UNION, not one SELECT"),
        ("WITH u AS (SELECT * FROM t) SELECT count(*) FROM u", "it has a WITH clause"),
        ("SELECT count(*) FROM t JOIN u ON t.a = u.a", "it has a JOIN"),
        ("SELECT count(*) FROM t, u", "it has a JOIN"),
        ("SELECT DISTINCT count(*) FROM t", "it has SELECT DISTINCT"),
        ("SELECT count(*) FROM t ORDER BY 1", "it has ORDER BY"),
        ("SELECT count(*) FROM t LIMIT 1", "it has LIMIT"),
        ("SELECT count(*) FROM t LATERAL VIEW explode(xs) AS x", "it has a LATERAL VIEW"),
        ("SELECT count(*) FROM t WHERE b IN (SELECT 1)", "it has a subquery"),
        ("SELECT count(*) FROM (SELECT DISTINCT a FROM t)", "it has a subquery"),
        ("SELECT sum(count(*)) OVER () FROM t", "it has an OVER clause"),
        ("SELECT *, count(*) FROM t GROUP BY a, b", "it selects *"),
        ("SELECT t.*, count(*) FROM t GROUP BY a, b", "it selects *"),
        ("SELECT count(*)", "it does not read from one source"),
        ("SELECT count(*) FROM other", "it does not read from one source"),
        ("SELECT count(*) FROM range(5)", "it does not read from one source"),
        ("SELECT count(*) FROM t TABLESAMPLE (10 PERCENT)", "it reads from t TABLESAMPLE (10 PERCENT)"),
        ("SELECT sum(y) FROM t AS x(y, z)", "it reads from t AS x(y, z)"),
        ("SELECT count(*) FROM t GROUP BY ROLLUP (a)", "it has GROUPING SETS, CUBE, ROLLUP or GROUP BY ALL"),
        ("SELECT count(*) FROM t GROUP BY a WITH CUBE", "it has GROUPING SETS, CUBE, ROLLUP or GROUP BY ALL"),
        ("SELECT count(*) FROM t GROUP BY GROUPING SETS ((a), ())",
         "it has GROUPING SETS, CUBE, ROLLUP or GROUP BY ALL"),
        ("SELECT a, count(*) FROM t GROUP BY ALL", "it has GROUPING SETS, CUBE, ROLLUP or GROUP BY ALL"),
        ("SELECT xs, count(*) FROM t GROUP BY xs", "its key xs is of type array<int>"),
        ("SELECT max(xs) FROM t", "MAX(xs) is over array<int>, which workers cannot compare or add"),
        ("SELECT count(DISTINCT a) FROM t", "COUNT(DISTINCT a) needs all values of a key in one place"),
        ("SELECT count(a, b) FROM t", "COUNT(a, B) has more than one argument"),
        ("SELECT count(*), first(a) FROM t", "FIRST(a) is not one of the aggregates with a mergeable partial result"),
        ("SELECT count(*), bool_and(v > 1) FROM t",
         "BOOL_AND(v > 1) is not one of the aggregates with a mergeable partial result"),
        ("SELECT count(*) FROM t GROUP BY window(at, '1 minute'), window(`day at`, '1 minute')",
         "it groups by more than one window"),
        ("SELECT count(*) FROM t GROUP BY window(a, '1 minute')", "its window is not on a TIMESTAMP column but on a"),
        ("SELECT count(*) FROM t GROUP BY window(at + 1, '1 minute')",
         "its window is not on a TIMESTAMP column but on at + 1"),
        ("SELECT 1 + b, count(*) FROM t GROUP BY b + 1",
         "1 + B is not made of its GROUP BY expressions and aggregates alone"),
        ("SELECT count(*), mean(v) FROM t", "MEAN(v) is not one of the aggregates with a mergeable partial result"),
    ],
)  # fmt: skip
def test_a_query_that_is_not_routed_has_a_reason(sql, reason):
    assert refusal(sql) == reason


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("SELECT", "-- the number\nSELECT"),
        ("upper(a)", "/* in capitals */ upper(a /* of the city */)"),
        ("count(*)", "count(*) /* all of them */"),
        ("GROUP BY", "GROUP BY -- one each\n"),
        ("> 1", "> /* two or more */ 1"),
        ("FROM t", "FROM T"),
        ("FROM t", "FROM `T` AS X"),
    ],
)
def test_comments_and_the_case_of_the_source_change_nothing(before, after):
    sql = "SELECT upper(a) AS k, count(*) FROM t WHERE v > 1 GROUP BY upper(a) HAVING count(*) > 1"
    assert before in sql
    assert routed(sql.replace(before, after)) == routed(sql)


@pytest.mark.parametrize(
    ("select", "having", "expected"),
    [
        ("a, max(v) AS v", "v > 1", "((CAST(CASE WHEN a0_nan THEN double('NaN') ELSE a0 END AS bigint))) > 1"),
        ("a, max(b) AS b", "sum(b) > b", "(CAST(a1 AS bigint)) > ((CAST(a0 AS bigint)))"),
        ("upper(a) AS a, count(*)", "a = 'x'", "k0 = 'x'"),
        ("upper(a) AS b, count(*)", "b = 'X'", "(UPPER(k0)) = 'X'"),
    ],
)
def test_in_having_an_alias_comes_before_a_column_that_is_not_grouped_by(select, having, expected):
    assert routed(f"SELECT {select} FROM t GROUP BY a HAVING {having}").having == expected


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        ("count(*) AS n, n + 1", "((CAST(coalesce(a0, 0L) AS bigint))) + 1"),
        ("upper(a) AS k, lower(k)", "LOWER((UPPER(k0)))"),
        ("1 AS x, x + 1 AS y, y * 2", "((1) + 1) * 2"),
        ("1 AS a, a", "k0"),
    ],
)
def test_an_alias_may_be_used_further_on_in_the_select_list(select, expected):
    assert routed(f"SELECT {select}, sum(b) FROM t GROUP BY a").select[-2] == expected


@pytest.mark.parametrize("group_by", ["w", "window", "window(at, '5 minutes')"])
def test_the_fields_of_a_window_may_be_named_by_its_alias(group_by):
    plan = routed(
        f"SELECT window(at, '5 minutes') AS w, w.start, W.END AS until, count(*) FROM t GROUP BY {group_by} "
        "HAVING w.start > TIMESTAMP '2013-01-01'"
    )
    assert (plan.window, keys(plan)) == (Window("at", 5 * MINUTE, 5 * MINUTE), [])
    assert plan.select[:3] == ("window", "window.start", "window.END")
    assert plan.having == "window.start > CAST('2013-01-01' AS TIMESTAMP)"


@pytest.mark.parametrize("alias", ["AS w", "w", "AS w, a", "w HAVING count(*) > 1"])
def test_group_by_takes_no_alias_as_it_does_not_to_spark(alias):
    with pytest.raises(MillraceError) as raised:
        routed(f"SELECT w.start, count(*)\nFROM t GROUP BY window(at, '5 minutes') {alias}")
    (problem,) = raised.value.problems
    assert (problem.line, "GROUP BY takes no alias" in problem.message) == (2, True)
    assert (
        problem.hint == "move the alias to the SELECT list, as in SELECT window(at, '10 minutes') AS w ... GROUP BY w"
    )


@pytest.mark.parametrize("length", ["'P1D'", "concat('1', ' day')", "'1 minute', '-1 minute'"])
def test_a_window_of_a_length_that_spark_refuses_is_not_routed(length):
    reason = refusal(f"SELECT count(*) FROM t GROUP BY window(at, {length})")
    assert reason.startswith("a length of its window cannot be read: ")


def test_a_window_of_more_than_a_hundred_years_is_spark_s():
    reason = refusal("SELECT count(*) FROM t GROUP BY window(at, '50000 days')")
    assert reason == "its window is longer than a hundred years"


def test_a_window_may_start_at_zero():
    plan = routed("SELECT count(*) FROM t GROUP BY window(at, '10 minutes', '5 minutes', '0 seconds')")
    assert plan.window == Window("at", 10 * MINUTE, 5 * MINUTE, 0)


def test_of_several_sources_none_is_routed():
    assert refusal("SELECT count(*) FROM t", u=SCHEMA) == "it does not read from one source"


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT a FROM t", False),
        ("SELECT a, upper(a) FROM t WHERE v > 1", False),
        ("SELECT a, row_number() OVER (ORDER BY v) FROM t", False),
        ("SELECT sum(v) OVER (PARTITION BY a) FROM t", False),
        ("SELECT count(*) FROM t", True),
        ("SELECT a FROM t GROUP BY a", True),
        ("SELECT DISTINCT a FROM t", True),
        ("SELECT a FROM t UNION ALL SELECT a FROM t", False),
        ("SELECT a FROM t UNION SELECT a FROM t", True),
        ("SELECT mean(v) AS m FROM t", True),
        ("SELECT mean(v) OVER (PARTITION BY a) AS m FROM t", False),
        ("SELECT n FROM (SELECT count(*) AS n FROM t)", True),
    ],
)
def test_a_query_has_groups_with_an_aggregate_or_distinct_rows(sql, expected):
    assert parsed_query(sql).aggregates is expected


@pytest.mark.parametrize(
    ("sql", "minutes"),
    [
        ("SELECT count(*) FROM t", 0),
        ("SELECT count(*) FROM t GROUP BY window(at, '5 minutes', '1 minute')", 5),
        ("SELECT count(*) FROM t GROUP BY session_window(at, '7 minutes')", 7),
        ("SELECT max(n) FROM (SELECT window, count(*) AS n FROM t GROUP BY window(at, '5 minutes'))"
         " GROUP BY window(window, '1 hour')", 60),
        ("SELECT count(*) FROM t GROUP BY session_window(at, a)", 0),
        ("SELECT count(*) FROM t GROUP BY window(at, '1 week')", 7 * 24 * 60),
        ("SELECT count(*) FROM t GROUP BY window(at, 'INTERVAL 1 HOUR 30 MINUTES', '1 MINUTE')", 90),
        ("SELECT count(*) FROM t GROUP BY session_window(at, CASE WHEN a THEN '1 DAY' ELSE '1 hour' END)", 24 * 60),
    ],
)  # fmt: skip
def test_the_longest_window_of_all_subqueries_counts(sql, minutes):
    assert longest_window(parsed_query(sql)) == minutes * MINUTE
