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

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import chain
from typing import cast

import psycopg
import pyarrow as pa
from psycopg import errors
from psycopg.sql import Identifier, Literal
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional name
from pyspark.sql import types as T  # noqa: N812 - the conventional name
from pyspark.sql.types import DataType

from millrace_api.errors import MillraceError
from millrace_jobs.changes import WEIGHT
from millrace_jobs.databases.connection import Session, time_limit
from millrace_jobs.databases.postgres import PostgresSession, is_conflict, postgres_problem
from millrace_jobs.sinks.base import ADMITTED, named
from millrace_jobs.sinks.databases.dialect import (
    JSON,
    NESTED,
    PART,
    REMOVED,
    ROW,
    TEXTS,
    ColumnType,
    ColumnTypes,
    Dialect,
    FoundTable,
    Staging,
    TableColumn,
    TargetTable,
    texts,
)

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

_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))

_TYPES = ColumnTypes(
    decimal="numeric",
    integers={T.ByteType: "smallint", T.ShortType: "smallint", T.IntegerType: "integer", T.LongType: "bigint"},
    holds={"int2": 5, "int4": 10, "int8": 19},
    others=(
        ((T.BooleanType,), ColumnType("boolean", frozenset({"bool"}))),
        ((T.FloatType,), ColumnType("real", frozenset({"float4"}))),
        ((T.DoubleType,), ColumnType("double precision", frozenset({"float8"}))),
        (TEXTS, ColumnType("text", frozenset({"text", "varchar", "citext", "jsonb", "uuid"}))),
        (NESTED, ColumnType("jsonb", frozenset({"jsonb"}))),
        ((T.BinaryType,), ColumnType("bytea", frozenset({"bytea"}))),
        ((T.DateType,), ColumnType("date", frozenset({"date"}))),
        ((T.TimestampType,), ColumnType("timestamp with time zone", frozenset({"timestamptz"}))),
        ((T.TimestampNTZType,), ColumnType("timestamp without time zone", frozenset({"timestamp"}))),
    ),
)


_MARKS = {ADMITTED: "boolean", WEIGHT: "bigint"}
"""Types of the columns that say whether a row is there, or how often it is added or removed."""


class PostgresDialect(Dialect):
    """PostgreSQL, 12 or later."""

    error = psycopg.Error
    insert_if_missing = "INSERT INTO {rest} ON CONFLICT DO NOTHING"
    changed_type = "ALTER {name} TYPE {type}"
    without_null = "ALTER {name} SET NOT NULL"

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
        """Return whether a table could not be created because another session has just done so.

        As far as the other session is, PostgreSQL finds the table, its row type, or their rows in the catalog.
        """
        return isinstance(error, errors.UniqueViolation | errors.DuplicateTable | errors.DuplicateObject)

    def quoted(self, *names: str) -> str:
        """Return a name, or names joined by dots, for a statement without values."""
        return Identifier(*names).as_string()

    def literal(self, text: str) -> str:
        """Return a text for a statement."""
        return Literal(text).as_string()

    def column_type(self, kind: DataType) -> ColumnType | None:
        """Return the types of a table's column for a result's type; None if no column holds it."""
        return _TYPES.of(kind)

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

    def batches(self, session: Session, table: str) -> tuple[bool, str]:
        """Return whether the table of batches exists, and the command that creates it."""
        exists = session.execute("SELECT to_regclass(%s)", [table]).fetchone() != (None,)
        return exists, _BATCHES.format(table)

    def encoded(self, results: DataFrame, columns: Sequence[str], mark: str | None) -> DataFrame:
        """Return the results as lines for COPY."""
        fields = [F.coalesce(_text(results, name), F.lit("\\N")) for name in columns]
        return results.select(F.concat(F.concat_ws("\t", *fields), F.lit("\n")).alias("line"))

    def staging(self, table: TargetTable, mark: str | None) -> PostgresStaging:
        """Return what stages the results for a table."""
        return PostgresStaging(self, table, mark)


