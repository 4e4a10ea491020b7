"""Sessions in several outputs: merged ones take back what they replace, and all outputs end with DuckDB's sessions."""

import pytest

from .changelogs import assert_final, assert_outputs, outputs, run
from .joined import NEAR, duckdb_rows, joining

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

COLUMNS = "session_window.start AS since, session_window.end AS until, e.who, count(*) AS rows"
READ = "epoch(since)::BIGINT, epoch(until)::BIGINT, who, rows, most"
SESSIONS = f"SELECT {COLUMNS}, max(e.n) AS most FROM events e GROUP BY session_window(e.at, '30 seconds'), e.who"
OF_PAIRS = f"""SELECT {COLUMNS}, max(c.n) AS most FROM events e JOIN clicks c ON e.who = c.who AND {NEAR}
               GROUP BY session_window(e.at, '30 seconds'), e.who"""

PAIRS = f"SELECT epoch(e.at)::BIGINT AS moment, e.who, c.n FROM events e JOIN clicks c ON e.who = c.who AND {NEAR}"


def in_duckdb(records: str) -> str:
    """Return the sessions of records (moment, who, n)."""
    per_user = "OVER (PARTITION BY who ORDER BY moment)"
    apart = f"SELECT *, coalesce(moment - lag(moment) {per_user} > 30, false)::INT AS begins FROM ({records})"
    numbered = f"SELECT *, sum(begins) {per_user} AS number FROM ({apart})"
    columns = "min(moment), max(moment) + 30, who, count(*), max(n)"
    return f"SELECT {columns} FROM ({numbered}) GROUP BY who, number"


@pytest.mark.parametrize(
    ("sql", "records"),
    [
        (SESSIONS, "SELECT epoch(e.at)::BIGINT AS moment, e.who, e.n FROM events e"),
        (OF_PAIRS, PAIRS),
    ],
)
def test_sessions_are_eager_at_their_end_and_final(tmp_path, sql, records):
    project, file = joining(tmp_path, sql, late=True, **outputs("since", "who"))
    run(project, file)
    expected = duckdb_rows(project, in_duckdb(records))
    assert expected.total() > 20
    assert_outputs(project, "since", "who", columns=READ, expected=expected)


def test_final_sessions_over_a_join_are_those_of_duckdb(tmp_path):
    sink = {"files": {"path": "out"}}
    project, file = joining(tmp_path, OF_PAIRS, late=True, sink=sink, emit="OnWindowClose")
    assert "session with a gap of 30 s" in project.millrace("explain", file).out
    run(project, file)
    assert_final(project, columns=READ, expected=duckdb_rows(project, in_duckdb(PAIRS)), folder="out")
