"""What no operator can run is refused by ``millrace validate`` in the words of a run, without Spark."""

import re

import pytest

from planner_problems import KAFKA, NEAR, TABLE_SINK, problems, source


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        (
            "SELECT s.k, g.c FROM s FULL JOIN (SELECT n, count(*) AS c FROM p GROUP BY n) g ON s.n = g.n",
            "its FULL JOIN with a stream keeps rows of a computed table",
        ),
        ("SELECT p.k FROM p LEFT JOIN q ON p.k = q.k AND p.k > q.n", "that only Spark can evaluate: (p.k > q.n)"),
        (
            "SELECT k, row_number() OVER (ORDER BY n) + 1 AS r FROM p QUALIFY row_number() OVER (ORDER BY n) = 1",
            "from the number of a row (line 1, column 11 of the SQL); compute it in a SELECT around this one",
        ),
        (
            "SELECT k, array(n) AS ns FROM p QUALIFY row_number() OVER (PARTITION BY k ORDER BY n) = 1",
            "(line 1, column 41 of the SQL); leave that column out, or CAST it to STRING",
        ),
        (
            "SELECT q.k, x.n FROM (SELECT k, n FROM p UNION ALL SELECT k, n FROM s) x JOIN q ON x.k = q.k",
            "it joins the rows of a UNION of a stream and a table, which would be kept forever",
        ),
    ],
)
def test_a_query_over_a_table_that_cannot_run_is_refused(sql, said):
    [problem] = problems(sql)
    assert "the query reads a table, and " in problem
    assert said.lower() in problem.lower()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT s.k, s.n, p.k AS key, p.n AS m FROM s RIGHT JOIN p ON s.k = p.k",
        "SELECT s.k, s.n, p.k AS key, p.n AS m FROM s FULL JOIN p ON s.k = p.k AND s.n > p.n",
        "SELECT k, p.n, q.n AS m FROM p FULL JOIN q USING (k)",
        "SELECT p.k, p.n, q.n AS m FROM p LEFT JOIN q ON p.k = q.k AND p.n BETWEEN q.n - 1 AND q.n + 1",
        "SELECT k, n FROM p NATURAL JOIN q",
        "SELECT k, n FROM s WHERE EXISTS (SELECT 1 FROM p WHERE p.k = s.k AND p.n > s.n)",
        "SELECT k, n FROM s WHERE NOT EXISTS (SELECT 1 FROM p WHERE p.k = s.k)",
        "SELECT k, n FROM p WHERE k IN (SELECT k FROM q WHERE n > 1)",
        "SELECT k, n FROM p LEFT ANTI JOIN q USING (k)",
    ],
)
def test_joins_with_tables_are_accepted(sql):
    sink = {"table": {**TABLE_SINK["table"], "key": ["k"]}}
    assert problems(sql, sink) == []


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT n, max(at) AS newest, min_by(k, at) AS first FROM p GROUP BY n",
        "SELECT p.n, max(q.n) AS most FROM p LEFT JOIN q ON p.k = q.k GROUP BY p.n",
        "SELECT s.k, min(p.n) AS least FROM s JOIN p ON s.k = p.k GROUP BY s.k",
        "SELECT max(many) AS most FROM (SELECT k, count(*) AS many FROM s GROUP BY k)",
    ],
)
def test_the_least_and_the_largest_of_rows_that_change_can_run(sql):
    assert problems(sql) == []


@pytest.mark.parametrize("emit", ["OnUpdate", "OnWindowClose", "OnWindowEnd"])
@pytest.mark.parametrize("algorithm", ["auto", "native", "pkg"])
def test_distinct_values_of_one_stream_are_counted_under_every_plan_and_strategy(emit, algorithm):
    columns = "count(DISTINCT n) AS c, stddev(n) AS d, approx_count_distinct(n) AS e, median(n) AS f"
    sql = f"SELECT window, k, {columns} FROM s GROUP BY window(at, '1 minute'), k"
    assert problems(sql, emit=emit, partitioner={"algorithm": algorithm}, sources={"s": source("s")}) == []


