"""The statements that bring the results of a batch into their table, by way of a temporary table of the session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from psycopg.sql import SQL, Composable, Composed, Identifier

from millrace_jobs.sinks.base import ADMITTED
from millrace_jobs.sinks.postgres.target import TargetTable
from millrace_jobs.tables.changes import WEIGHT

_STAGED = Identifier("millrace_staged")
_PART, _ROW, _REMOVED = map(Identifier, ("millrace_part", "millrace_row", "millrace_removed"))

_MARKS: Mapping[str, str] = MappingProxyType({ADMITTED: "boolean", WEIGHT: "bigint"})
"""Types of the columns that say whether a row is there, or how often it is added or removed."""


@dataclass(frozen=True)
class Statements:
    """The statements for one table.

    The staged rows have the columns of the table, then ``mark``, which is ADMITTED, WEIGHT or None, and the number of
    the Spark partition that they come from. Together with their order in it, that is the order of the results, in
    which the last row of a key counts.
    """

    table: TargetTable
    mark: str | None = None

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
    def empty_staged(self) -> Composed:
        """Remove all rows of the temporary table."""
        return SQL("TRUNCATE {}").format(_STAGED)

    @property
    def copy(self) -> Composed:
        """Read rows into the temporary table."""
        marks = [] if self.mark is None else [self.mark]
        columns = _listed([*self.table.columns, *marks])
        return SQL("COPY {} ({}, {}) FROM STDIN").format(_STAGED, columns, _PART)

    @property
    def merge(self) -> Composed:
        """Bring the staged rows into the table: upsert and delete by key, or append without a key."""
        columns, table = _listed(self.table.columns), self.table.identifier
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
    def repeated_key(self) -> Composed:
        """Select a key that two rows have which a batch of weighted changes adds."""
        key = _listed(self.table.key)
        return SQL("SELECT {0} FROM ({1}) AS net WHERE {2} > 0 GROUP BY {0} HAVING count(*) > 1 LIMIT 1").format(
            key, self._net, Identifier(WEIGHT)
        )

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
            self.table.identifier, _REMOVED, SQL(" AND ").join(same)
        )

    @property
    def _update(self) -> Composed:
        others = [Identifier(name) for name in self.table.columns if name not in self.table.key]
        if not others:
            return Composed([SQL("NOTHING")])
        return SQL("UPDATE SET {}").format(SQL(", ").join(SQL("{0} = excluded.{0}").format(name) for name in others))


def _listed(names: Sequence[str]) -> Composed:
    return SQL(", ").join(map(Identifier, names))
