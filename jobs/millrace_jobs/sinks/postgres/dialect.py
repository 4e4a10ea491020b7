"""PostgreSQL as a place for results: its tables, its names and types, and what its errors mean."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from psycopg import errors
from psycopg.sql import Identifier, Literal
from pyspark.sql import DataFrame
from pyspark.sql.types import DataType

from millrace_api.errors import MillraceError
from millrace_jobs.databases.connection import Session
from millrace_jobs.postgres.errors import is_conflict, postgres_problem
from millrace_jobs.sinks.databases.dialect import ColumnType, Dialect, FoundTable, TableColumn, TargetTable
from millrace_jobs.sinks.postgres.copy_text import column_type, lines
from millrace_jobs.sinks.postgres.staging import PostgresStaging

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
_RIGHTS = "SELECT wanted FROM unnest(%s::text[]) AS wanted WHERE NOT has_table_privilege(%s, wanted)"
_BATCHES = """
CREATE TABLE IF NOT EXISTS {} (
    "table" text NOT NULL,
    checkpoint text NOT NULL,
    query text NOT NULL,
    batch bigint NOT NULL,
    epoch bigint,
    driver uuid NOT NULL,
    written timestamp with time zone NOT NULL DEFAULT now(),
    PRIMARY KEY ("table", checkpoint)
)"""


class PostgresDialect(Dialect):
    """PostgreSQL, 12 or later."""

    error = psycopg.Error

    def problem(self, error: Exception, doing: str) -> MillraceError:
        """Return an error of the client library as a sentence; a TransientError if it may pass by itself."""
        assert isinstance(error, psycopg.Error)
        return postgres_problem(error, doing, self.connection)

    def is_conflict(self, error: Exception) -> bool:
        """Return whether a transaction has failed because of another one, so that it can be tried again."""
        return isinstance(error, psycopg.Error) and is_conflict(error)

    def is_denied(self, error: Exception) -> bool:
        """Return whether the user lacks a right."""
        return isinstance(error, errors.InsufficientPrivilege)

    def is_there(self, error: Exception) -> bool:
        """Return whether a table could not be created because another session has just done so."""
        return isinstance(error, errors.UniqueViolation | errors.DuplicateTable)

    def quoted(self, *names: str) -> str:
        """Return a name, or names joined by dots, for a statement without values."""
        return Identifier(*names).as_string()

    def literal(self, text: str) -> str:
        """Return a text for a statement."""
        return Literal(text).as_string()

    def grantee(self, session: Session) -> str:
        """Return this session's user for GRANT."""
        return self.quoted(self.connection.user)

    def column_type(self, kind: DataType) -> ColumnType | None:
        """Return the types of a table's column for a result's type; None if no column holds it."""
        return column_type(kind)

    def find(self, session: Session, name: str) -> FoundTable | None:
        """Return the table with the name that the user wrote; None if there is none."""
        found = session.execute(_RELATION, [self.quoted(*name.split("."))]).fetchone()
        if found is None:
            return None
        oid, schema, table, kind = found
        refusal = None if kind in ("r", "p") else ("is no table", "write the name of a table")
        columns = {each[0]: _column(*each) for each in session.execute(_COLUMNS, [oid]).fetchall()}
        unique = [frozenset(names) for (names,) in session.execute(_UNIQUE, [oid]).fetchall()]
        return FoundTable(schema, table, columns, unique, refusal)

    def missing_rights(self, session: Session, table: FoundTable, wanted: Sequence[str]) -> list[str]:
        """Return which of these rights the user lacks on a table."""
        name = self.quoted(table.schema, table.name)
        return [right for (right,) in session.execute(_RIGHTS, [list(wanted), name]).fetchall()]

    def definition(self, session: Session, name: str, kind: ColumnType, *, is_key: bool) -> str:
        """Return a column for CREATE TABLE."""
        return f"{self.quoted(name)} {kind.name}"

    def changed_type(self, name: str, type: str) -> str:
        """Return the part of ALTER TABLE that gives a column another type."""
        return f"ALTER {self.quoted(name)} TYPE {type}"

    def without_null(self, column: TableColumn) -> str:
        """Return the part of ALTER TABLE that makes a column NOT NULL."""
        return f"ALTER {self.quoted(column.name)} SET NOT NULL"

    def batches(self, session: Session, table: str) -> tuple[bool, str]:
        """Return whether the table of batches exists, and the command that creates it."""
        exists = session.execute("SELECT to_regclass(%s)", [table]).fetchone() != (None,)
        return exists, _BATCHES.format(table)

    def insert_if_missing(self, rest: str) -> str:
        """Return the statement that inserts a row, whose table and values are ``rest``, unless its key is there."""
        return f"INSERT INTO {rest} ON CONFLICT DO NOTHING"

    def encoded(self, results: DataFrame, columns: Sequence[str], mark: str | None) -> DataFrame:
        """Return the results as lines for COPY."""
        return lines(results, columns)

    def staging(self, table: TargetTable, mark: str | None) -> PostgresStaging:
        """Return what stages the results for a table."""
        return PostgresStaging(table, mark)


def _column(
    name: str, type: str, base: str, modifier: int, not_null: bool, has_default: bool, generated: bool
) -> TableColumn:
    digits = None
    if base == "numeric" and modifier >= 0:
        precision, scale = (modifier - 4) >> 16 & 0xFFFF, (modifier - 4) & 0x7FF
        digits = (precision - scale, scale)
    return TableColumn(name, type, base, digits, not_null, has_default, generated, staged=type)
