"""Rules of sources that are tables of a database or a lakehouse, or that are read again: one sentence, with its line."""

import pytest

from .documents import MINIMAL, changed, problems

BROKEN = [
    (
        MINIMAL,
        7,
        "      postgres: {host: db, database: d, user: u, table: t}",
        "7: spec.sources.trips.postgres: a table of a database is read as a static table (got postgres); "
        "add table: {keys: [...], static: true}, and refreshEvery: 5m in it to read it again",
    ),
    (
        MINIMAL,
        7,
        "      delta: {path: lake/cells}\n      table: {keys: [cell]}\n      watermark: {column: at, delay: 0s}",
        "9: spec.sources.trips.watermark: the rows of a Delta table with keys change at the times of its commits "
        "(got delta, table, watermark); add watermark: {column: _changed_at, delay: 0s}; or leave table out for a stream of "
        "added rows, or add static: true to it",
    ),
    (
        MINIMAL,
        7,
        "      delta: {path: lake/cells}\n      table: {keys: [cell]}",
        "8: spec.sources.trips.table: the rows of a Delta table with keys change at the times of its commits "
        "(got delta, table); add watermark: {column: _changed_at, delay: 0s}; or leave table out for a stream of "
        "added rows, or add static: true to it",
    ),
    (
        MINIMAL,
        7,
        "      delta: {path: lake/cells, otherCommits: Skip}\n      table: {keys: [cell]}\n"
        "      watermark: {column: _changed_at, delay: 0s}",
        "8: spec.sources.trips.table: the rows of a Delta table with keys have all changes, and leave no commit out "
        "(got delta, table); leave otherCommits out",
    ),
    (
        MINIMAL,
        7,
        "      iceberg: {catalog: {file: lake.db}, table: a.cells, otherCommits: Refuse}\n"
        "      table: {keys: [cell]}\n      watermark: {column: _changed_at, delay: 0s}",
        "8: spec.sources.trips.table: the rows of an Iceberg table with keys have all changes, and leave no commit out "
        "(got iceberg, table); leave otherCommits out",
    ),
    (
        MINIMAL,
        7,
        "      delta: {path: lake/cells, startFrom: Latest}\n      table: {keys: [cell], static: true}",
        "8: spec.sources.trips.table: a static table has all rows of a table of a lakehouse, and is no stream that starts "
        "somewhere (got delta, table); leave startFrom, startingVersion, startingSnapshot, otherCommits and "
        "maxFilesPerBatch out",
    ),
    (
        MINIMAL,
        7,
        "      delta: {path: lake/cells, startFrom: Latest, startingVersion: 3}",
        "7: spec.sources.trips.delta.startingVersion: startFrom, startingVersion exclude one another "
        "(got startFrom: Latest, startingVersion: 3); keep one of them, or none to start with the whole table",
    ),
    (
        MINIMAL,
        7,
        "      delta: {path: lake/cells}\n      table: {keys: [cell], static: true}\n      timestampFormat: seconds",
        "6: spec.sources.trips: the rows of a database or a lakehouse are no text that has to be decoded; "
        "leave timestampFormat, timeFormats and corruptRecords out",
    ),
    (
        MINIMAL,
        7,
        "      postgres: {host: db, database: d, user: u}\n      table: {keys: [cell], static: true}",
        "7: spec.sources.trips.postgres: exactly one of table, query is needed; "
        "write one of them, such as table: sales.customers",
    ),
    (
        MINIMAL,
        7,
        "      files: {path: a, format: csv}\n      table: {keys: [cell], refreshEvery: 5m}",
        "8: spec.sources.trips.table.refreshEvery: refreshEvery, maxRows and maxSize are for static tables, which are read "
        "as a whole (got refreshEvery: 5m); add static: true, or leave them out",
    ),
    (
        MINIMAL,
        7,
        "      files: {path: a, format: csv}\n      table: {keys: [cell], static: true, refreshEvery: 100ms}",
        "8: spec.sources.trips.table.refreshEvery: refreshEvery is shorter than a second (got refreshEvery: 100ms); "
        "write 1s or more",
    ),
]


@pytest.mark.parametrize(("text", "line", "replacement", "expected"), BROKEN)
def test_a_broken_rule_of_a_table_is_one_sentence_with_its_line(tmp_path, text, line, replacement, expected):
    assert problems(tmp_path, changed(text, line, replacement)) == [expected]
