"""A table or a query of PostgreSQL that is read as a whole.

One transaction sees one state of the database. Rows come by COPY, which the server produces as they are taken, so that
only those of a block are in memory beside the result; Arrow parses them, so that no value passes through Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final, NamedTuple

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg.sql import SQL, Composed, Identifier
from pyarrow import csv

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.postgres import PostgresSourceSpec
from millrace_api.model.status import FailureClass
from millrace_jobs.postgres.connection import PostgresConnection, Session, time_limit
from millrace_jobs.postgres.errors import postgres_problem
from millrace_jobs.sources.formats import decimal_texts
from millrace_jobs.sources.formats.column_types import TIMESTAMP, spark_type
from millrace_jobs.sources.formats.nested_columns import is_nested
from millrace_jobs.sources.static_tables import TableRead

_BLOCK_BYTES = 4 << 20
"""Size of the text that is parsed at once."""

_BYTE_ORDER_MARK = "\ufeff".encode()
"""What Arrow's reader drops at the beginning of a text, and no later one."""

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

_VALUE = re.compile(r"In CSV column #(\d+): (?:Row #\d+: )?(?:CSV conversion error to [^:]*: )?(.*)", re.DOTALL)

_TYPES = """
SELECT oid::bigint, typname, typcategory, format_type(oid, NULL) FROM pg_catalog.pg_type WHERE oid = ANY(%s::oid[])
"""


class _ServerType(NamedTuple):
    """A type of PostgreSQL: its name in the catalog, its category, and its name in SQL."""

    name: str
    category: str
    shown: str