def _column(
    name: str, type: str, base: str, modifier: int, not_null: bool, has_default: bool, generated: bool
) -> TableColumn:
    digits = None
    if base == "numeric" and modifier >= 0:
        precision, scale = (modifier - 4) >> 16 & 0xFFFF, (modifier - 4) & 0x7FF
        digits = (precision - scale, scale)
    return TableColumn(name, type, base, digits, not_null, has_default, generated, staged=type)


def _text(results: DataFrame, name: str) -> Column:
    column, kind = named(name), results.schema[name].dataType
    if isinstance(kind, NESTED):
        return _escaped(F.to_json(column, JSON))
    if isinstance(kind, TEXTS):
        return _escaped(column)
    if isinstance(kind, T.BinaryType):
        return F.concat(F.lit("\\\\x"), F.hex(column))
    if isinstance(kind, T.TimestampType):
        return _dated(column, F.lit("+00"))
    if isinstance(kind, T.TimestampNTZType | T.DateType):
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


class PostgresStaging(Staging):
    """Results in a temporary table of the session, from where one statement merges them."""

    staged = "millrace_staged"

    def create(self, session: Session) -> None:
        """Create the temporary table."""
        columns = [f"{self.quoted(name)} {kind}" for name, kind in zip(self.columns, self.types, strict=True)]
        columns += [] if self.mark is None else [f"{self.mark} {_MARKS[self.mark]}"]
        columns += [f"{PART} integer", f"{ROW} bigint GENERATED ALWAYS AS IDENTITY"]
        session.execute(f"CREATE TEMPORARY TABLE {self.staged} ({', '.join(columns)})")

    def fill(self, session: Session, batches: Iterator[pa.RecordBatch]) -> None:
        """Copy the results into the temporary table as they come."""
        first = next(batches, None)  # no transaction is open while Spark computes
        if first is None:
            return
        columns = self.listed([*self.columns, *([] if self.mark is None else [self.mark]), PART])
        command = f"COPY {self.staged} ({columns}) FROM STDIN".encode()
        postgres = cast(PostgresSession, session)
        with postgres.transaction(), postgres.cursor() as cursor:
            cursor.execute("SET LOCAL statement_timeout = 0")  # lasts as long as Spark computes
            with cursor.copy(command) as copy:
                for batch in chain([first], batches):
                    with time_limit(session):
                        copy.write(texts(batch)[0])

    def merge(self, session: Session) -> int:
        """Bring the staged rows into the table, and return the number of rows that were inserted or replaced."""
        return session.execute(self._merge if self.key else self.append).rowcount

    @property
    def net(self) -> str:
        """Selects the staged rows with the sum of their weights, without rows whose weights cancel each other out."""
        sums = f"SELECT {self.listed(self.columns)}, sum({WEIGHT}) AS {WEIGHT} FROM {self.staged}"
        return f"{sums} GROUP BY {self.listed(self.columns)} HAVING sum({WEIGHT}) <> 0"

    @property
    def _merge(self) -> str:
        columns, key = self.listed(self.columns), self.listed(self.key)
        rows, removed, last_first = self.latest
        # sorted by key, as all writers lock their rows
        last = f"SELECT DISTINCT ON ({key}) {columns}, {removed} AS {REMOVED} FROM {rows} ORDER BY {key}, {last_first}"
        steps = [f"latest AS MATERIALIZED ({last})"]
        if self.mark is not None:
            same = " AND ".join(f"kept.{name} = latest.{name}" for name in map(self.quoted, self.key))
            delete = f"DELETE FROM {self.table} AS kept USING latest WHERE latest.{REMOVED} AND {same}"
            steps.append(f"gone AS ({delete})")
        changes = ", ".join(f"{name} = excluded.{name}" for name in self.others)
        insert = f"INSERT INTO {self.table} ({columns}) SELECT {columns} FROM latest WHERE NOT {REMOVED}"
        update = f"UPDATE SET {changes}" if changes else "NOTHING"
        return f"WITH {', '.join(steps)} {insert} ON CONFLICT ({key}) DO {update}"
