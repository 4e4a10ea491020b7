"""The table that results go to: it must exist, because sinks create no tables of the user's, and suit the results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql.types import DataType, StructType

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.databases.connection import Session
from millrace_jobs.sinks.databases.dialect import ColumnType, Dialect, TableColumn, TargetTable


@dataclass(frozen=True)
class WantedTable:
    """What the results need of a table.

    ``name`` is as the user wrote it, and ``key`` has result columns. ``removes`` says whether rows are also deleted.
    """

    name: str
    results: StructType
    key: tuple[str, ...]
    removes: bool
    dialect: Dialect = field(repr=False, compare=False)

    def require_types(self) -> None:
        """Check that a table can have the columns of the results.

        Raises MillraceError if no type of the database holds the values of a column.
        """
        server = self.dialect.connection.server
        problems = [
            self._problem(
                f"column {each.name} is {each.dataType.simpleString().upper()}, for which no type of {server} is known",
                f"cast it in the SELECT list, as in CAST({each.name} AS STRING) AS {each.name}",
            )
            for each in self.results
            if self.dialect.column_type(each.dataType) is None
        ]
        if problems:
            raise MillraceError(*problems)

    def find(self, session: Session) -> TargetTable:
        """Return the table in the database.

        Raises:
            MillraceError: there is none, or it does not suit the results.
            Exception: the client library's error: the database cannot be asked.
        """
        found = self.dialect.find(session, self.name)
        if found is None:
            connection = self.dialect.connection
            place = f"database {connection.database} at {connection.place}"
            hint = f"create it: {self.create_command(session)}"
            raise MillraceError(self._problem(f"{place} has no table {self.name}", hint, "table"))
        full = f"{found.schema}.{found.name}"
        if found.refusal is not None:
            message, hint = found.refusal
            raise MillraceError(self._problem(f"{full} {message}", hint, "table"))
        matched = {each.name: _match(each.name, found.columns) for each in self.results}
        problems = list(self._column_problems(full, found.columns, matched))
        if not problems and self.key:
            key = [found.columns[matched[each] or ""] for each in self.key]
            problems += self._key_problems(full, key, found.unique)
        wanted = ["INSERT", *(["SELECT", "UPDATE"] if self.key else []), *(["DELETE"] if self.removes else [])]
        if missing := self.dialect.missing_rights(session, found, wanted):
            rights = ", ".join(missing)
            message = f"user {self.dialect.connection.user} may not {rights} on table {full}"
            hint = f"GRANT {rights} ON {full} TO {self.dialect.grantee(session)};"
            problems.append(self._problem(message, hint, "user"))
        if problems:
            raise MillraceError(*problems)
        names = tuple(matched[each.name] or "" for each in self.results)
        types = tuple(found.columns[each].staged for each in names)
        return TargetTable(found.schema, found.name, names, types, tuple(matched[each] or "" for each in self.key))

    def create_command(self, session: Session) -> str:
        """Return the command that creates a suitable table."""
        columns = [
            self.dialect.definition(session, each.name, self._type_of(each.dataType), is_key=each.name in self.key)
            for each in self.results
        ]
        if self.key:
            columns.append(f"PRIMARY KEY ({self._listed(self.key)})")
        return f"CREATE TABLE {self.dialect.quoted(*self.name.split('.'))} ({', '.join(columns)});"

    def _column_problems(
        self, table: str, columns: Mapping[str, TableColumn], matched: Mapping[str, str | None]
    ) -> Iterator[Problem]:
        for each in self.results:
            name, wanted = matched[each.name], self._type_of(each.dataType)
            if name is None:
                message = f"table {table} has no column {each.name}"
                command = f"ALTER TABLE {table} ADD {self.dialect.quoted(each.name)} {wanted.name};"
                yield self._problem(message, command, "table")
                continue
            column = columns[name]
            if column.generated:
                message = f"column {name} of table {table} has values that the database generates"
                yield self._problem(message, "leave the column out of the SELECT list", "table")
            elif column.base not in wanted.accepted or not _holds(column, wanted):
                found = ", ".join(filter(None, (column.type, wanted.lossy.get(column.base))))
                given = each.dataType.simpleString().upper()
                message = f"column {name} of table {table} is {found}, and the result has {given}"
                command = self.dialect.changed_type.format(name=self.dialect.quoted(name), type=wanted.name)
                hint = f"change it, as in ALTER TABLE {table} {command}; or cast the column in the SELECT list"
                yield self._problem(message, hint, "table")
            elif column.obstacle is not None:
                message = f"column {name} of table {table} {column.obstacle.what}"
                yield self._problem(message, f"ALTER TABLE {table} {column.obstacle.change};", "table")
        for column in columns.values():
            if column.not_null and not column.has_default and column.name not in matched.values():
                message = f"column {column.name} of table {table} is NOT NULL, and the result has no such column"
                yield self._problem(message, "select it, or give the column a default in the table", "table")

    def _key_problems(
        self, table: str, key: Sequence[TableColumn], unique: Sequence[frozenset[str]]
    ) -> Iterator[Problem]:
        names = [column.name for column in key]
        if frozenset(names) not in unique:
            message = f"table {table} has no primary key or unique constraint on exactly {', '.join(names)}"
            hint = f"add one, as in ALTER TABLE {table} ADD PRIMARY KEY ({self._listed(names)});"
            yield self._problem(message, hint, "key")
        for column in key:
            if not column.not_null:
                message = f"column {column.name} of table {table} may be NULL, and rows without a key would be repeated"
                name = self.dialect.quoted(column.name)
                change = self.dialect.without_null.format(name=name, type=column.staged)
                yield self._problem(message, f"ALTER TABLE {table} {change};", "key")
            if column.key_obstacle is not None:
                message = f"column {column.name} of table {table} {column.key_obstacle.what}"
                yield self._problem(message, f"ALTER TABLE {table} {column.key_obstacle.change};", "key")

    def _type_of(self, kind: DataType) -> ColumnType:
        found = self.dialect.column_type(kind)
        assert found is not None, f"require_types passes over {kind}"
        return found

    def _listed(self, names: Sequence[str]) -> str:
        return ", ".join(map(self.dialect.quoted, names))

    def _problem(self, message: str, hint: str, part: str = "") -> Problem:
        field = self.dialect.connection.field
        return Problem(message, hint, field=f"{field}.{part}" if part else field)


def _match(name: str, columns: Mapping[str, TableColumn]) -> str | None:
    """Return the column of this name; without one, that of the same name in other case, as Spark would find it."""
    if name in columns:
        return name
    others = [each for each in columns if each.lower() == name.lower()]
    return others[0] if len(others) == 1 else None


def _holds(column: TableColumn, wanted: ColumnType) -> bool:
    """Return whether a decimal column has enough digits for all values; one without limits has."""
    if column.digits is None or wanted.digits is None:
        return True
    return column.digits[0] >= wanted.digits[0] and column.digits[1] >= wanted.digits[1]
