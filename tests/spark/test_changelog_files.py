"""A table in files: its changelog, read by DuckDB, has the rows of the whole input and says since when."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from change_tables import Replay, changes_from
from dual_streaming.streams import Record
from dual_streaming.tables import EvolvingTable
from millrace_jobs.changes import BEGINNING, changes_of
from millrace_jobs.queries.tables.operators.upserts import DELETE, UpsertedTable
from millrace_jobs.sinks.base import ResultKeys
from millrace_jobs.sinks.files.changelog import changelog

from .changelogs import run
from .cli import Project
from .die_after_writing import die_after_writing
from .joined import as_tables, joining

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

Event = tuple[int, str, int | None]
"""The time of an upsert, its key, and its value; None deletes the row."""

VALUES = pa.schema([("who", pa.string()), ("n", pa.int64())])
CHANGELOG = {"files": {"path": "out", "format": "parquet", "key": ["who"]}}
DATED = """SELECT p.who, p.n, q.n AS plan FROM prices p LEFT JOIN plans q ON p.who = q.who WHERE p.n % 4 > 0"""
NEWEST = "(SELECT who, max({0}.at) AS since, max_by(n, {0}.at) AS n FROM {0} GROUP BY who)"


def newest(folder: Path, columns: str) -> set[tuple[object, ...]]:
    """Return the newest row of each key in the changelog, of which no batch has two."""
    files = f"read_parquet('{folder / 'out' / '*.parquet'}')"
    with duckdb.connect() as reader:
        assert reader.execute(f"SELECT who FROM {files} GROUP BY who, _batch_id HAVING count(*) > 1").fetchall() == []
        return set(
            reader.execute(
                f"""SELECT {columns}, _operation, epoch_us(_time) FROM {files}
                    QUALIFY row_number() OVER (PARTITION BY who ORDER BY _batch_id DESC) = 1"""
            ).fetchall()
        )


def in_duckdb(project: Project, sql: str) -> set[tuple[object, ...]]:
    with as_tables(project.folder) as database:
        return set(database.execute(sql).fetchall())


def assert_joined(project: Project) -> None:
    """Check the newest rows, when they began, and when those that are gone ended."""
    begun = "greatest(p.since, coalesce(q.since, p.since))"
    found = newest(project.folder, "who, n, plan")
    expected = in_duckdb(
        project,
        f"""SELECT p.who, p.n, q.n, 'upsert', epoch_us({begun}) FROM {NEWEST.format("prices")} p
            LEFT JOIN {NEWEST.format("plans")} q ON p.who = q.who WHERE p.n % 4 > 0""",
    )
    assert {row for row in found if row[3] == "upsert"} == expected
    deleted = {(row[0], row[4]) for row in found if row[3] == "delete"}
    gone = in_duckdb(project, f"SELECT who, epoch_us(since) FROM {NEWEST.format('prices')} WHERE n % 4 = 0")
    assert {who for who, _ in deleted} <= {who for who, _ in gone}
    assert len(deleted) > 0


def test_joined_tables_are_a_changelog_with_their_times(tmp_path):
    project, file = joining(tmp_path, DATED, sink=CHANGELOG)
    run(project, file)
    assert_joined(project)


def test_a_batch_that_was_written_before_a_crash_is_in_the_changelog_once(tmp_path):
    project, file = joining(tmp_path, DATED, sink=CHANGELOG)
    die_after_writing(tmp_path, file, 2)
    before = {name.name for name in (tmp_path / "out").glob("batch-0000000002-*")}
    assert before
    run(project, file)
    assert {name.name for name in (tmp_path / "out").glob("batch-0000000002-*")} == before
    assert_joined(project)


def test_groups_of_a_stream_are_a_changelog_with_the_time_of_their_last_record(tmp_path):
    sql = "SELECT who, count(*) AS events, max(n) AS most FROM events GROUP BY who HAVING count(*) < 18"
    project, file = joining(tmp_path, sql, sink=CHANGELOG)
    run(project, file)
    found = newest(tmp_path, "who, events, most")
    grouped = "SELECT who, count(*), max(n), {}, epoch_us(max(events.at)) FROM events GROUP BY who HAVING count(*) {}"
    assert {row for row in found if row[3] == "upsert"} == in_duckdb(project, grouped.format("'upsert'", "< 18"))
    assert {row[0] for row in found if row[3] == "delete"} == {
        row[0] for row in in_duckdb(project, grouped.format("'delete'", ">= 18"))
    }


def test_a_batch_says_of_each_key_what_the_reference_has_become(spark):
    """Many small tables at once: what the last batch of each changes, against the interpreter before and after it."""
    chance, schema = random.Random(43), pa.schema([("case", pa.int64()), *VALUES])
    changed, expected = [], Counter()
    for case in range(250):
        events = [(chance.randrange(9), chance.choice("AB"), chance.choice([None, 1, 2])) for _ in range(7)]
        cut = chance.randrange(7)
        replay = Replay(UpsertedTable(VALUES, ("who",), versions=True))
        replay.batch([upserts(events[:cut], 0)], BEGINNING)
        replay.emitted.clear()
        replay.batch([upserts(events[cut:], cut)], BEGINNING)
        changed += [(case, *row, weight) for row, weight in replay.emitted]
        before, after = (EvolvingTable(Record(*event) for event in part) for part in (events[:cut], events))
        for who in "AB":
            old, new = before.lookup(who), after.lookup(who)
            if new is not None and new != old:
                expected[case, who, new.v, "upsert", new.t] += 1
            elif new is None and old is not None:
                expected[case, who, old.v, "delete", ended(after, old)] += 1
    rows = spark.createDataFrame(changes_from(changed, changes_of(schema)).to_pandas())
    found = changelog(rows, ResultKeys(("case", "who"), weighted=True, versioned=True))
    micros = found.selectExpr("`case`", "who", "n", "_operation", "unix_micros(_time)").collect()
    assert Counter(map(tuple, micros)) == expected
    assert len({operation for _, _, _, operation, _ in expected}) == 2


def upserts(events: list[Event], first: int) -> pa.Table:
    """Upserts and deletes in the order of their arrival."""
    rows = [(who, n, t, first + place, 1 if n else DELETE) for place, (t, who, n) in enumerate(events)]
    return changes_from(rows, changes_of(VALUES))


def ended(table: EvolvingTable, row: Record) -> float:
    """Return when a table has lost the last row of a key, of which ``row`` was the last one before."""
    times = [time for time in table.times if row.k in table.modified(time)]
    last = max((time for time in times if table.lookup(row.k, time) is not None), default=None)
    return row.t if last is None else min(time for time in times if time > last)
