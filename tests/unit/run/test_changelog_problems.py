"""Which queries have a changelog in files, by which keys, is decided without Spark."""

import re

import pytest

from planner_problems import NEAR, problems, source


def test_changing_rows_go_to_files_with_a_key_only():
    sql, files = "SELECT p.k, q.n FROM p JOIN q ON p.k = q.k", {"path": "out", "format": "csv"}
    [problem] = problems(sql, {"files": files})
    assert "the rows of the result change, which files cannot show; write the results to sink.table" in problem
    assert problem.endswith("sink.iceberg or sink.files with a key")
    assert problems(sql, {"files": files | {"key": ["k"]}}) == []


@pytest.mark.parametrize(
    ("sql", "key", "said"),
    [
        ("SELECT p.k, p.n AS _time FROM p JOIN q ON p.k = q.k", "k", "the changelog has a column _time of its own"),
        ("SELECT k, n AS _BATCH_ID FROM p", "k", "the changelog has a column _batch_id of its own"),
        ("SELECT k, collect_set(n) AS c FROM p GROUP BY k", "k", "the result can have no changelog: "),
    ],
)
def test_a_changelog_in_files_that_no_operator_makes_is_refused(sql, key, said):
    [problem] = problems(sql, {"files": {"path": "out", "key": [key]}})
    assert said in problem
    assert problem.startswith("spec.sink.files.key: ")


WINDOWS = "SELECT {} FROM s GROUP BY window(at, '1 minute'), k"


@pytest.mark.parametrize("emit", ["OnUpdate", "OnWindowEnd", "OnWindowClose"])
def test_groups_are_a_changelog_in_files_under_every_strategy(emit):
    more = {"sources": {"s": source("s")}, "emit": emit}
    files = {"path": "out", "partitionBy": ["k"], "key": ["since", "k"]}
    assert problems(WINDOWS.format("window.start AS since, k, count(*) AS c"), {"files": files}, **more) == []
    [problem] = problems(WINDOWS.format("window.start AS since, k, count(*) AS _batch_id"), {"files": files}, **more)
    assert problem.startswith("spec.sink.files.key: the changelog has a column _batch_id of its own; ")


@pytest.mark.parametrize(
    ("sql", "emit", "said"),
    [
        ("SELECT k, n FROM s WHERE n > 0", "OnUpdate", "none is replaced or removed; leave key out"),
        (f"SELECT s.k, r.n {NEAR}", "OnUpdate", "none is replaced or removed; leave key out"),
        (f"SELECT s.k, r.n {NEAR}", "OnWindowClose", "none is replaced or removed; leave key out"),
        (
            "SELECT s.k, p.n FROM s LEFT JOIN p ON s.k = p.k",
            "OnUpdate",
            "so rows of the changelog could collide; select the primary keys of its tables and groups",
        ),
        (
            f"SELECT * FROM ({WINDOWS.format('window.start AS k, count(*) AS c')})",
            "OnWindowClose",
            "none is replaced or removed; leave key out",
        ),
    ],
)
def test_rows_that_no_key_identifies_have_no_changelog_in_files(sql, emit, said):
    sources = {name: source(name, **({"table": {"keys": ["k"]}} if name == "p" else {})) for name in "srp"}
    read = {name: each for name, each in sources.items() if re.search(rf"(FROM|JOIN) {name}\b", sql)}
    [problem] = problems(sql, {"files": {"path": "out", "key": ["k"]}}, sources=read, emit=emit)
    assert problem.startswith("spec.sink.files.key: nothing says which columns identify a row of the result, ")
    assert said in problem


EITHER = "SELECT {} AS k, p.n, q.n AS m FROM p FULL JOIN q ON p.k = q.k"
A, B = "'a'", "'b'"


def sides(one: str, other: str) -> str:
    """Return a query for the rows of two tables, with a column that says which one a row is of."""
    return f"SELECT {one} AS side, k, n FROM p UNION ALL SELECT {other}, k, n FROM q"


@pytest.mark.parametrize(
    ("sql", "key", "said"),
    [
        ("SELECT p.n, p.at, q.n AS m FROM p JOIN q ON p.n = q.k", ["n"], "nothing says which columns identify a row"),
        (
            "SELECT p.k, p.n, q.n AS m FROM p JOIN q ON p.n = q.k",
            ["n"],
            "the key leaves out k, so rows of the changelog",
        ),
        ("SELECT p.k, p.n, q.n AS m FROM p JOIN q ON p.n = q.k", ["n", "k"], None),
        ("SELECT p.k AS j, q.k FROM p JOIN q ON p.k = q.k", ["k"], None),
        (
            "SELECT p.k AS j, q.k FROM p LEFT JOIN q ON p.k = q.k",
            ["k"],
            "the key leaves out j, so rows of the changelog",
        ),
        ("SELECT k, n FROM p UNION ALL SELECT k, n FROM q", ["k"], "nothing says which columns identify a row"),
        (EITHER.format("coalesce(q.k, p.k)"), ["k"], None),
        (EITHER.format("ifnull(p.k, q.k)"), ["k"], None),
        (EITHER.format("coalesce(p.k, q.k)"), ["n"], "the key leaves out k, so rows of the changelog"),
        (EITHER.format("coalesce(p.k, q.n)"), ["k"], "nothing says which columns identify a row"),
        (EITHER.format("coalesce(p.k, q.k)") + " AND p.n > q.n", ["k"], "nothing says which columns identify a row"),
        (EITHER.format("coalesce(p.k, q.k)") + " AND p.n > 1", ["k"], "nothing says which columns identify a row"),
        (f"SELECT k AS id, n FROM ({EITHER.format('coalesce(p.k, q.k)')})", ["id"], None),
        (sides(A, B), ["side", "k"], None),
        (f"SELECT side, k FROM ({sides('1', '2')}) WHERE n > 0", ["side", "k"], None),
        (f"{sides(A, B)} UNION ALL SELECT 'c', k, n FROM p", ["side", "k"], None),
        (
            f"{sides(A, B)} UNION ALL SELECT 'a', k, n FROM p",
            ["side", "k"],
            "nothing says which columns identify a row",
        ),
        (
            f"{sides(A, B)} UNION ALL SELECT 'c', n, n FROM p",
            ["side", "k"],
            "nothing says which columns identify a row",
        ),
        (sides("true", "false"), ["k"], "the key leaves out side, so rows of the changelog"),
        (sides(A, A), ["side", "k"], "nothing says which columns identify a row"),
        (sides("'1'", "1"), ["side", "k"], "nothing says which columns identify a row"),
        (sides("1.0", "1.00"), ["side", "k"], "nothing says which columns identify a row"),
        ("SELECT k, n FROM p UNION SELECT k, n FROM q", ["k", "n"], None),
        (
            "SELECT DISTINCT n, at FROM p",
            ["n"],
            "the key leaves out at, so rows of the changelog would collide; add at",
        ),
    ],
)
def test_the_key_of_a_changelog_in_files_identifies_the_rows_of_the_table(sql, key, said):
    found = problems(sql, {"files": {"path": "out", "key": key}}, sources={
        name: source(name, table={"keys": ["k"]}) for name in "pq" if f" {name}" in sql
    })  # fmt: skip
    assert [each.startswith(f"spec.sink.files.key: {said}") for each in found] == [True] * (said is not None), found
