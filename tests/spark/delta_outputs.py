"""Results of joins in Delta tables under several strategies: what each table has, and how often its rows changed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from .changelogs import assert_final
from .cli import Project

_CHANGES = ("num_target_rows_inserted", "num_target_rows_updated", "num_target_rows_deleted")


def delta_outputs(*key: str) -> dict[str, Any]:
    """Return the fields of a query whose results go to Delta tables at once and in the end, and to final files."""
    eager, lazy = ({"delta": {"path": path, "key": list(key)}} for path in ("out", "lazy"))
    final = {"emit": "OnWindowClose", "sink": {"files": {"path": "final"}}}
    return {"sink": eager, "additionalOutputs": {"lazy": {"emit": "OnWindowEnd", "sink": lazy}, "final": final}}


def batches_in(table: Path) -> list[tuple[int, int]]:
    """Return each batch that was written to a table, with the version that it made."""
    return sorted((int(each["millraceBatch"]), each["version"]) for each in _history(table) if "millraceBatch" in each)


def rows_of(table: Path, columns: str, version: int | None = None) -> Counter[tuple[str, ...]]:
    """Return the rows of a version of a table as text, by default of the newest one."""
    rows = DeltaTable(str(table), version=version).to_pyarrow_table(columns=columns.split(", ")).to_pylist()
    return Counter(tuple("" if value is None else str(value) for value in row.values()) for row in rows)


def assert_outputs(
    project: Project, *, columns: str, expected: Counter[tuple[str, ...]], corrected: bool = True
) -> None:
    """Check all outputs; of rows that are ``corrected``, fewer are taken back if they wait."""
    eager, lazy = (project.folder / name for name in ("out", "lazy"))
    assert rows_of(eager, columns) == rows_of(lazy, columns) == expected
    assert_final(project, columns=columns, expected=expected)
    assert _changes_of(eager) >= _changes_of(lazy) + corrected
    assert _changes_of(lazy) >= expected.total()


def _changes_of(table: Path) -> int:
    """Return how many rows all merges have added, replaced and removed."""
    return sum(int(each["operationMetrics"][name]) for each in _history(table) if each["operation"] == "MERGE"
               for name in _CHANGES)  # fmt: skip


def _history(table: Path) -> list[dict[str, Any]]:
    return DeltaTable(str(table)).history()
