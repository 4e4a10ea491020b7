"""A source that reads the taxi rides of a SQLite table, which only grows; the offset of a ride is its rowid."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa

COLUMNS = pa.schema(
    [("taxi", pa.string()), ("pickup", pa.timestamp("s", "UTC")), ("start_x", pa.int32()), ("start_y", pa.int32()),
     ("fare", pa.float64())]
)  # fmt: skip


class Rides:
    """The rides of a table."""

    def __init__(self, database: str, table: str = "rides") -> None:
        self._database = database
        self._select = f'SELECT {", ".join(COLUMNS.names)} FROM "{table}" WHERE rowid >= ? AND rowid < ?'
        self._last = f'SELECT coalesce(max(rowid), -1) FROM "{table}"'

    def latest(self) -> int:
        """Return the offset behind the last ride."""
        with closing(sqlite3.connect(self._database)) as connection:
            (last,) = connection.execute(self._last).fetchone()
            return int(last) + 1

    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the rides with offsets from ``start`` on and below ``end``."""
        with closing(sqlite3.connect(self._database)) as connection:
            rides = connection.execute(self._select, [start, end])
            while rows := rides.fetchmany(10_000):
                columns = zip(*rows, strict=True)
                arrays = [pa.array(values, field.type) for values, field in zip(columns, COLUMNS, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=COLUMNS)
