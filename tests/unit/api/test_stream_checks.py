import pytest

from millrace_api.model.streamquery import Emit, StreamQuery
from millrace_api.sql.checks import check_sql
from millrace_api.sql.schema_ddl import parse_schema
from millrace_api.sql.source_table import SourceTable
from millrace_api.validation.checking import check_query
from stream_queries import COLUMNS, ONLY_SPARK, REFUSED, RUNS, UNBOUNDED


def check(sql, setting):
    table = SourceTable(parse_schema(COLUMNS), None if setting == "bare" else "at")
    return check_sql(sql, {"e": table, "c": table}, emit=Emit.ON_WINDOW_CLOSE if setting == "close" else Emit.ON_UPDATE)


@pytest.mark.parametrize(("setting", "sql"), [*RUNS, *((query.setting, query.sql) for query in ONLY_SPARK)])
def test_what_spark_runs_as_a_stream_has_no_problem(setting, sql):
    assert check(sql, setting) == []


@pytest.mark.parametrize("query", REFUSED, ids=lambda query: query.sql)
def test_what_spark_refuses_as_a_stream_has_a_place_and_a_remedy(query):
    problems = check(query.sql, query.setting)
    fitting = [problem for problem in problems if query.said in problem.message]
    assert fitting, problems
    assert query.at in fitting[0].message
    assert query.hint in fitting[0].hint
    assert f"line {fitting[0].line}," in query.at


@pytest.mark.parametrize(("sql", "at", "said"), UNBOUNDED)
def test_a_join_that_would_keep_its_records_for_ever_is_refused(sql, at, said):
    [problem] = check(sql, "update")
    assert at in problem.message
    assert said in problem.message
    assert "table: {keys: [...]}" in problem.hint


def test_a_full_join_needs_both_ends_although_spark_starts_it_with_one():
    [problem] = check("SELECT e.n FROM e FULL JOIN c ON e.n = c.n AND c.at < e.at", "update")
    assert (
        "a record of a FULL JOIN would wait forever, since the condition has a range of event time with no lower end"
        in (problem.message)
    )


def test_a_join_with_a_table_needs_no_range_of_event_time():
    columns = parse_schema(COLUMNS)
    tables = {"e": SourceTable(columns, "at"), "c": SourceTable(columns, "at", ("n",))}
    assert check_sql("SELECT e.n FROM e JOIN c ON e.n = c.n", tables, emit=Emit.ON_UPDATE) == []


def test_a_refusal_names_the_strategy_under_which_results_change():
    table = SourceTable(parse_schema(COLUMNS), "at")
    [problem] = check_sql(
        "SELECT n FROM e GROUP BY window(at, '1 minute'), n LIMIT 2", {"e": table}, emit=Emit.ON_WINDOW_END
    )
    assert problem.message.startswith("LIMIT is not possible under emit OnWindowEnd, because results change")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) AS k FROM e GROUP BY session_window(at, '30 seconds')",
        "SELECT session_window(at, '30 seconds') AS s, count(*) AS k FROM e GROUP BY s",
        "SELECT session_window(at, '30 seconds').start AS s, count(*) AS k FROM e GROUP BY session_window",
        "SELECT session_window(at, '30 seconds'), count(*) AS k FROM e GROUP BY 1",
    ],
)
def test_sessions_of_a_stream_need_a_key(sql):
    [problem] = check(sql, "close")
    assert "session_window is all that the query groups by, and sessions of a stream need a key" in problem.message
    assert problem.hint == "group by a column beside it, or by window(at, '10 minutes')"
    tables = {"e": SourceTable(parse_schema(COLUMNS), "at"), "c": SourceTable(parse_schema(COLUMNS), static=True)}
    found = check_sql(sql.replace("FROM e", "FROM c"), tables, emit=Emit.ON_WINDOW_CLOSE)
    assert "sessions of a stream" not in str(found)


def test_a_static_table_does_not_stream():
    columns = parse_schema(COLUMNS)
    tables = {"e": SourceTable(columns, "at"), "c": SourceTable(columns, None, ("n",), static=True)}
    for sql in ("SELECT e.n FROM e JOIN c ON e.n = c.n", "SELECT n FROM e WHERE n IN (SELECT n FROM c ORDER BY n)"):
        assert check_sql(sql, tables, emit=Emit.ON_UPDATE) == []
    [problem] = check_sql("SELECT e.n FROM e RIGHT JOIN c ON e.n = c.n", tables, emit=Emit.ON_UPDATE)
    assert "a RIGHT JOIN needs all records" in problem.message
    [problem] = check_sql("SELECT n FROM c", tables, emit=Emit.ON_UPDATE)
    assert str(problem) == "the SQL reads none of the sources that stream; write FROM e"


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT n FROM e WHERE n = :least", "the SQL has the parameter :least, which has no value"),
        ("SELECT n FROM e WHERE n = ?", "the SQL has the parameter ?, which has no value"),
    ],
)
def test_parameters_have_no_value(sql, said):
    [problem] = check(sql, "update")
    assert str(problem) == f"{said}; write the value itself"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM e AS x(a, b, c)",
        "SELECT x.a, b FROM e AS x(a, b, c) WHERE c > 1",
        "WITH y AS (SELECT n, who FROM e) SELECT p, x.q FROM y AS x(p, q)",
    ],
)
def test_columns_that_an_alias_renames_are_left_to_spark(sql):
    assert check(sql, "update") == []


def test_sql_has_to_read_a_source():
    [problem] = check("SELECT id FROM range(10)", "update")
    assert str(problem) == "the SQL reads none of the sources; write FROM e or c"


@pytest.mark.parametrize(
    ("setting", "sql"),
    [
        ("spark.sql.extensions", "SELECT of_an_extension(key) AS f FROM r"),
        ("spark.sql.streaming.unsupportedOperationCheck", "SELECT key FROM r ORDER BY key"),
    ],
)
def test_settings_that_give_spark_more_features_skip_the_checks(setting, sql):
    document = {
        "apiVersion": "millrace.io/v1alpha1",
        "kind": "StreamQuery",
        "metadata": {"name": "a"},
        "spec": {"sources": {"r": {"rate": {}}}, "query": {"sql": sql}, "sink": {"console": {}}},
    }
    assert check_query(StreamQuery.model_validate(document, by_name=False))
    document["spec"]["sparkConf"] = {setting: "false"}
    assert check_query(StreamQuery.model_validate(document, by_name=False)) == []