@pytest.mark.parametrize(
    "call",
    [
        "count(DISTINCT n, k)",
        "count(DISTINCT k) FILTER (WHERE n > 1)",
        "approx_count_distinct(k)",
        "median(k)",
        "percentile(n, 0.9) FILTER (WHERE n > 1)",
        "percentile_approx(at, 0.25, 100)",
        "max_by(k, at, 3)",
        "min_by(k, at, 10)",
    ],
)
def test_functions_of_the_values_of_rows_that_change_can_run(call):
    assert problems(f"SELECT n, {call} AS c FROM p GROUP BY n") == []


def test_what_workers_cannot_merge_is_held_back_by_operators_on_tables():
    sql = "SELECT window, k, stddev(n) AS d, approx_count_distinct(n) AS e FROM s GROUP BY window(at, '1 minute'), k"
    assert problems(sql, emit="OnWindowEnd", sources={"s": source("s")}) == []


def test_the_percentage_of_a_percentile_is_one_number():
    [problem] = problems("SELECT n, percentile(n, array(0.1, 0.9)) AS c FROM p GROUP BY n")
    assert "has a percentage that is not a number from 0 to 1" in problem


LATEST = "SELECT k, n FROM s QUALIFY row_number() OVER (PARTITION BY k ORDER BY at DESC)"


def test_the_first_rows_of_a_stream_need_a_key_and_a_sink_that_replaces_rows():
    kafka = {"kafka": {**KAFKA, "topic": "out"}}
    assert problems(f"{LATEST} = 1") == problems(f"{LATEST} = 1", kafka) == []
    [unidentified] = problems(f"{LATEST} <= 2")
    assert "does not say which columns identify a row" in unidentified
    [unshown] = problems(f"{LATEST} <= 2", kafka)
    assert "the rows of the result change, which kafka cannot show; write the results to sink.table" in unshown


def test_the_first_rows_of_all_need_a_key_and_a_sink_that_replaces_rows():
    kafka = {"kafka": {**KAFKA, "topic": "out"}}
    for limited in (
        "SELECT k, n FROM p ORDER BY n DESC LIMIT 10",
        "SELECT n, count(*) AS c FROM s GROUP BY n ORDER BY c DESC, n LIMIT 10 OFFSET 5",
        "SELECT k, n FROM p UNION SELECT k, n FROM q ORDER BY n LIMIT 3",
    ):
        assert problems(limited) == []
        [unshown] = problems(limited, kafka)
        assert "the rows of the result change, which kafka cannot show" in unshown
    [unidentified] = problems("SELECT k, n FROM s ORDER BY n LIMIT 10")
    assert "does not say which columns identify a row" in unidentified


RANGE = "s.at BETWEEN r.at - INTERVAL 1 MINUTE AND r.at"
OF_TWO = {"s": source("s"), "r": source("r")}


@pytest.mark.parametrize("emit", ["OnUpdate", "OnWindowClose", "OnWindowEnd"])
@pytest.mark.parametrize("algorithm", ["auto", "native", "pkg"])
def test_whether_a_stream_has_a_record_is_asked_under_every_plan_and_strategy(emit, algorithm):
    table = {"table": {**TABLE_SINK["table"], "key": ["k"]}}
    kafka = {"kafka": {**KAFKA, "topic": "out"}}
    for sql in (
        f"SELECT s.k, s.n FROM s WHERE EXISTS (SELECT 1 FROM r WHERE r.k = s.k AND {RANGE})",
        f"SELECT s.k, s.n FROM s WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.k = s.k AND {RANGE})",
        f"SELECT s.k, s.n FROM s LEFT ANTI JOIN r ON r.k = s.k AND {RANGE}",
    ):
        for sink in (table, kafka) if emit != "OnWindowEnd" else (table,):
            assert problems(sql, sink, sources=OF_TWO, emit=emit, partitioner={"algorithm": algorithm}) == []


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("s.k IN (SELECT x.k FROM (SELECT k, n FROM r) x)", "no range of event time"),
        (f"EXISTS (SELECT 1 FROM r WHERE {RANGE})", "has no key"),
        (f"s.n > 1 OR EXISTS (SELECT 1 FROM r WHERE r.k = s.k AND {RANGE})", "a subquery in"),
        (f"s.k NOT IN (SELECT r.k FROM r WHERE {RANGE})", "NOT IN"),
    ],
)
def test_what_a_stream_cannot_be_asked_is_refused_with_the_reason(where, reason):
    [problem] = problems(f"SELECT s.k, s.n FROM s WHERE {where}", {"kafka": {**KAFKA, "topic": "out"}}, sources=OF_TWO)
    assert "the query asks whether a stream has a record, and " in problem
    assert reason in problem


