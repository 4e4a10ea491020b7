"""The table that results go to: it must exist, because sinks create no tables of the user's, and suit the results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from psycopg.sql import SQL, Composed, Identifier
from pyspark.sql.types import DataType, StructType

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.postgres.connection import SINK, PostgresConnection, Session
from millrace_jobs.sinks.postgres.copy_text import ColumnType, column_type

_RELATION = """
SELECT c.oid, n.nspname, c.relname, c.relkind
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass(%s)
"""
_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), coalesce(base.typname, t.typname),
       CASE WHEN coalesce(base.typname, t.typname) = 'numeric'
            THEN greatest(a.atttypmod, t.typtypmod) ELSE -1 END,
       a.attnotnull OR t.typnotnull, a.atthasdef OR a.attidentity <> '', a.attgenerated <> '' OR a.attidentity = 'a'
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_type base ON base.oid = nullif(t.typbasetype, 0)
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""
_UNIQUE = """
SELECT array_agg(a.attname::text)
FROM pg_index i
CROSS JOIN unnest((i.indkey::int2[])[0:i.indnkeyatts - 1]) AS part (number)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = part.number
WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid
"""
_RIGHTS = "SELECT wanted FROM unnest(%s::text[]) AS wanted WHERE NOT has_table_privilege(%s::oid, wanted)"


class _TableColumn(NamedTuple):
    name: str
    type: str
    base: str
    modifier: int
    not_null: bool
    has_default: bool
    generated: bool


@dataclass(frozen=True)
class TargetTable:
    """A table that suits the results: its name, and its columns with their types, in the order of the result's."""

    schema: str
    name: str
    columns: tuple[str, ...]
    types: tuple[str, ...]
    key: tuple[str, ...]

    @property
    def full_name(self) -> str:
        """Schema and name."""
        return f"{self.schema}.{self.name}"

    @property
    def identifier(self) -> Identifier:
        """The name for a statement."""
        return Identifier(self.schema, self.name)


