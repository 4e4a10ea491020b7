"""How the results of a batch get into their table: by COPY into a temporary table, and one statement from there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Any, cast

import pyarrow as pa
from psycopg.sql import SQL, Composable, Composed, Identifier

from millrace_jobs.changes import WEIGHT
from millrace_jobs.databases.connection import Session, time_limit
from millrace_jobs.postgres.connection import PostgresSession
from millrace_jobs.sinks.base import ADMITTED
from millrace_jobs.sinks.databases import dialect
from millrace_jobs.sinks.databases.arrow_stream import texts
from millrace_jobs.sinks.databases.dialect import TargetTable

_STAGED = Identifier("millrace_staged")
_PART, _ROW, _REMOVED = Identifier(dialect.PART), Identifier(dialect.ROW), Identifier(dialect.REMOVED)

_MARKS: Mapping[str, str] = MappingProxyType({ADMITTED: "boolean", WEIGHT: "bigint"})
"""Types of the columns that say whether a row is there, or how often it is added or removed."""


@dataclass(frozen=True)
class PostgresStaging:
    """Results in a temporary table of the session; ``mark`` is ADMITTED, WEIGHT or None."""

    table: TargetTable
    mark: str | None = None

    def create(self, session: Session) -> None:
        """Create the temporary table."""
        session.execute(self.create_staged)

    def empty(self, session: Session) -> None:
        """Remove the rows of the last batch."""
        session.execute(SQL("TRUNCATE {}").format(_STAGED))

    def fill(self, session: Session, batches: Iterator[pa.RecordBatch]) -> None:
        """Copy the results into the temporary table as they come."""
        first = next(batches, None)  # no transaction is open while Spark computes
        if first is None:
            return
        postgres = cast(PostgresSession, session)
        with postgres.transaction(), postgres.cursor() as cursor:
            cursor.execute("SET LOCAL statement_timeout = 0")  # lasts as long as Spark computes
            with cursor.copy(self.copy) as copy:
                for batch in chain([first], batches):
                    with time_limit(session):
                        copy.write(texts(batch)[0])

    def repeated_key(self, session: Session) -> tuple[Any, ...] | None:
        """Return a key that two rows have which a batch of weighted changes adds; None if there is none."""
        found: tuple[Any, ...] | None = session.execute(self.find_repeated_key).fetchone()
        return found

    def merge(self, session: Session) -> int:
        """Bring the staged rows into the table, and return the number of rows that were inserted or replaced."""
        return session.execute(self.merge_staged).rowcount

    @property
    def create_staged(self) -> Composed:
        """Create the temporary table."""
        columns = [
            SQL("{} {}").format(Identifier(name), SQL(kind))
            for name, kind in zip(self.table.columns, self.table.types, strict=True)
        ]
        if self.mark is not None:
            columns.append(SQL("{} {}").format(Identifier(self.mark), SQL(_MARKS[self.mark])))
        command = "CREATE TEMPORARY TABLE {} ({}, {} integer, {} bigint GENERATED ALWAYS AS IDENTITY)"
        return SQL(command).format(_STAGED, SQL(", ").join(columns), _PART, _ROW)

    @property
    def copy(self) -> Composed:
        """Read rows into the temporary table."""
        marks = [] if self.mark is None else [self.mark]
        columns = _listed([*self.table.columns, *marks])
        return SQL("COPY {} ({}, {}) FROM STDIN").format(_STAGED, columns, _PART)

    @property
    def merge_staged(self) -> Composed:
        """Bring the staged rows into the table: upsert and delete by key, or append without a key."""
        columns, table = _listed(self.table.columns), self._name
        if not self.table.key:
            order = SQL("ORDER BY {}, {}").format(_PART, _ROW)
            return SQL("INSERT INTO {} ({}) SELECT {} FROM {} {}").format(table, columns, columns, _STAGED, order)
        steps = [SQL("latest AS MATERIALIZED ({})").format(self._latest)]
        if self.mark is not None:
            steps.append(SQL("gone AS ({})").format(self._delete))
        insert = SQL("INSERT INTO {} ({}) SELECT {} FROM latest WHERE NOT {} ON CONFLICT ({}) DO {}").format(
            table, columns, columns, _REMOVED, _listed(self.table.key), self._update
        )
        return SQL("WITH {} {}").format(SQL(", ").join(steps), insert)

    @property
    def find_repeated_key(self) -> Composed:
        """Select a key that two rows have which a batch of weighted changes adds."""
        key = _listed(self.table.key)
        return SQL("SELECT {0} FROM ({1}) AS net WHERE {2} > 0 GROUP BY {0} HAVING count(*) > 1 LIMIT 1").format(
            key, self._net, Identifier(WEIGHT)
        )

    @property
    def _name(self) -> Identifier:
        return Identifier(self.table.schema, self.table.name)

    @property
    def _latest(self) -> Composed:
        """Select the last row of each key, and whether it is removed; sorted by key, as all writers lock their rows."""
        columns, key = _listed(self.table.columns), _listed(self.table.key)
        rows: Composable = _STAGED
        removed: Composable = SQL("FALSE")
        last_first = SQL("{} DESC, {} DESC").format(_PART, _ROW)
        if self.mark == WEIGHT:
            weight, rows = Identifier(WEIGHT), SQL("({}) AS net").format(self._net)
            removed, last_first = SQL("{} < 0").format(weight), SQL("{} DESC").format(weight)
        elif self.mark is not None:
            removed = SQL("NOT {}").format(Identifier(self.mark))
        return SQL("SELECT DISTINCT ON ({0}) {1}, {2} AS {3} FROM {4} ORDER BY {0}, {5}").format(
            key, columns, removed, _REMOVED, rows, last_first
        )

    @property
    def _net(self) -> Composed:
        """Select the staged rows with the sum of their weights, without rows whose weights cancel each other out."""
        columns, weight = _listed(self.table.columns), Identifier(WEIGHT)
        return SQL("SELECT {0}, sum({1}) AS {1} FROM {2} GROUP BY {0} HAVING sum({1}) <> 0").format(
            columns, weight, _STAGED
        )

    @property
    def _delete(self) -> Composed:
        same = [SQL("kept.{0} = latest.{0}").format(Identifier(name)) for name in self.table.key]
        return SQL("DELETE FROM {} AS kept USING latest WHERE latest.{} AND {}").format(
            self._name, _REMOVED, SQL(" AND ").join(same)
        )

    @property
    def _update(self) -> Composed:
        others = [Identifier(name) for name in self.table.columns if name not in self.table.key]
        if not others:
            return Composed([SQL("NOTHING")])
        return SQL("UPDATE SET {}").format(SQL(", ").join(SQL("{0} = excluded.{0}").format(name) for name in others))


def _listed(names: Sequence[str]) -> Composed:
    return SQL(", ").join(map(Identifier, names))