@pytest.mark.parametrize("emit", ["OnWindowClose", "OnWindowEnd"])
def test_the_first_rows_of_all_are_never_final(emit):
    [problem] = problems("SELECT k, n FROM s ORDER BY n LIMIT 3", sources={"s": source("s")}, emit=emit)
    assert "never final" in problem


@pytest.mark.parametrize("emit", ["OnWindowClose", "OnWindowEnd"])
def test_the_first_rows_of_keys_are_never_final(emit):
    [problem] = problems(f"{LATEST} = 1", sources={"s": source("s")}, emit=emit)
    assert "never final" in problem


def test_the_number_of_first_rows_has_a_limit():
    [problem] = problems("SELECT n, max_by(k, at, 5000) AS c FROM p GROUP BY n")
    assert "has a number of rows that is not one from 1 to 100" in problem


def test_distinct_values_that_no_operator_can_count_are_refused_with_the_reason():
    sql = "SELECT k, count(DISTINCT n) AS n FROM s GROUP BY CUBE(k)"
    [problem] = problems(sql, {"console": {}}, sources={"s": source("s")})
    assert "the query counts distinct values, and it has GROUPING SETS, CUBE, " in problem
    assert "(line 1, column 8 of the SQL); write the expressions of one GROUP BY" in problem


@pytest.mark.parametrize(
    "sql",
    [
        "WITH w AS (SELECT k, n FROM p) SELECT k, n FROM w",
        "WITH w AS (SELECT s.k, p.n FROM s JOIN p ON s.k = p.k) SELECT k, count(*) AS c FROM w GROUP BY k",
        "SELECT DISTINCT p.n AS k FROM p JOIN q ON p.k = q.k",
        "SELECT k, count(*) AS c FROM (SELECT DISTINCT k, n FROM s) GROUP BY k",
        "SELECT k, sum(n) AS n FROM (SELECT k, n FROM p UNION ALL SELECT k, n FROM s) GROUP BY k",
        "SELECT k, n FROM p UNION SELECT k, n FROM q",
        "SELECT k, n FROM p EXCEPT SELECT k, n FROM q",
        "SELECT k, at FROM s INTERSECT SELECT k, at FROM r",
        "SELECT a.k, b.n FROM p a JOIN p b ON a.k = b.k JOIN (SELECT k, n FROM q) c ON c.n = b.n",
        "SELECT p.k, q.k AS j FROM p, q, s, r WHERE p.k = s.k AND q.k = s.k AND r.k = s.k AND r.at = s.at",
    ],
)
def test_subqueries_set_operations_and_many_inputs_run_over_tables(sql):
    table = {"keys": ["k"]}
    sources = {name: source(name, **({"table": table} if name in "pq" else {})) for name in "srpq"}
    read = {name: each for name, each in sources.items() if re.search(rf"(FROM|JOIN|,) {name}\b", sql)}
    key = (
        {}
        if "DISTINCT p" in sql or " EXCEPT " in sql or " INTERSECT " in sql or "UNION SELECT" in sql
        else {"key": ["k"]}
    )
    assert problems(sql, {"table": {**KAFKA, "topic": "out", **key}}, sources=read) == []


