import pytest

from millrace_api.sql.dialect import parse_query
from millrace_api.sql.groups import common_groups, filters_groups, query_groups

COLUMNS = {"cell", "fare", "at", "day"}


def known(sql):
    """Position and part of the columns by which each group is known."""
    groups = query_groups(parse_query(sql), COLUMNS)
    return (
        None if groups is None else [[(column.position, column.part) for column in group.columns] for group in groups]
    )


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT cell, count(*) AS n FROM trips GROUP BY cell", [[(0, None)]]),
        ("SELECT count(*), CELL AS c FROM trips GROUP BY `cell`", [[(1, None)]]),
        ("SELECT t.cell, count(*) FROM trips AS t GROUP BY cell", [[(0, None)]]),
        ("SELECT trips.cell, count(*) FROM trips GROUP BY trips.CELL", [[(0, None)]]),
        ("SELECT a.cell, b.cell, count(*) FROM a JOIN b USING (cell) GROUP BY a.cell", [[(0, None)]]),
        ("SELECT count(*) AS n, cell FROM trips GROUP BY 2", [[(1, None)]]),
        ("SELECT upper(cell) AS c, count(*) FROM trips GROUP BY c", [[(0, None)]]),
        ("SELECT UPPER(cell) AS c, count(*) FROM trips GROUP BY upper(cell)", [[(0, None)]]),
        ("SELECT upper(cell) AS day, day, count(*) FROM trips GROUP BY day", [[(1, None)]]),
        ("SELECT upper(cell) AS c, count(*) FROM trips GROUP BY cell", [[]]),
        ("SELECT count(*) AS n FROM trips GROUP BY cell, day", [[], []]),
        ("SELECT cell, cell AS again, count(*) FROM trips GROUP BY cell", [[(0, None), (1, None)]]),
        ("SELECT cell FROM (SELECT cell, fare FROM trips) q GROUP BY cell", [[(0, None)]]),
        ("SELECT sum(fare), count(*) FROM trips", []),
    ],
)
def test_groups_are_known_by_the_columns_that_are_what_is_grouped_by(sql, expected):
    assert known(sql) == expected


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        ("window", [(0, "window")]),
        ("window AS w", [(0, "window")]),
        ("window(at, '10 minutes') AS w", [(0, "window")]),
        ("window.end, window.start AS since", [(1, "start"), (0, "end")]),
        ("window.end, window", [(1, "window"), (0, "end")]),
        ("window(at, '10 minutes').start AS since", [(0, "start")]),
        ("window(at, '10 minutes') AS w, w.start, W.`end`", [(0, "window"), (1, "start"), (2, "end")]),
        ("CAST(window.start AS DATE) AS day", []),
    ],
)
def test_a_window_is_known_by_itself_its_start_or_its_end(select, expected):
    assert known(f"SELECT {select}, count(*) FROM trips GROUP BY window(at, '10 minutes')") == [expected]


@pytest.mark.parametrize("group_by", ["window", "`Window`", "w"])
def test_a_window_of_the_select_list_may_be_grouped_by_its_name(group_by):
    sql = f"SELECT count(*), window(at, '10 minutes') AS w FROM trips GROUP BY {group_by}"
    assert known(sql) == [[(1, "window")]]


def test_a_window_tells_its_event_time_and_its_length():
    (window, cell) = query_groups(
        parse_query("SELECT window, cell FROM t GROUP BY window(at, '10 minutes', '1 minute'), cell"), COLUMNS
    )
    assert (window.event_time, window.size) == ("at", 600_000_000)
    assert (cell.event_time, cell.size) == ("", 0)


def test_a_session_is_a_window_of_no_fixed_length():
    (session,) = query_groups(
        parse_query("SELECT session_window.start FROM t GROUP BY session_window(at, '5 minutes')"), COLUMNS
    )
    assert [column.part for column in session.columns] == ["start"]
    assert session.event_time == ""


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT cell, fare FROM trips",
        "SELECT DISTINCT cell FROM trips",
        "SELECT cell, count(*) FROM trips GROUP BY CUBE (cell)",
        "SELECT cell, count(*) FROM trips GROUP BY ALL",
        "SELECT cell FROM trips UNION ALL SELECT cell FROM zones",
        "SELECT * FROM (SELECT cell, count(*) FROM trips GROUP BY cell)",
    ],
)
def test_groups_that_cannot_be_told_are_none(sql):
    assert known(sql) is None


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT cell, count(*) FROM trips WHERE fare > 1 GROUP BY cell", False),
        ("SELECT cell, count(*) FROM (SELECT * FROM trips WHERE fare > 1) WHERE fare < 9 GROUP BY cell", False),
        ("SELECT cell, count(*) FROM trips GROUP BY cell HAVING count(*) > 1", True),
        ("SELECT * FROM (SELECT cell, count(*) AS n FROM trips GROUP BY cell) WHERE n > 1", True),
        ("WITH q AS (SELECT cell, count(*) AS n FROM trips GROUP BY cell) SELECT * FROM q WHERE n > 1", True),
    ],
)
def test_groups_are_filtered_by_having_and_by_where_around_them(sql, expected):
    assert filters_groups(parse_query(sql)) is expected


@pytest.mark.parametrize(
    ("groups", "position"),
    [("9", "9"), ("GROUPING SETS ((1, 9))", "9"), ("99999999999999999999", "99999999999999999999"), ("0", "0")],
)
def test_a_position_that_is_not_in_the_select_list_stays_a_number(groups, position):
    select = parse_query(f"SELECT *, k FROM t GROUP BY {groups}")
    assert [node.sql() for node in common_groups(select, {})][-1] == position
