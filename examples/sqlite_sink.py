"""A sink that appends results to a table of SQLite, each batch once."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pyarrow as pa

from millrace import SinkBatch


def append(results: pa.Table, batch: SinkBatch, *, database: str, table: str) -> None:
    """Append the results of a batch, unless the table of batches has it already; both in one transaction."""
    columns = ", ".join(f'"{name}"' for name in results.column_names)
    marks = ", ".join("?" * results.num_columns)
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("CREATE TABLE IF NOT EXISTS batches (batch TEXT PRIMARY KEY)")
        connection.execute(f'CREATE TABLE IF NOT EXISTS "{table}" ({columns})')
        if connection.execute("INSERT OR IGNORE INTO batches VALUES (?)", [batch.key]).rowcount:
            rows = zip(*(column.to_pylist() for column in results.columns), strict=True)
            connection.executemany(f'INSERT INTO "{table}" VALUES ({marks})', rows)