def test_rows_that_are_taken_back_by_except_do_not_go_to_files():
    sources = {name: source(name) for name in "sr"}
    sink = {"files": {"path": "out", "format": "csv"}}
    [problem] = problems("SELECT k, at FROM s EXCEPT SELECT k, at FROM r", sink, sources=sources)
    assert "the rows of the result change, which files cannot show" in problem
    assert problems("SELECT k, at FROM s EXCEPT SELECT k, at FROM r", sink, sources=sources, emit="OnWindowClose") == []


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        (f"SELECT s.k, r.n {NEAR}", "the results may be shuffled after the state, and a repeated batch"),
        ("SELECT k, count(*) AS c FROM s GROUP BY k", ""),
        ("SELECT k, n FROM s WHERE n > 0", "the query keeps no state, so it has no partitions of one to write by"),
    ],
)
def test_only_results_in_the_partitions_of_the_state_are_written_by_them(sql, said):
    sources = {name: source(name) for name in "sr" if name == "s" or NEAR in sql}
    more = {"sources": sources, "sink": {"kafka": {**KAFKA, "topic": "out", "transaction": "Partition"}}}
    found = problems(sql, **more)
    assert [each.startswith(f"spec.sink.kafka.transaction: {said}") for each in found] == [True] * bool(said), found


@pytest.mark.parametrize(
    ("sql", "emit", "stay"),
    [
        ("SELECT k, count(*) AS c FROM s GROUP BY k", "OnUpdate", True),
        ("SELECT k, count(*) AS c FROM s GROUP BY k HAVING count(*) > 1", "OnUpdate", False),
        ("SELECT window.end AS e, k, count(*) AS c FROM s GROUP BY window(at, '1 minute'), k", "OnUpdate", False),
        ("SELECT window.end AS e, k, count(*) AS c FROM s GROUP BY window(at, '1 minute'), k", "OnWindowEnd", False),
        ("SELECT window.end AS e, k, count(*) AS c FROM s GROUP BY window(at, '1 minute'), k", "OnWindowClose", True),
        ("SELECT n, count(*) AS c FROM p GROUP BY n", "OnUpdate", False),
        ("SELECT k, collect_set(n) AS c FROM s GROUP BY k", "OnUpdate", True),
    ],
)
def test_tasks_write_only_tables_whose_rows_stay(sql, emit, stay):
    sources = {"p": source("p", table={"keys": ["k"]})} if "FROM p" in sql else {"s": source("s")}
    sink = {"table": {**KAFKA, "topic": "out", "transaction": "Partition"}}
    found = problems(sql, sink, sources=sources, emit=emit)
    assert found == ([] if stay else [
        "spec.sink.table.transaction: rows of the table can be removed, which takes a driver that knows all of them; "
        "write transaction: Batch"
    ])  # fmt: skip


def test_a_table_is_never_final():
    sql = "SELECT p.k, q.n FROM p JOIN q ON p.k = q.k"
    [problem] = problems(sql, emit="OnWindowClose")
    assert problem == "spec.emit: the result is a table of the latest rows, which is never final; write emit: OnUpdate"


def test_windows_over_no_event_time_of_a_join_never_close():
    near = "b.at BETWEEN a.at AND a.at + INTERVAL 5 SECONDS"
    joined = f"SELECT {{}} AS t FROM s a FULL JOIN r b ON a.k = b.k AND {near}"
    sql = f"SELECT window.start AS since, count(*) AS c FROM ({joined}) x GROUP BY window(t, '1 minute')"
    more = {"emit": "OnWindowClose", "sources": {"s": source("s"), "r": source("r")}, "sink": {"console": {}}}
    assert problems(sql.format("a.at"), **more) == []
    [problem] = problems(sql.format("a.at + INTERVAL 1 HOUR"), **more)
    assert "the windows are over t, which is not the column of a watermark" in problem


