"""How the results of a batch get into their table: by INSERTs of many rows into a temporary table, and a merge.

The merge is an UPDATE of the rows whose key is in the table and an INSERT of the others. ``INSERT ... ON DUPLICATE KEY
UPDATE`` would replace a row that has the same value in any unique index, not only in that of the key, and ``REPLACE``
deletes rows. MySQL opens a temporary table only once in a statement, so the last row of each key is in a second one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pymysql

from millrace_jobs.databases.connection import Session, time_limit
from millrace_jobs.databases.mysql import MySqlSession
from millrace_jobs.sinks.base import ADMITTED
from millrace_jobs.sinks.databases.dialect import PART, REMOVED, ROW, TargetTable, texts
from millrace_jobs.sinks.mysql.literals import DIGEST
from millrace_jobs.tables.changes import WEIGHT

STATEMENT_BYTES = 1 << 20
"""Size of an INSERT, of as many rows as fit."""

_TOO_LARGE = 1153
"""The server's number for a statement that is larger than ``max_allowed_packet``."""

_STAGED, _LATEST = "`millrace_staged`", "`millrace_latest`"
_MARKS: Mapping[str, str] = MappingProxyType({ADMITTED: "tinyint(1)", WEIGHT: "bigint"})


def quoted(name: str) -> str:
    """Return a name for a statement without values."""
    return "`{}`".format(name.replace("`", "``"))


