"""The tables of a query are read to their ends before its streams, so that no record meets a table that is half read."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from lab.waiting import wait_until

from .cli import PATIENCE, Project

pytestmark = [pytest.mark.in_turn, pytest.mark.spark]

SQL = "SELECT e.n, p.n AS price FROM events e JOIN prices p ON p.who = e.who"
USERS, HOURS = 4, 24


def project_of(folder, *, tables=USERS):
    """A stream in one file, in which event time soon is far ahead, and a table in files that are read one by one."""
    project = Project(folder)
    give_events(project, day=1)
    (folder / "prices").mkdir()
    give_prices(project, day=1, users=tables)
    source = {"schema": "at TIMESTAMP, who STRING, n INT", "watermark": {"column": "at", "delay": "0s"}}
    events = source | {"files": {"path": "in", "format": "csv"}}
    prices = {"files": {"path": "prices", "format": "csv", "maxFilesPerBatch": 1}, "table": {"keys": ["who"]}}
    return project, project.query(SQL, sources={"events": events, "prices": source | prices})


def give_events(project, *, day):
    lines = [f"2024-01-{day:02}T{hour:02}:00:00Z,user {hour % USERS},{day * 100 + hour}\n" for hour in range(HOURS)]
    project.give(f"events-{day}.csv", "at,who,n\n" + "".join(lines))


def give_prices(project, *, day, users=USERS):
    for user in range(users):
        line = f"2024-01-{day:02}T00:00:00Z,user {user},{day * 1000 + user}\n"
        project.write(f"prices/{day}-{user}.csv", f"at,who,n\n{line}")


def expected(*days, hours=HOURS):
    """Each event with the price of its user on the same day."""
    return Counter(
        (str(day * 100 + hour), str(day * 1000 + hour % USERS)) for day in days for hour in range(HOURS) if hour < hours
    )


def results(project):
    return Counter(row[:2] for row in project.results().elements())


def test_runs_that_end_read_tables_before_streams(tmp_path):
    project, query = project_of(tmp_path)
    for days in ([1], [1, 2]):
        if days[1:]:
            give_events(project, day=2)
            give_prices(project, day=2)
        result = project.millrace("run", query, "--once")
        assert (result.status, result.err) == (0, ""), result
        assert "the streams wait until the tables are read: prices\n" in result.out
        assert results(project) == expected(*days)


def test_a_run_that_goes_on_reads_tables_before_streams(tmp_path):
    project, query = project_of(tmp_path)
    with project.start("run", query) as run:
        printed = run.wait_for(f"rows={HOURS} ")
        before_the_last = expected(1, hours=HOURS - 1)  # event time has not passed the last event
        wait_until(lambda: results(project) == before_the_last, "all results are there", PATIENCE)
    assert len(re.findall("^batch=.* rows=1 ", printed, re.MULTILINE)) == USERS


def test_a_table_without_rows_keeps_no_stream_waiting(tmp_path):
    project, query = project_of(tmp_path, tables=0)
    with project.start("run", query) as run:
        run.wait_for(f"rows={HOURS} ")