class PostgresTable:
    """The rows of a table or a query.

    Args:
        name: name of the source.
        spec: the server, and what to read.
        schema: the columns to read, by their names in the database.

    Raises:
        MillraceError: no column of PostgreSQL is read as one of these.
    """

    def __init__(self, name: str, spec: PostgresSourceSpec, schema: pa.Schema) -> None:
        self._name, self._schema = name, schema
        self._field = f"spec.sources.{name}"
        self._connection = PostgresConnection.of(spec, f"{self._field}.postgres")
        self._what = f"table {spec.table}" if spec.table is not None else "the result of the query"
        self._relation = _relation(spec)
        self._require_single_values()

    def read(self, known: str | None) -> TableRead:
        """Return the rows, which are read as they are taken."""
        return TableRead(None, self._rows())

    def _require_single_values(self) -> None:
        nested = next((each for each in self._schema if is_nested(each.type)), None)
        if nested is not None:
            message = f"column {nested.name} is {spark_type(nested.type)}, which no column of PostgreSQL is read as"
            hint = f"declare it STRING, and select text, such as to_json({nested.name})::text AS {nested.name}"
            raise self._error(message, hint)

    def _rows(self) -> Iterator[pa.RecordBatch]:
        try:
            with closing(self._connection.open(reads=True)) as session, time_limit(session):
                session.execute(_BEGIN)
                yield from self._copied(session, self._types(session))
        except psycopg.Error as error:
            raise postgres_problem(error, f"reading {self._what}", self._connection, reads=True) from error

    def _types(self, session: Session) -> list[_ServerType]:
        """Return the database's types of the columns, all of which can be read."""
        # in binary form, a text with several commands is refused
        columns = SQL(", ").join(map(Identifier, self._schema.names))
        cursor = session.execute(SQL("SELECT {} FROM {} LIMIT 0").format(columns, self._relation), binary=True)
        numbers = [each.type_code for each in cursor.description or ()]
        found = {row[0]: _ServerType(*row[1:]) for row in session.execute(_TYPES, (numbers,))}
        types = [found[number] for number in numbers]
        for column, kind in zip(self._schema, types, strict=True):
            self._require_held(column, kind)
        return types

    def _require_held(self, column: pa.Field, kind: _ServerType) -> None:
        declared = spark_type(column.type)
        what = f"column {column.name} of {self._what} is {kind.shown}"
        if kind.category in _WITHOUT_TEXT:
            hint = f"select its text in a query, such as to_json({column.name})::text AS {column.name}"
            raise self._error(f"{what}, whose values are none of single columns", hint)
        if declared == "STRING" and kind.name != "bytea":
            return
        if kind.name not in _HOLDS.get(declared.partition("(")[0], ()):
            hint = f"declare it {_WRITTEN.get(kind.name, 'STRING')} in schema, or cast it in a query"
            raise self._error(f"{what}, which {declared} cannot hold without loss", hint)

    def _copied(self, session: Session, types: Sequence[_ServerType]) -> Iterator[pa.RecordBatch]:
        columns = SQL(", ").join(
            _text_of(Identifier(column.name), kind, column.type)
            for column, kind in zip(self._schema, types, strict=True)
        )
        command = SQL("COPY (SELECT {} FROM {}) TO STDOUT (FORMAT csv)").format(columns, self._relation)
        with session.cursor() as cursor, cursor.copy(command) as copied:
            block, size = [], 0
            for row in copied:  # each message is one row
                block.append(bytes(row))
                size += len(block[-1])
                if size >= _BLOCK_BYTES:
                    yield self._parsed(b"".join(block))
                    block, size = [], 0
            if block:
                yield self._parsed(b"".join(block))

    def _parsed(self, text: bytes) -> pa.RecordBatch:
        text = _BYTE_ORDER_MARK + text  # a first value may begin with one
        names = self._schema.names
        stored = {each.name: pa.string() if _is_decoded(each.type) else each.type for each in self._schema}
        try:
            table = csv.read_csv(
                pa.BufferReader(text),
                csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=names),
                csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
                csv.ConvertOptions(
                    column_types=stored,
                    null_values=[""],
                    true_values=["t"],
                    false_values=["f"],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid as error:
            raise self._value_error(error) from None
        pairs = zip(self._schema, table.columns, strict=True)
        arrays = [self._decoded(each, column.combine_chunks()) for each, column in pairs]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _decoded(self, column: pa.Field, values: pa.Array) -> pa.Array:
        """Return the values of a column; those that Arrow's reader does not make are still text."""
        if pa.types.is_binary(column.type):
            return pa.array([None if text is None else bytes.fromhex(text) for text in values.to_pylist()], pa.binary())
        if not pa.types.is_decimal(column.type):
            return values
        # Arrow's reader takes 12345 for a DECIMAL(5,2)
        digits, scale = column.type.precision - column.type.scale, column.type.scale
        fits = pc.match_substring_regex(values, rf"^-?0*[0-9]{{0,{digits}}}(?:\.[0-9]{{0,{scale}}}0*)?$")
        others = values.filter(pc.invert(fits))
        if len(others):
            raise self._misfit(column, f"invalid value '{others[0]}'")
        return decimal_texts.decimals(values, column.type)

    def _value_error(self, error: pa.ArrowInvalid) -> MillraceError:
        found = _VALUE.search(str(error))
        if found is None:
            return self._error(f"{self._what} cannot be read: {error}", "select other values in a query")
        return self._misfit(self._schema.field(int(found[1])), " ".join(found[2].split()))

    def _misfit(self, column: pa.Field, detail: str) -> MillraceError:
        message = f"column {column.name} of {self._what} has a value that {spark_type(column.type)} cannot hold"
        hint = "declare another type in schema, or cast or exclude such values in a query"
        return self._error(f"{message} ({detail})", hint)

    def _error(self, message: str, hint: str) -> MillraceError:
        error = MillraceError(Problem(f"source {self._name}: {message}", hint, field=f"{self._field}.schema"))
        error.failure = FailureClass.SOURCE
        return error


def _relation(spec: PostgresSourceSpec) -> Composed:
    if spec.table is not None:
        return SQL("{}").format(Identifier(*spec.table.split(".")))
    text = (spec.query or "").strip().rstrip(";")
    # a comment at its end must not hide the bracket
    return SQL("({}\n) AS source").format(SQL(text))


def _text_of(column: Identifier, kind: _ServerType, declared: pa.DataType) -> Composed:
    """Return the expression whose text COPY writes; a TIMESTAMP without a zone is in UTC, as in files."""
    if kind.name == "timestamp" and declared == TIMESTAMP:
        return SQL("{} AT TIME ZONE 'UTC'").format(column)
    if kind.name == "bytea":
        return SQL("encode({}, 'hex')").format(column)
    return SQL("{}").format(column)


def _is_decoded(kind: pa.DataType) -> bool:
    """Return whether values of a type are decoded from text here."""
    return bool(pa.types.is_binary(kind) or pa.types.is_decimal(kind))