@dataclass(frozen=True)
class MySqlStaging:
    """Results in temporary tables of the session; ``mark`` is ADMITTED, WEIGHT or None."""

    table: TargetTable
    mark: str | None = None

    def create(self, session: Session) -> None:
        """Create the temporary tables, and merge no rows, which fails if this user lacks a right."""
        columns = [
            f"{quoted(name)} {kind} NULL" for name, kind in zip(self.table.columns, self.table.types, strict=True)
        ]
        if self.mark is not None:
            columns.append(f"{self.mark} {_MARKS[self.mark]}")
        columns.append(f"{PART} int")
        if self.mark == WEIGHT:
            columns.append(f"{DIGEST} binary(32)")
        columns.append(f"{ROW} bigint AUTO_INCREMENT PRIMARY KEY")
        session.execute(f"CREATE TEMPORARY TABLE {_STAGED} ({', '.join(columns)}) ENGINE=InnoDB")
        latest = f"{ROW} bigint PRIMARY KEY, {REMOVED} tinyint(1) NOT NULL"
        session.execute(f"CREATE TEMPORARY TABLE {_LATEST} ({latest}) ENGINE=InnoDB")
        with session.transaction():
            self.merge(session)

    def empty(self, session: Session) -> None:
        """Remove the rows of the last batch."""
        session.execute(f"TRUNCATE TABLE {_STAGED}")

    def fill(self, session: Session, batches: Iterator[pa.RecordBatch]) -> None:
        """Insert the results into the temporary table as they come; each INSERT waits for the one before it."""
        mysql = cast(MySqlSession, session)
        columns = [*self.table.columns, *([] if self.mark is None else [self.mark]), PART]
        columns += [DIGEST] if self.mark == WEIGHT else []
        begin = f"INSERT INTO {_STAGED} ({_listed(columns)}) VALUES ".encode()
        room = min(STATEMENT_BYTES, mysql.largest_packet - len(begin) - 1)
        for rows in joined(batches, room):
            if len(begin) + len(rows) >= mysql.largest_packet:
                text = f"one of {len(rows):,} bytes, with max_allowed_packet of {mysql.largest_packet:,}"
                raise pymysql.err.OperationalError(_TOO_LARGE, text)
            with time_limit(session):
                mysql.write(begin + rows)

    def repeated_key(self, session: Session) -> tuple[Any, ...] | None:
        """Return a key that two rows have which a batch of weighted changes adds; None if there is none."""
        key = _listed(self.table.key)
        again = f"SELECT {key} FROM ({self._net}) AS net WHERE {WEIGHT} > 0 GROUP BY {key} HAVING COUNT(*) > 1 LIMIT 1"
        found: tuple[Any, ...] | None = session.execute(again).fetchone()
        return found

    def merge(self, session: Session) -> int:
        """Bring the staged rows into the table, and return the number of rows that were inserted or replaced."""
        mysql = cast(MySqlSession, session)
        columns, table = _listed(self.table.columns), f"{quoted(self.table.schema)}.{quoted(self.table.name)}"
        if not self.table.key:
            order = f"ORDER BY {PART}, {ROW}"
            return mysql.write(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {_STAGED} {order}")
        mysql.execute(f"DELETE FROM {_LATEST}")
        mysql.execute(f"INSERT INTO {_LATEST} ({self._latest})")
        # in this order, so that a large table is read by its key: the server knows little of temporary tables
        staged = f"{_LATEST} AS latest STRAIGHT_JOIN {_STAGED} AS staged ON staged.{ROW} = latest.{ROW}"
        same = " AND ".join(f"kept.{quoted(name)} = staged.{quoted(name)}" for name in self.table.key)
        if self.mark is not None:
            mysql.execute(f"DELETE kept FROM {staged} STRAIGHT_JOIN {table} AS kept ON {same} WHERE latest.{REMOVED}")
        replaced = 0
        others = [quoted(name) for name in self.table.columns if name not in self.table.key]
        if others:
            changes = ", ".join(f"kept.{name} = staged.{name}" for name in others)
            joined = f"{staged} STRAIGHT_JOIN {table} AS kept ON {same}"
            replaced = mysql.write(f"UPDATE {joined} SET {changes} WHERE NOT latest.{REMOVED}")
        key = [f"staged.{quoted(name)}" for name in self.table.key]
        missing = f"NOT latest.{REMOVED} AND kept.{quoted(self.table.key[0])} IS NULL"
        values = ", ".join(f"staged.{quoted(name)}" for name in self.table.columns)
        select = f"SELECT {values} FROM {staged} LEFT JOIN {table} AS kept ON {same}"
        insert = f"INSERT INTO {table} ({columns}) {select} WHERE {missing} ORDER BY {', '.join(key)}"
        return replaced + mysql.write(insert)

    @property
    def _latest(self) -> str:
        """Select the last row of each key, and whether it is removed."""
        rows, removed, last_first = _STAGED, "FALSE", f"{PART} DESC, {ROW} DESC"
        if self.mark == WEIGHT:
            rows, removed, last_first = f"({self._net}) AS net", f"{WEIGHT} < 0", f"{WEIGHT} DESC"
        elif self.mark is not None:
            removed = f"NOT {self.mark}"
        place = f"ROW_NUMBER() OVER (PARTITION BY {_listed(self.table.key)} ORDER BY {last_first})"
        ranked = f"SELECT {ROW}, {removed} AS {REMOVED}, {place} AS place FROM {rows}"
        return f"SELECT {ROW}, {REMOVED} FROM ({ranked}) AS ranked WHERE place = 1"

    @property
    def _net(self) -> str:
        """Select one of the same staged rows with the sum of their weights, if these do not cancel each other out."""
        key = _listed(self.table.key)
        sums = f"SELECT {key}, MAX({ROW}) AS {ROW}, SUM({WEIGHT}) AS {WEIGHT} FROM {_STAGED}"
        return f"{sums} GROUP BY {DIGEST}, {key} HAVING SUM({WEIGHT}) <> 0"


def joined(batches: Iterator[pa.RecordBatch], room: int) -> Iterator[bytes]:
    """Yield the rows of batches as lists for one INSERT each, of at most ``room`` bytes if they have several rows."""
    kept = bytearray()
    for batch in batches:
        for rows in _parts(*texts(batch), room):
            if kept and len(kept) + len(rows) > room:
                yield bytes(kept[:-1])  # without the last comma
                kept.clear()
            kept += rows
    if kept:
        yield bytes(kept[:-1])


def _parts(text: memoryview, ends: npt.NDArray[np.int64], room: int) -> Iterator[memoryview]:
    begin = first = 0
    while first < len(ends):
        first = max(int(np.searchsorted(ends, begin + room, "right")), first + 1)
        end = int(ends[first - 1])
        yield text[begin:end]
        begin = end


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(quoted, names))
