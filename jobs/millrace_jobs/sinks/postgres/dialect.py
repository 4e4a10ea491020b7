r"""PostgreSQL as a place for results: its tables and types, and how results get there.

Results are COPYed into a temporary table, as text that Spark's tasks encode: one string of a line for each row. So no
value passes through Python: the driver sends the bytes of Arrow's strings as they are. Values are separated by tabs,
NULL is ``\N``, and a backslash, a tab or a line break in a text is escaped. The text of a value by type:

- BOOLEAN, integers, DECIMAL, DOUBLE and FLOAT, with NaN and infinity: as Spark casts it, which PostgreSQL reads exactly
- TIMESTAMP: in UTC, with its offset; years before 1 have BC, years after 9999 no sign
- BINARY: ``\x`` and hexadecimal digits
- ARRAY, STRUCT, MAP: JSON, as in Kafka messages
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from types import MappingProxyType
from typing import Any, cast

import psycopg
import pyarrow as pa
from psycopg import errors
from psycopg.sql import SQL, Composable, Composed, Identifier, Literal
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional name
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    TimestampNTZType,
    TimestampType,
)

from millrace_api.errors import MillraceError
from millrace_jobs.databases.connection import Session, time_limit
from millrace_jobs.databases.postgres import PostgresSession, is_conflict, postgres_problem
from millrace_jobs.sinks.base import ADMITTED, named
from millrace_jobs.sinks.databases import dialect
from millrace_jobs.sinks.databases.dialect import (
    JSON,
    NESTED,
    TEXTS,
    ColumnType,
    ColumnTypes,
    Dialect,
    FoundTable,
    TableColumn,
    TargetTable,
    texts,
)
from millrace_jobs.tables.changes import WEIGHT

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

LINE = "line"
"""Name of the column with the lines."""

_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))

_TYPES = ColumnTypes(
    decimal="numeric",
    integers={ByteType: "smallint", ShortType: "smallint", IntegerType: "integer", LongType: "bigint"},
    holds={"int2": 5, "int4": 10, "int8": 19},
    others=(
        ((BooleanType,), ColumnType("boolean", frozenset({"bool"}))),
        ((FloatType,), ColumnType("real", frozenset({"float4"}))),
        ((DoubleType,), ColumnType("double precision", frozenset({"float8"}))),
        (TEXTS, ColumnType("text", frozenset({"text", "varchar", "citext", "jsonb", "uuid"}))),
        (NESTED, ColumnType("jsonb", frozenset({"jsonb"}))),
        ((BinaryType,), ColumnType("bytea", frozenset({"bytea"}))),
        ((DateType,), ColumnType("date", frozenset({"date"}))),
        ((TimestampType,), ColumnType("timestamp with time zone", frozenset({"timestamptz"}))),
        ((TimestampNTZType,), ColumnType("timestamp without time zone", frozenset({"timestamp"}))),
    ),
)

_STAGED = Identifier("millrace_staged")
_PART, _ROW, _REMOVED = Identifier(dialect.PART), Identifier(dialect.ROW), Identifier(dialect.REMOVED)

_MARKS: Mapping[str, str] = MappingProxyType({ADMITTED: "boolean", WEIGHT: "bigint"})
"""Types of the columns that say whether a row is there, or how often it is added or removed."""


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


def column_type(kind: DataType) -> ColumnType | None:
    """Return the types of a table's column for a result's type; None if no column holds it."""
    return _TYPES.of(kind)


def lines(results: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return the results as the column ``LINE``, each row with a line break at its end."""
    fields = [F.coalesce(_text(results, name), F.lit("\\N")) for name in columns]
    return results.select(F.concat(F.concat_ws("\t", *fields), F.lit("\n")).alias(LINE))


def _text(results: DataFrame, name: str) -> Column:
    column, kind = named(name), results.schema[name].dataType
    if isinstance(kind, NESTED):
        return _escaped(F.to_json(column, JSON))
    if isinstance(kind, TEXTS):
        return _escaped(column)
    if isinstance(kind, BinaryType):
        return F.concat(F.lit("\\\\x"), F.hex(column))
    if isinstance(kind, TimestampType):
        return _dated(column, F.lit("+00"))
    if isinstance(kind, TimestampNTZType | DateType):
        return _dated(column, F.lit(""))
    return column.cast("string")


def _escaped(column: Column) -> Column:
    return reduce(lambda text, escape: F.replace(text, F.lit(escape[0]), F.lit(escape[1])), _ESCAPES, column)


def _dated(column: Column, zone: Column) -> Column:
    """Return the text of a time: Spark signs years before 0 and after 9999, and has a year 0, which is 1 BC."""
    text, year = column.cast("string"), F.year(column)
    rest = F.regexp_extract(text, r"^[+-]?\d+(-.*)$", 1)
    before = F.concat(F.format_string("%04d", 1 - year), rest, zone, F.lit(" BC"))
    after = F.concat(F.ltrim(text, F.lit("+")), zone)
    return F.when(year < 1, before).otherwise(after)


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
