"""DuckDB's answers to a case, and rows as values that Python compares."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa

from .cases import Case
from .lateness import EVER, MARK, RULES, Rule, marks
from .values import plain_values

Row = tuple[Any, ...]


def expected_tables(case: Case) -> list[pa.Table]:
    """Return DuckDB's answers, each by another rule of what is late; none to a query that may not run."""
    return [_answer(case, rule) for rule in RULES] if case.query.question().duckdb else []


def _answer(case: Case, rule: Rule) -> pa.Table:
    marked = marks(case.tables, case.runs, rule, EVER if case.is_held_back else 0)
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        connection.execute("SET TimeZone = 'UTC'")
        for table, late_until in zip(case.tables, marked, strict=True):
            connection.register("given", table.arrow().append_column(MARK, pa.array(late_until, pa.int64())))
            columns = ", ".join(f"{c.name}::{c.kind.duckdb} AS {c.name}" for c in table.columns)
            connection.execute(f"CREATE TABLE {table.name} AS SELECT {columns}, {MARK} FROM given")
            connection.unregister("given")
        return connection.sql(case.query.question().duckdb).to_arrow_table()


def rows_of(table: pa.Table) -> list[Row]:
    """Return the rows of a table, times as numbers."""
    if not table.num_columns:
        return []
    return list(zip(*(plain_values(column) for column in table.columns), strict=True))