def test_a_union_without_event_time_is_never_final():
    near = "b.at BETWEEN a.at AND a.at + INTERVAL 5 SECONDS"
    sql = f"SELECT {{0}} FROM s a JOIN r b ON a.k = b.k AND {near} UNION SELECT {{0}} FROM r a"
    more = {"emit": "OnWindowClose", "sources": {"s": source("s"), "r": source("r")}, "sink": {"console": {}}}
    assert problems(sql.format("a.k, a.at"), **more) == []
    [problem] = problems(sql.format("a.k, upper(a.k) AS u"), **more)
    assert "UNION has no event time, so its rows are never final" in problem


def test_groups_without_aggregates_are_corrected_as_others():
    grouped = "SELECT k, count(*) AS c FROM s GROUP BY k"
    assert problems(f"SELECT c, k FROM ({grouped}) x GROUP BY c, k") == []


@pytest.mark.parametrize(("over", "closes"), [("a", True), ("b", False), ("c", True)])
def test_event_time_ends_at_a_join_by_another(over, closes):
    full = "s a FULL JOIN r b ON a.k = b.k AND b.at BETWEEN a.at AND a.at + INTERVAL 5 SECONDS"
    left = "LEFT JOIN s c ON a.k = c.k AND c.at BETWEEN a.at AND a.at + INTERVAL 5 SECONDS"
    more = {"emit": "OnWindowClose", "sources": {"s": source("s"), "r": source("r")}, "sink": {"console": {}}}
    direct = f"SELECT window.start AS t, count(*) AS n FROM {full} {left} GROUP BY window({over}.at, '1 minute')"
    inner = f"SELECT a.k, {over}.at AS u FROM {full} {left}"
    for sql in (direct, f"SELECT window.start AS t, count(*) AS n FROM ({inner}) x GROUP BY window(u, '1 minute')"):
        found = problems(sql, **more)
        assert len(found) == (not closes), found
        assert closes or "whose event time ends at a join by another column's" in found[0]


def test_a_semi_join_by_two_event_times_is_refused():
    near = "b.at BETWEEN a.at AND a.at + INTERVAL 5 SECONDS"
    joined = f"SELECT a.at AS t, b.at AS u, a.k FROM s a FULL JOIN r b ON a.k = b.k AND {near}"
    sql = (
        f"SELECT {{}} FROM ({joined}) x LEFT SEMI JOIN s c ON x.k = c.k AND c.at BETWEEN x.t AND x.t + INTERVAL 1 HOUR"
    )
    more = {"sources": {"s": source("s"), "r": source("r")}, "sink": {"console": {}}}
    assert problems(sql.format("x.k, x.t"), **more) == []
    [problem] = problems(sql.format("x.k, x.t, x.u"), **more)
    assert "a LEFT SEMI JOIN of streams takes one event time of its left side, which has x.t and x.u" in problem


def test_rows_of_groups_without_their_keys_are_no_table():
    [problem] = problems("SELECT c FROM (SELECT k, count(*) AS c FROM s GROUP BY k) x")
    assert "the query does not say which columns identify a row of the table" in problem


def test_rows_without_a_key_are_no_table():
    [problem] = problems("SELECT n FROM p")
    assert "the query does not say which columns identify a row of the table" in problem


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT s.at, s.k, p.n FROM s JOIN p ON s.k = p.k",
        "SELECT p.k, q.n, q.at AS since FROM p LEFT JOIN q ON p.k = q.k",
        "SELECT k, n FROM p WHERE n > 1",
        "SELECT n, count(*) AS c, sum(length(k)) AS letters FROM p GROUP BY n",
        "SELECT window.start AS since, x.k, min(x.h) AS first FROM (SELECT s.k, s.at, date_trunc('hour', s.at) AS h "
        "FROM s) x GROUP BY window(x.at, '1 WEEK'), x.k",
    ],
)
def test_what_runs_has_no_problem(sql):
    sink = {"kafka": {**KAFKA, "topic": "out"}} if "s JOIN p" in sql else TABLE_SINK
    assert problems(sql, sink) == []


