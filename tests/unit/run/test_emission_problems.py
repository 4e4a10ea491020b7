"""Which joins, tables and sessions can be emitted under which strategies, as ``millrace validate`` says it."""

import pytest

from planner_problems import KAFKA, NEAR, problems, source

FINAL = {"emit": "OnWindowClose", "sink": {"files": {"path": "final"}}}
LAZY = {"emit": "OnWindowEnd", "sink": {"table": {**KAFKA, "topic": "lazy", "key": ["k"]}}}
NOW = {"emit": "OnUpdate", "sink": {"table": {**KAFKA, "topic": "now", "key": ["k"]}}}


@pytest.mark.parametrize(
    ("sql", "others", "said"),
    [
        (f"SELECT s.k, r.n {NEAR.replace('JOIN', 'LEFT JOIN')}", {"final": FINAL, "lazy": LAZY}, ""),
        (f"SELECT s.k, r.n {NEAR}", {"final": FINAL, "lazy": LAZY, "now": NOW}, ""),
        ("SELECT s.k, p.n FROM s JOIN p ON s.k = p.k", {"final": FINAL}, ""),
        ("SELECT p.k, q.n FROM p JOIN q ON p.k = q.k", {"now": NOW}, ""),
        ("SELECT k, n FROM p WHERE n > 1", {"now": NOW}, ""),
        ("SELECT n AS k, count(*) AS c FROM p GROUP BY n", {"now": NOW}, ""),
        ("SELECT k, count(*) AS c FROM s GROUP BY k", {"now": NOW}, ""),
        ("SELECT p.k, q.n FROM p JOIN q ON p.k = q.k", {"final": FINAL}, "its rows are those of a table, which are never"),
        ("SELECT p.k, q.n FROM p JOIN q ON p.k = q.k", {"lazy": LAZY}, "its rows are those of a table, which are never"),
        ("SELECT k, count(*) AS c FROM s GROUP BY k", {"final": FINAL}, "emit OnWindowClose needs a window or a join"),
        ("SELECT k, n FROM s WHERE n > 0", {"now": NOW}, "its rows are neither groups nor results of a join"),
        ("SELECT s.k FROM s LEFT SEMI JOIN p ON s.k = p.k", {"final": FINAL, "lazy": LAZY}, ""),
        ("SELECT s.k, s.n FROM s LEFT ANTI JOIN p ON s.k = p.k", {"final": FINAL}, ""),
        ("SELECT p.k, s.n FROM s RIGHT JOIN p ON s.k = p.k", {"now": NOW}, ""),
        ("SELECT p.k, s.n FROM s RIGHT JOIN p ON s.k = p.k", {"final": FINAL}, "its RIGHT JOIN keeps rows of a table"),
        ("SELECT s.k FROM s JOIN p ON s.k = p.k UNION ALL SELECT k FROM s", {"final": FINAL}, "its rows are those of a UNION"),
    ],
)  # fmt: skip
def test_joins_and_tables_have_as_many_strategies_as_outputs(sql, others, said):
    sources = {"r": source("r")} if "r.n" in sql else {}
    sources |= {"s": source("s")} if " s" in sql else {}
    sources |= {name: source(name, table={"keys": ["k"]}) for name in "pq" if f" {name}" in sql}
    sink = {"table": {**KAFKA, "topic": "out", "key": ["k"]}}
    found = problems(sql, sink, sources=sources, additionalOutputs=others)
    assert [said in problem for problem in found] == [True] * bool(said), found


@pytest.mark.parametrize("kind", ["LEFT", ""])
def test_outer_results_may_wait_for_the_end_of_the_range_of_their_join(kind):
    sources = {"s": source("s"), "r": source("r")}
    sink = {"table": {**KAFKA, "topic": "out", "key": ["k"]}}
    sql = f"SELECT s.k, r.n {NEAR.replace('JOIN', f'{kind} JOIN')}"
    assert problems(sql, sink, sources=sources, emit="OnWindowEnd") == []


SESSIONS = "SELECT session_window.start AS since, session_window.end AS until, {0}k, count(*) AS c, max({0}n) AS m FROM"
BY_SESSION = "GROUP BY session_window({0}at, '5 minutes'), {0}k"


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        (f"{SESSIONS.format('')} s {BY_SESSION.format('')}", ""),
        (f"{SESSIONS.format('s.')} s JOIN p ON s.k = p.k {BY_SESSION.format('s.')}", ""),
        (f"{SESSIONS.format('s.')} {NEAR.removeprefix('FROM')} {BY_SESSION.format('s.')}", ""),
        ("SELECT s.session_window, s.session_window.start AS since, s.k, count(*) AS c FROM (SELECT session_window, k FROM "
         "s GROUP BY session_window(at, '1 minute'), k, n) s GROUP BY s.session_window, s.k", ""),
        (f"{SESSIONS.format('')} p {BY_SESSION.format('')}", "the rows of its sessions can change"),
        ("SELECT session_window.start AS since, k, stddev(n) AS c FROM s GROUP BY session_window(at, '1 minute'), k",
         "STDDEV(s.n) is not made of sums"),
        ("SELECT session_window.start AS since, k, count(*) AS c FROM s GROUP BY "
         "session_window(at, CASE WHEN n > 1 THEN '1 minute' ELSE '2 minutes' END), k", "a length of its window cannot"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("emit", ["OnUpdate", "OnWindowEnd"])
def test_sessions_may_be_emitted_before_they_are_final(sql, said, emit):
    sources = {"r": source("r")} if "r.at" in sql else {}
    sources |= {"s": source("s")} if " s " in sql else {}
    sources |= {"p": source("p", table={"keys": ["k"]})} if " p " in sql else {}
    found = problems(sql, sources=sources, emit=emit)
    assert [said in problem for problem in found] == [True] * bool(said), found


def test_sessions_that_can_be_merged_do_not_go_to_files_without_a_key():
    sql = f"{SESSIONS.format('')} s {BY_SESSION.format('')}"
    [problem] = problems(sql, {"files": {"path": "out"}}, sources={"s": source("s")})
    assert "the rows of the result change, which files cannot show" in problem
    assert problems(sql, {"files": {"path": "out", "key": ["since", "k"]}}, sources={"s": source("s")}) == []
    assert problems(sql, {"files": {"path": "out"}}, sources={"s": source("s")}, emit="OnWindowClose") == []
