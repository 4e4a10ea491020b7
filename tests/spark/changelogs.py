"""Queries whose results go to changelogs in files under several strategies, and what these add up to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import duckdb

from .cli import Project


def outputs(*key: str) -> dict[str, Any]:
    """Return the fields of a query whose results go to changelogs, and to final files."""

    def changelog(folder: str) -> dict[str, Any]:
        return {"files": {"path": folder, "key": list(key)}}

    final = {"emit": "OnWindowClose", "sink": {"files": {"path": "final"}}}
    others = {"lazy": {"emit": "OnWindowEnd", "sink": changelog("lazy")}, "final": final}
    return {"sink": changelog("out"), "additionalOutputs": others}


def run(project: Project, file: str) -> None:
    result = project.millrace("run", file, "--once")
    assert (result.status, result.err) == (0, ""), result
    assert result.summary["late"] == "0"


def assert_changelog(folder: Path, *key: str, columns: str, expected: Counter[tuple[str, ...]]) -> Counter[str]:
    """Check the newest rows of a changelog, in which no batch changes a key twice; return how often what happened."""
    names = ", ".join(key)
    with duckdb.connect() as reader:
        reader.execute(f"CREATE TABLE changes AS SELECT * FROM read_parquet('{folder}/*.parquet')")
        twice = f"SELECT {names} FROM changes GROUP BY {names}, _batch_id HAVING count(*) > 1"
        assert reader.execute(twice).fetchall() == []
        latest = f"row_number() OVER (PARTITION BY {names} ORDER BY _batch_id DESC) = 1 AND _operation = 'upsert'"
        assert _rows(reader, f"SELECT {columns} FROM changes QUALIFY {latest}") == expected
        operations = reader.execute("SELECT _operation FROM changes").fetchall()
    return Counter(operation for (operation,) in operations)


def assert_outputs(
    project: Project, *key: str, columns: str, expected: Counter[tuple[str, ...]], corrected: bool = True
) -> None:
    """Check all outputs; of rows that are ``corrected``, fewer are taken back if they wait."""
    eager, lazy = (
        assert_changelog(project.folder / folder, *key, columns=columns, expected=expected)
        for folder in ("out", "lazy")
    )
    assert_final(project, columns=columns, expected=expected)
    assert eager.total() >= lazy.total() + corrected
    assert lazy.total() >= expected.total()


def assert_final(project: Project, *, columns: str, expected: Counter[tuple[str, ...]], folder: str = "final") -> None:
    """Check files of final results."""
    with duckdb.connect() as reader:
        assert _rows(reader, f"SELECT {columns} FROM read_parquet('{project.folder / folder}/*.parquet')") == expected


def _rows(reader: duckdb.DuckDBPyConnection, sql: str) -> Counter[tuple[str, ...]]:
    rows = reader.execute(sql).fetchall()
    return Counter(tuple("" if value is None else str(value) for value in row) for row in rows)
