"""Which columns of sources the windows of a query are over."""

import pytest

from millrace_api.sql.parsed_query import parsed_query
from millrace_api.sql.window_columns import group_columns, window_columns


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("SELECT count(*) FROM t GROUP BY window(at, '1 hour')", {("t", "at")}),
        ("SELECT count(*) FROM T AS x GROUP BY session_window(x.`At`, '1 hour'), k", {("t", "at")}),
        ("SELECT count(*) FROM l JOIN r ON l.a = r.a GROUP BY window(l.at, '1 hour')", {("l", "at")}),
        (
            "SELECT q.n FROM (SELECT window(ts, '1 hour') AS w, count(*) AS n FROM (SELECT t.at AS ts FROM t UNION ALL "
            "SELECT b FROM s UNION ALL SELECT c FROM u) GROUP BY window(ts, '1 hour')) q",
            {("t", "at"), ("s", "b"), ("u", "c")},
        ),
        (
            "WITH both AS (SELECT * FROM a UNION ALL SELECT * FROM b) SELECT count(*) FROM both GROUP BY window(at, '1 hour')",
            {("a", "at"), ("b", "at")},
        ),
        (
            "SELECT count(*) FROM (SELECT window(at, '1 minute') AS w FROM t GROUP BY window(at, '1 minute')) "
            "GROUP BY window(w, '1 hour')",
            {("t", "at")},
        ),
        ("SELECT count(*) FROM t GROUP BY window(at + INTERVAL 1 HOUR, '1 hour')", set()),
        ("SELECT count(*) FROM l JOIN r ON l.a = r.a GROUP BY window(at, '1 hour')", set()),
        ("SELECT item FROM t LATERAL VIEW explode(items) AS item GROUP BY window(at, '1 hour'), item", {("t", "at")}),
        ("SELECT item.at FROM t LATERAL VIEW explode(items) AS item GROUP BY window(item.at, '1 hour')", set()),
        ("SELECT at FROM t", set()),
    ],
)  # fmt: skip
def test_windows_are_traced_to_the_sources(sql, columns):
    assert window_columns(parsed_query(sql)) == columns


def test_a_group_by_a_part_of_an_element_is_traced_to_no_source():
    sql = "SELECT count(*) FROM t LATERAL VIEW explode(items) AS item GROUP BY t.place, item.drink"
    assert group_columns(parsed_query(sql)) == {("t", "place")}


def test_a_column_that_many_subqueries_share_is_followed_once():
    """Followed again for each of its readers, it would take twice as long with each level."""
    levels = ", ".join(f"c{i} AS (SELECT at FROM c{i - 1} UNION ALL SELECT at FROM c{i - 1})" for i in range(1, 40))
    sql = f"WITH c0 AS (SELECT at FROM t), {levels} SELECT count(*) FROM c39 GROUP BY window(at, '1 hour')"
    assert window_columns(parsed_query(sql)) == {("t", "at")}
