"""Groups of joins and of other groups come to what DuckDB has for the whole input."""

import pytest

from .joined import NEAR, duckdb_rows, run

pytestmark = [pytest.mark.in_turn, pytest.mark.spark]

MINUTE = "epoch(time_bucket(INTERVAL 1 MINUTE, {}))::BIGINT"


def test_windows_of_a_join_have_the_groups_of_duckdb(tmp_path):
    columns = "e.who, count(*) AS pairs, sum(c.n) AS total, max(c.n) AS most, avg(e.n) AS mean"
    joined = f"FROM events e JOIN clicks c ON e.who = c.who AND {NEAR}"
    project, rows = run(
        tmp_path,
        f"""SELECT unix_seconds(window.start) AS since, {columns} {joined} WHERE e.n % 5 > 0
            GROUP BY window(e.at, '1 minute'), e.who HAVING total > 100""",
        emit="OnWindowClose",
    )
    minute = MINUTE.format("e.at")
    assert rows == duckdb_rows(
        project,
        f"SELECT {minute}, {columns} {joined} WHERE e.n % 5 > 0 GROUP BY 1, e.who HAVING sum(c.n) > 100",
    )


def test_hopping_windows_of_a_join_have_the_groups_of_duckdb(tmp_path):
    joined = f"FROM events e JOIN clicks c ON e.who = c.who AND {NEAR}"
    project, rows = run(
        tmp_path,
        f"""SELECT unix_seconds(window.start) AS since, e.who, count(*) AS pairs {joined}
            GROUP BY window(e.at, '50 seconds', '20 seconds'), e.who""",
        emit="OnWindowClose",
    )
    hops = "epoch(time_bucket(INTERVAL 20 SECONDS, e.at))::BIGINT - 20 * hop AS since"
    assert rows == duckdb_rows(
        project,
        f"""SELECT since, who, count(*)
            FROM (SELECT {hops}, e.who AS who, epoch(e.at) AS moment {joined}, range(3) r(hop))
            WHERE since + 50 > moment GROUP BY ALL""",
    )


def test_groups_of_groups_have_the_rows_of_duckdb(tmp_path):
    counts = "SELECT {0}, who, count(*) AS events FROM events GROUP BY {1}, who"
    project, rows = run(
        tmp_path,
        f"""SELECT unix_seconds(window.start) AS since, max(events) AS most, count(*) AS users
            FROM ({counts.format("window", "window(at, '1 minute')")}) GROUP BY window""",
        emit="OnWindowClose",
    )
    inner = counts.format(MINUTE.format("events.at") + " AS begin_at", "1")
    assert rows == duckdb_rows(project, f"SELECT begin_at, max(events), count(*) FROM ({inner}) GROUP BY 1")


def test_windows_of_two_streams_can_be_joined(tmp_path):
    project, rows = run(
        tmp_path,
        """SELECT unix_seconds(e.window.start) AS since, e.who, c.clicks
           FROM (SELECT window, who FROM events GROUP BY window(at, '1 minute'), who) e
           JOIN (SELECT window, who, count(*) AS clicks FROM clicks GROUP BY window(at, '1 minute'), who) c
           ON e.who = c.who AND e.window = c.window""",
        emit="OnWindowClose",
    )
    minutes = {table: MINUTE.format(f"{table}.at") for table in ("events", "clicks")}
    assert rows == duckdb_rows(
        project,
        f"""SELECT e.since, e.who, c.clicks FROM (SELECT DISTINCT {minutes["events"]} AS since, who FROM events) e
            JOIN (SELECT {minutes["clicks"]} AS since, who, count(*) AS clicks FROM clicks GROUP BY 1, 2) c
            USING (since, who)""",
    )
