"""Findings as folders that anyone can run again, and the making of a small case."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .answers import expected_tables, rows_of
from .cases import Case
from .judging import Finding, judge
from .lateness import RULES

_MEMORY = Path("/dev/shm")


@contextmanager
def scratch() -> Iterator[Path]:
    """Provide an empty folder, in memory where there is such a file system."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="trouble-", dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        try:
            yield Path(folder)
        finally:
            os.chdir(before)  # a case in an odd place runs there


def shrunk(case: Case, finding: Finding, plan: str, seconds: float) -> tuple[Case, Finding]:
    """Return a smaller case with the same finding, as small as can be found in this time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for smaller in case.smaller():
            if time.monotonic() > until:
                break
            found = _still(smaller, finding, plan)
            if found is not None:
                case, finding = smaller, found
                break
        else:
            break
    return case, finding


def _still(case: Case, finding: Finding, plan: str) -> Finding | None:
    with scratch() as folder:
        try:
            found = judge(case, folder, [plan])
        except Exception:  # a case that DuckDB does not answer
            return None
    return next((each for each in found if each.kind.split()[0] == finding.kind.split()[0]), None)


def keep(case: Case, findings: Sequence[Finding], folder: Path) -> None:
    """Write queries, inputs, the expected rows and what came instead into a folder; run the case there once more."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    before, folder = Path.cwd(), folder.absolute()
    judge(case, folder, sorted({plan for finding in findings for plan in finding.plan.split(",")}))
    os.chdir(before)
    for checkpoint in folder.glob("**/checkpoint"):
        shutil.rmtree(checkpoint)
    question = case.query.question()
    expected = expected_tables(case)
    lines = [
        f"case {case.name}: {case.shape}, {case.emit}, sink {case.sink}",
        "",
        question.spark,
        "",
        question.duckdb,
        "",
    ]
    for table, spelling, arrival in zip(case.tables, case.spellings, case.arrivals, strict=True):
        lines += [
            f"{table.name}: {', '.join(c.name for c in table.columns)}; delay {table.delay} us; {spelling}; {arrival}"
        ]
        lines += [f"  file {index}: {row!r}" for index, rows in enumerate(table.files) for row in rows]
    for rule, table in zip(RULES, expected, strict=True) if expected else ():
        if rule is RULES[0] or table != expected[0]:
            lines += ["", f"expected {table.column_names} by {rule}:", *(f"  {row!r}" for row in rows_of(table)), ""]
    for finding in findings:
        lines += [f"{finding.kind} ({finding.plan})", finding.details, ""]
    (folder / "finding.txt").write_text("\n".join(lines), encoding="utf-8", errors="backslashreplace")
