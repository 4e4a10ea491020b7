"""A table or a query of a database that is read as a whole.

The server writes rows as CSV, which it produces as they are taken, so that only those of a block are in memory beside
the result; Arrow parses them, so that no value passes through Python.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.databases import DatabaseSourceSpec
from millrace_jobs.databases.connection import DatabaseConnection
from millrace_jobs.sources.formats.column_types import is_nested, spark_type
from millrace_jobs.sources.formats.text_conversions import decimals
from millrace_jobs.sources.static_tables import TableRead, source_error

_BLOCK_BYTES = 4 << 20  # size of the text that is parsed at once
_BYTE_ORDER_MARK = "\ufeff".encode()  # what Arrow's reader drops at the beginning of a text, and no later one
_VALUE = re.compile(r"In CSV column #(\d+): (?:Row #\d+: )?(?:CSV conversion error to [^:]*: )?(.*)", re.DOTALL)


class ServerType(NamedTuple):
    """A type of the database: its name in the tables of types, and as messages name it."""

    name: str
    shown: str


class DatabaseTable(ABC):
    """The rows of a table or a query. Raises MillraceError if no column of the database is read as one of these.

    Args:
        name: name of the source.
        spec: the server, and what to read.
        schema: the columns to read, by their names in the database.
        connection: the server.
    """

    nested_as_text: str
    """Expression with the text of a column ``{}`` that has an array or several fields."""

    def __init__(self, name: str, spec: DatabaseSourceSpec, schema: pa.Schema, connection: DatabaseConnection) -> None:
        self._name, self._schema = name, schema
        self._field = f"spec.sources.{name}"
        self._connection = connection
        self._what = f"table {spec.table}" if spec.table is not None else "the result of the query"
        self._require_single_values()

    def read(self, known: str | None) -> TableRead:
        """Return the rows, which are read as they are taken."""
        return TableRead(None, self._rows())

    @abstractmethod
    def _rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one state of the database."""

    def _require_single_values(self) -> None:
        nested = next((each for each in self._schema if is_nested(each.type)), None)
        if nested is not None:
            message = f"column {nested.name} is {spark_type(nested.type)}, which no column of {self._connection.server}"
            text = self.nested_as_text.format(nested.name)
            hint = f"declare it STRING, and select text, such as {text} AS {nested.name}"
            raise self._error(f"{message} is read as", hint)

    def _require_held(
        self,
        column: pa.Field,
        kind: ServerType,
        holds: Mapping[str, tuple[str, ...]],
        written: Mapping[str, str],
        *,
        is_text: bool,
    ) -> None:
        """Check that a declared type holds all values of a column.

        ``holds`` are the server's types whose values each declared type has without loss, ``written`` what to declare
        for a type of the server, and ``is_text`` whether the server's values can be a STRING.
        """
        declared = spark_type(column.type)
        if declared == "STRING" and is_text:
            return
        if kind.name not in holds.get(declared.partition("(")[0], ()):
            message = f"column {column.name} of {self._what} is {kind.shown}, which {declared} cannot hold without loss"
            hint = f"declare it {written.get(kind.name, 'STRING')} in schema, or cast it in a query"
            raise self._error(message, hint)

    def _blocks(self, rows: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
        """Yield what rows of CSV say, a block at a time."""
        block, size = [], 0
        for row in rows:
            block.append(row)
            size += len(row)
            if size >= _BLOCK_BYTES:
                yield self._parsed(b"".join(block))
                block, size = [], 0
        if block:
            yield self._parsed(b"".join(block))

    def _parsed(self, text: bytes) -> pa.RecordBatch:
        text = _BYTE_ORDER_MARK + text  # a first value may begin with one
        names = self._schema.names
        decoded = [
            each.name for each in self._schema if pa.types.is_binary(each.type) or pa.types.is_decimal(each.type)
        ]
        stored = {each.name: pa.string() if each.name in decoded else each.type for each in self._schema}
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
            found = _VALUE.search(str(error))
            if found is None:
                raise self._error(f"{self._what} cannot be read: {error}", "select other values in a query") from None
            raise self._misfit(self._schema.field(int(found[1])), " ".join(found[2].split())) from None
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
        return decimals(values, column.type)

    def _misfit(self, column: pa.Field, detail: str) -> MillraceError:
        message = f"column {column.name} of {self._what} has a value that {spark_type(column.type)} cannot hold"
        hint = "declare another type in schema, or cast or exclude such values in a query"
        return self._error(f"{message} ({detail})", hint)

    def _error(self, message: str, hint: str) -> MillraceError:
        return source_error(Problem(f"source {self._name}: {message}", hint, field=f"{self._field}.schema"))