@dataclass(frozen=True)
class WantedTable:
    """What the results need of a table.

    ``name`` is as the user wrote it, and ``key`` has result columns. ``removes`` says whether rows are also deleted.
    """

    name: str
    results: StructType
    key: tuple[str, ...]
    removes: bool
    connection: PostgresConnection = field(repr=False)

    def require_types(self) -> None:
        """Check that a table can have the columns of the results.

        Raises:
            MillraceError: no type of PostgreSQL holds the values of a column.
        """
        odd = [each for each in self.results if column_type(each.dataType) is None]
        if odd:
            raise MillraceError(
                *(
                    _problem(
                        f"column {each.name} is {_sql(each.dataType)}, for which no type of PostgreSQL is known",
                        f"cast it in the SELECT list, as in CAST({each.name} AS STRING) AS {each.name}",
                    )
                    for each in odd
                )
            )

    def find(self, session: Session) -> TargetTable:
        """Return the table in the database.

        Raises:
            MillraceError: there is none, or it does not suit the results.
            psycopg.Error: the database cannot be asked.
        """
        found = session.execute(_RELATION, [self._given.as_string(session)]).fetchone()
        place = f"database {self.connection.database} at {self.connection.place}"
        if found is None:
            hint = f"create it: {self.create_command(session)}"
            raise MillraceError(_problem(f"{place} has no table {self.name}", hint, "table"))
        oid, schema, name, kind = found
        full = f"{schema}.{name}"
        if kind not in ("r", "p"):
            raise MillraceError(_problem(f"{full} is no table", "write the name of a table", "table"))
        columns = {each[0]: _TableColumn(*each) for each in session.execute(_COLUMNS, [oid])}
        matched = {each.name: _match(each.name, columns) for each in self.results}
        problems = list(self._column_problems(full, columns, matched))
        if not problems and self.key:
            unique = [set(names) for (names,) in session.execute(_UNIQUE, [oid])]
            problems += self._key_problems(session, full, [columns[matched[each] or ""] for each in self.key], unique)
        problems += self._missing_rights(session, full, oid)
        if problems:
            raise MillraceError(*problems)
        names = tuple(matched[each.name] or "" for each in self.results)
        types = tuple(columns[each].type for each in names)
        return TargetTable(schema, name, names, types, tuple(matched[each] or "" for each in self.key))

    @property
    def _given(self) -> Identifier:
        return Identifier(*self.name.split("."))

    def create_command(self, session: Session) -> str:
        """Return the command that creates a suitable table."""
        columns = [
            SQL("{} {}").format(Identifier(each.name), SQL(_type_of(each.dataType).name)) for each in self.results
        ]
        if self.key:
            columns.append(SQL("PRIMARY KEY ({})").format(_listed(self.key)))
        command: Composed = SQL("CREATE TABLE {} ({});").format(self._given, SQL(", ").join(columns))
        return command.as_string(session)

    def _column_problems(
        self, table: str, columns: Mapping[str, _TableColumn], matched: Mapping[str, str | None]
    ) -> Iterator[Problem]:
        for each in self.results:
            name, wanted = matched[each.name], _type_of(each.dataType)
            if name is None:
                message = f"table {table} has no column {each.name}"
                yield _problem(message, f'ALTER TABLE {table} ADD "{each.name}" {wanted.name};', "table")
                continue
            column = columns[name]
            if column.generated:
                message = f"column {name} of table {table} has values that the database generates"
                yield _problem(message, "leave the column out of the SELECT list", "table")
            elif column.base not in wanted.accepted or not _holds(column, wanted):
                message = f"column {name} of table {table} is {column.type}, and the result has {_sql(each.dataType)}"
                command = f'ALTER TABLE {table} ALTER "{name}" TYPE {wanted.name}'
                yield _problem(message, f"change it, as in {command}; or cast the column in the SELECT list", "table")
        for column in columns.values():
            if column.not_null and not column.has_default and column.name not in matched.values():
                message = f"column {column.name} of table {table} is NOT NULL, and the result has no such column"
                yield _problem(message, "select it, or give the column a default in the table", "table")

    def _key_problems(
        self, session: Session, table: str, key: Sequence[_TableColumn], unique: Sequence[set[str]]
    ) -> Iterator[Problem]:
        names = [column.name for column in key]
        listed = _listed(names).as_string(session)
        if set(names) not in unique:
            message = f"table {table} has no primary key or unique constraint on exactly {', '.join(names)}"
            yield _problem(message, f"add one, as in ALTER TABLE {table} ADD PRIMARY KEY ({listed});", "key")
        for column in key:
            if not column.not_null:
                message = f"column {column.name} of table {table} may be NULL, and rows without a key would be repeated"
                yield _problem(message, f'ALTER TABLE {table} ALTER "{column.name}" SET NOT NULL;', "key")

    def _missing_rights(self, session: Session, table: str, oid: int) -> Iterator[Problem]:
        wanted = ["INSERT", *(["SELECT", "UPDATE"] if self.key else []), *(["DELETE"] if self.removes else [])]
        missing = [right for (right,) in session.execute(_RIGHTS, [wanted, oid])]
        if missing:
            rights, user = ", ".join(missing), Identifier(self.connection.user).as_string(session)
            message = f"user {self.connection.user} may not {rights} on table {table}"
            yield _problem(message, f"GRANT {rights} ON {table} TO {user};", "user")


def _match(name: str, columns: Mapping[str, _TableColumn]) -> str | None:
    """Return the column of this name; without one, that of the same name in other case, as Spark would find it."""
    if name in columns:
        return name
    others = [each for each in columns if each.lower() == name.lower()]
    return others[0] if len(others) == 1 else None


def _holds(column: _TableColumn, wanted: ColumnType) -> bool:
    """Return whether a ``numeric`` column has enough digits for all values; one without limits has."""
    if column.base != "numeric" or column.modifier < 0 or wanted.digits is None:
        return True
    precision, scale = (column.modifier - 4) >> 16 & 0xFFFF, (column.modifier - 4) & 0x7FF
    return precision - scale >= wanted.digits[0] and scale >= wanted.digits[1]


def _type_of(kind: DataType) -> ColumnType:
    found = column_type(kind)
    assert found is not None, f"require_types passes over {kind}"
    return found


def _sql(kind: DataType) -> str:
    return kind.simpleString().upper()


def _listed(names: Sequence[str]) -> Composed:
    return SQL(", ").join(map(Identifier, names))


def _problem(message: str, hint: str, part: str = "") -> Problem:
    return Problem(message, hint, field=f"{SINK}.{part}" if part else SINK)
