"""Inputs to join, each in files that arrive one per batch, a static table, and what DuckDB has for all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb

from .cli import Project

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
_EVENTS = [(BEGIN + timedelta(seconds=7 * i), f"user {i * i % 11}", i) for i in range(200)]
_CLICKS = [(at + timedelta(seconds=n % 5), who, n * 10) for at, who, n in _EVENTS if n % 3]
_PRICES = [(BEGIN + timedelta(seconds=40 * i), f"user {i % 9}", i) for i in range(40)]
_PLANS = [(BEGIN + timedelta(seconds=100 * i), f"user {(5 * i) % 12}", i % 4) for i in range(16)]
_INPUTS = {"events": _EVENTS, "clicks": _CLICKS, "prices": _PRICES, "plans": _PLANS}
_TABLES = {"prices", "plans"}
TOWNS = "who,town\n" + "".join(f"user {i},town {i % 3}\n" for i in range(8))
"""File of the static table ``towns``, which does not have every user."""
FILES = 5
_LATE = [1, 0, 3, 2, 4]
"""Parts of a table in the order of their files: each odd one comes before the one that precedes it in event time."""

_VERY_LATE = [1, 2, 0, 4, 3]
"""The same, where a part comes when event time has passed the next two."""

NEAR = "c.at BETWEEN e.at - INTERVAL 20 SECONDS AND e.at + INTERVAL 1 MINUTE"


def as_csv(head: str, records: list[tuple[datetime, str, int]]) -> str:
    return head + "\n" + "".join(f"{at:%Y-%m-%dT%H:%M:%SZ},{who},{n}\n" for at, who, n in records)


def give(folder: Path, numbers: Iterable[int], *, late: bool = False) -> None:
    """Put these files of all inputs into their folders, where they are not yet; ``late`` as for ``joining``."""
    for name, records in _INPUTS.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        each = -(-len(records) // FILES)
        order = _VERY_LATE if late else _LATE if name in _TABLES else range(FILES)
        for number in numbers:
            part = order[number]
            text = as_csv("at,who,n", records[part * each : (part + 1) * each])
            file = folder / name / f"{number}.csv"
            if not file.exists():
                file.write_text(text, encoding="utf-8")


def joining(
    folder: Path, sql: str, files: Iterable[int] = range(FILES), *, late: bool = False, **spec: Any
) -> tuple[Project, str]:
    """Return a project with these files of all inputs, and the file of its query over those that the SQL names.

    With ``late``, records come so late, within the delay, that windows have ended when they are corrected.
    """
    give(folder, files, late=late)
    project = Project(folder)
    project.write("towns.csv", TOWNS)
    return project, project.query(sql, sources=sources_of(sql, late=late), **spec)


def sources_of(sql: str, *, late: bool = False) -> dict[str, dict[str, Any]]:
    """Return the sources that the SQL names."""
    read = [name for name in _INPUTS if name in sql]
    # the files of a table and of a stream are not in step, so their times are apart by whole files
    delay = "15m" if late else "6m" if _TABLES.intersection(read) else "10s"
    sources: dict[str, dict[str, Any]] = {
        name: {
            "files": {"path": name, "format": "csv", "maxFilesPerBatch": 1},
            "schema": "at TIMESTAMP, who STRING, n INT",
            "watermark": {"column": "at", "delay": delay},
        }
        for name in read
    }
    for name in _TABLES.intersection(read):
        sources[name]["table"] = {"keys": ["who"]}
    if "towns" in sql:
        sources["towns"] = {
            "files": {"path": "towns.csv", "format": "csv"},
            "schema": "who STRING, town STRING",
            "table": {"keys": ["who"], "static": True},
        }
    return sources


def held_back(project: Project, **kept: int) -> dict[Path, str]:
    """Remove all files of these inputs but the first ones, and return what to write for them to arrive."""
    files = [file for name, first in kept.items() for file in sorted((project.folder / name).iterdir())[first:]]
    texts = {file: file.read_text(encoding="utf-8") for file in files}
    for file in files:
        file.unlink()
    return texts


def run(folder: Path, sql: str, **spec: Any) -> tuple[Project, Counter[tuple[str, ...]]]:
    """Run a query to its end, and return its results in files without ``_batch_id``."""
    project, file = joining(folder, sql, **spec)
    result = project.millrace("run", file, "--once")
    assert (result.status, result.err) == (0, ""), result
    rows = project.results()
    if "emit" not in spec:
        rows = Counter(row[:-1] for row in rows.elements())
    return project, rows


@contextmanager
def as_tables(folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database with the inputs."""
    with duckdb.connect() as connection:
        for table in _INPUTS:
            connection.execute(f"CREATE TABLE {table} AS SELECT * FROM read_csv('{folder / table / '*.csv'}')")
        connection.execute(f"CREATE TABLE towns AS SELECT * FROM read_csv('{folder / 'towns.csv'}')")
        yield connection


def duckdb_rows(project: Project, sql: str) -> Counter[tuple[str, ...]]:
    """Return the rows of a query over the whole inputs, as text."""
    with as_tables(project.folder) as connection:
        rows = connection.execute(sql).fetchall()
    return Counter(tuple("" if value is None else str(value) for value in row) for row in rows)
