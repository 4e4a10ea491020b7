"""A table or a query of PostgreSQL that is read as a whole: in one transaction, by COPY."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final

import psycopg
import pyarrow as pa
from psycopg.sql import SQL, Composed, Identifier

from millrace_api.model.postgres import PostgresSourceSpec
from millrace_jobs.databases.connection import time_limit
from millrace_jobs.databases.postgres import PostgresConnection, PostgresSession, postgres_problem
from millrace_jobs.sources.database_table import DatabaseTable, ServerType
from millrace_jobs.sources.formats.column_types import TIMESTAMP

_BEGIN = "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"

_HOLDS: Final = {
    "BOOLEAN": ("bool",),
    "SMALLINT": ("int2",),
    "INT": ("int2", "int4"),
    "BIGINT": ("int2", "int4", "int8"),
    "FLOAT": ("float4",),
    "DOUBLE": ("float4", "float8", "int2", "int4"),
    "DATE": ("date",),
    "TIMESTAMP": ("timestamptz", "timestamp"),
    "BINARY": ("bytea",),
    "DECIMAL": ("numeric", "int2", "int4", "int8"),
}
"""Types of PostgreSQL whose values each type can have without loss; of a DECIMAL, each value is looked at."""

_WRITTEN: Final = {
    "bool": "BOOLEAN",
    "int2": "SMALLINT",
    "int4": "INT",
    "int8": "BIGINT",
    "float4": "FLOAT",
    "float8": "DOUBLE",
    "date": "DATE",
    "timestamptz": "TIMESTAMP",
    "timestamp": "TIMESTAMP",
    "bytea": "BINARY",
    "numeric": "DECIMAL(p,s) with the digits that its values have",
}
"""What to write for a type of PostgreSQL; for any other one, STRING."""

_WITHOUT_TEXT = ("A", "C", "P", "R")
"""Categories of types that are none of single values: arrays, rows, pseudo-types and ranges."""

_TYPES = """
SELECT oid::bigint, typname, typcategory, format_type(oid, NULL) FROM pg_catalog.pg_type WHERE oid = ANY(%s::oid[])
"""


class PostgresTable(DatabaseTable):
    """The rows of a table or a query of PostgreSQL."""

    nested_as_text = "to_json({})::text"

    def __init__(self, name: str, spec: PostgresSourceSpec, schema: pa.Schema) -> None:
        self._server = PostgresConnection.of(spec, f"spec.sources.{name}.postgres")
        self._relation = _relation(spec)
        super().__init__(name, spec, schema, self._server)

    def _rows(self) -> Iterator[pa.RecordBatch]:
        try:
            with closing(self._server.open(reads=True)) as session, time_limit(session):
                session.execute(_BEGIN)
                yield from self._copied(session, self._types(session))
        except psycopg.Error as error:
            raise postgres_problem(error, f"reading {self._what}", self._connection, reads=True) from error

    def _types(self, session: PostgresSession) -> list[ServerType]:
        # in binary form, a text with several commands is refused
        columns = SQL(", ").join(map(Identifier, self._schema.names))
        cursor = session.execute(SQL("SELECT {} FROM {} LIMIT 0").format(columns, self._relation), binary=True)
        numbers = [each.type_code for each in cursor.description or ()]
        found = {row[0]: row[1:] for row in session.execute(_TYPES, (numbers,))}
        for column, (name, category, shown) in zip(self._schema, (found[each] for each in numbers), strict=True):
            if category in _WITHOUT_TEXT:
                message = f"column {column.name} of {self._what} is {shown}, which has no values of a single column"
                text = self.nested_as_text.format(column.name)
                raise self._error(message, f"select its text in a query, such as {text} AS {column.name}")
            self._require_held(column, ServerType(name, shown), _HOLDS, _WRITTEN, is_text=name != "bytea")
        return [ServerType(found[each][0], found[each][2]) for each in numbers]

    def _copied(self, session: PostgresSession, types: Sequence[ServerType]) -> Iterator[pa.RecordBatch]:
        columns = SQL(", ").join(
            _text_of(Identifier(column.name), kind, column.type)
            for column, kind in zip(self._schema, types, strict=True)
        )
        command = SQL("COPY (SELECT {} FROM {}) TO STDOUT (FORMAT csv)").format(columns, self._relation)
        with session.cursor() as cursor, cursor.copy(command) as copied:
            yield from self._blocks(map(bytes, copied))  # each message is one row


def _relation(spec: PostgresSourceSpec) -> Composed:
    if spec.table is not None:
        return SQL("{}").format(Identifier(*spec.table.split(".")))
    text = (spec.query or "").strip().rstrip(";")
    # a comment at its end must not hide the bracket
    return SQL("({}\n) AS source").format(SQL(text))


def _text_of(column: Identifier, kind: ServerType, declared: pa.DataType) -> Composed:
    """Return the expression whose text COPY writes; a TIMESTAMP without a zone is in UTC, as in files."""
    if kind.name == "timestamp" and declared == TIMESTAMP:
        return SQL("{} AT TIME ZONE 'UTC'").format(column)
    if kind.name == "bytea":
        return SQL("encode({}, 'hex')").format(column)
    return SQL("{}").format(column)