def test_the_metadata_of_kafka_is_known_to_the_planner():
    sources = {
        "s": source("s", kafka={**KAFKA, "topic": "s", "includeMetadata": True}),
        "p": source("p", table={"keys": ["k"]}),
    }
    sink = {"files": {"path": "out"}}
    assert problems("SELECT s.k, p.n, s._offset FROM s JOIN p ON s.k = p.k", sink, sources=sources) == []


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT k, n FROM s", "it has no aggregate, so there is nothing to combine"),
        ("SELECT k, bool_and(n > 1) AS v FROM s GROUP BY k", "BOOL_AND(n > 1) is not one of the aggregates"),
        ("SELECT s.k, p.n FROM s JOIN p ON s.k = p.k", "it runs by operators on tables"),
        ("SELECT k, count(*) AS v FROM s GROUP BY k", None),
    ],
)
def test_queries_that_dedicated_replicas_cannot_place_are_refused(sql, said):
    sink = {"kafka": {**KAFKA, "topic": "out"}}
    sources = {"s": source("s")} | ({"p": source("p", table={"keys": ["k"]})} if "JOIN" in sql else {})
    found = problems(sql, sink, sources=sources, partitioner={"algorithm": "pkg", "placement": "Dedicated"})
    assert len(found) == (said is not None)
    if said is not None:
        assert f"spec.partitioner.placement: placement Dedicated needs a query that is routed: {said}" in found[0]
        assert "write placement: Inline" in found[0]


@pytest.mark.parametrize(
    ("query", "of_source", "more", "said"),
    [
        ({"sql": "SELECT sum(CAST(n AS DECIMAL(38, 0))) AS v FROM s"}, {}, {}, "which CAST(n AS DECIMAL(38, 0)) is not"),
        ({"sql": "SELECT md5(k) AS h, count(*) AS v FROM s GROUP BY md5(k)"}, {}, {}, "needs expressions that Arrow computes"),
        ({"sql": "SELECT count(*) AS v FROM s WHERE md5(k) = 'a'"}, {}, {}, "needs expressions that Arrow computes"),
        ({"sql": "SELECT k, count(*) AS v FROM s GROUP BY k"}, {}, {"sparkConf": {"spark.sql.ansi.enabled": "false"}}, "which spark.sql.ansi.enabled=false is not"),
        ({"sql": "SELECT k, count(*) AS v FROM s GROUP BY k"}, {"kafka": {**KAFKA, "topicPattern": "s.*"}}, {}, "reads whole topics of Kafka, by name"),
        ({"sql": "SELECT k, count(*) AS v FROM s GROUP BY k"}, {"kafka": {**KAFKA, "topic": "s", "endingTimestamp": "2024-01-01T00:00:00Z"}}, {}, "before endingTimestamp"),
        ({"python": {"aggregator": "a:B", "groupBy": ["k"]}}, {"kafka": {**KAFKA, "topicPattern": "s.*"}}, {}, "reads whole topics of Kafka, by name"),
        ({"sql": "SELECT k, sum(n + 1) AS v FROM s WHERE n > 2 GROUP BY k"}, {}, {}, None),
    ],
)  # fmt: skip
def test_queries_that_dedicated_replicas_cannot_read_or_compute_are_refused(query, of_source, more, said):
    placed = {"sources": {"s": source("s", **of_source)}, "partitioner": {"algorithm": "pkg", "placement": "Dedicated"}}
    found = problems("SELECT 1", {"kafka": {**KAFKA, "topic": "out"}}, **placed, **more, query=query)
    assert len(found) == (said is not None)
    if said is not None:
        assert found[0].startswith("spec.partitioner.placement: placement Dedicated")
        assert said in found[0]
