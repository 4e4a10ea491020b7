"""Parser of CSV: whole lines become columns of the declared types, all or nothing; and what all text formats share."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.csv

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.sources.formats.column_types import (
    TIMESTAMP,
    require_exact,
    stored_type,
    time_format,
    to_declared,
)
from millrace_jobs.sources.formats.csv_records import CsvQuotes
from millrace_jobs.sources.formats.decoding import Layout
from millrace_jobs.sources.formats.nested_columns import leaves_of
from millrace_jobs.sources.formats.text_values import from_text

_CSV_FIELDS = re.compile(r"Expected (\d+) columns?, got (\d+)")
IN_UTF8 = "write it in UTF-8, as iconv -f LATIN1 -t UTF-8 does with a file"
_OTHER_DELIMITERS = ";\t|,"


class CsvParser:
    """Parser of records of CSV in the dialect of RFC 4180; where they end and how they are quoted says ``CsvQuotes``.

    An empty field is NULL. With quotes, it is the empty string in a STRING or BINARY, and NULL in other types. Spaces
    belong to the value, but numbers, dates and times may have spaces around them.

    ``file_columns`` are the names of the fields of a record, in order; fields that are not in ``schema`` are ignored.
    """

    def __init__(self, schema: pa.Schema, file_columns: Sequence[str], delimiter: str, timestamp_format: str) -> None:
        self._schema = schema
        self._timestamp_format = timestamp_format
        self._delimiter = delimiter
        # Arrow requires unique names, and ignored columns may share one.
        self._names = [name if name in schema.names else f"\0{i}" for i, name in enumerate(file_columns)]
        formats = [time_format(field, timestamp_format) for field in schema]
        self._converting = self._convert_options(list(map(stored_type, schema.types, formats)))
        self._as_text = self._convert_options([_text_type(field.type) for field in schema])
        self._has_integers = any(pa.types.is_integer(field.type) for field in schema)
        self.quotes = CsvQuotes(delimiter)

    def layout(self, block: bytes) -> Layout:
        """Return where the records of ``block`` are."""
        return self.quotes.layout(block)

    def parse(self, text: bytes) -> pa.RecordBatch:
        """Return all records of ``text``. Raises ValueError if any of them is bad."""
        if not (self._has_integers and _may_be_hexadecimal(text)):  # which Arrow takes for an integer
            try:
                table = self._read(text, self._converting)
                return declared_batch(table, self._schema, self._timestamp_format)
            except ValueError:
                pass
        # A value is bad, or is spelled in a way that Arrow does not convert.
        table = self._read(text, self._as_text)
        columns = [from_text(single_array(table, field.name), field, self._timestamp_format) for field in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def explain(self, error: ValueError, text: bytes) -> str:
        """Return what is wrong with a record, given its text and the error from parsing it alone."""
        message = str(error)
        if match := _CSV_FIELDS.search(message):
            found, expected = int(match[2]), int(match[1])
            said = f"{found} field{'s' * (found != 1)} where {expected} are expected"
            for other in _OTHER_DELIMITERS.replace(self._delimiter, ""):
                if text.count(other.encode()) == expected - 1:
                    return f"{said}: set delimiter: {json.dumps(other)}"
            return said
        if "invalid UTF8 data" in message:
            return f"the text is not UTF-8: {IN_UTF8}"
        return message

    def _convert_options(self, types: Sequence[pa.DataType]) -> pa.csv.ConvertOptions:
        return pa.csv.ConvertOptions(
            column_types=dict(zip(self._schema.names, types, strict=True)),
            include_columns=self._schema.names,
            null_values=[""],
            true_values=["true", "True", "TRUE"],
            false_values=["false", "False", "FALSE"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=not any(_text_type(field.type) == field.type for field in self._schema),
        )

    def _read(self, text: bytes, converting: pa.csv.ConvertOptions) -> pa.Table:
        reading = pa.csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=self._names)
        # Made here, since pickled options complain about each row that they refuse.
        parsing = pa.csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True)
        return pa.csv.read_csv(pa.BufferReader(text), reading, parsing, converting)


def _text_type(declared: pa.DataType) -> pa.DataType:
    """Return the type that takes a column's text as it is."""
    return declared if pa.types.is_binary(declared) else pa.string()


def _may_be_hexadecimal(text: bytes) -> bool:
    """Return whether ``0x`` is anywhere in the text; its bytes are compared in pairs, which is fast."""
    pairs = [pair for pair in (b"0x", b"0X") if pair[1:] in text]
    if not pairs:
        return False
    data = np.frombuffer(text, np.uint8)
    halves = (data[begin : begin + (len(data) - begin) // 2 * 2].view(np.uint16) for begin in (0, 1))
    codes = [np.frombuffer(pair, np.uint16)[0] for pair in pairs]
    return any(bool((half == code).any()) for half in halves for code in codes)


def header_columns(line: bytes, schema: pa.Schema, delimiter: str, path: str, number: int = 1) -> list[str]:
    """Return the column names in a header, which begins on the line ``number`` of its file.

    Raises:
        MillraceError: the line is not CSV in UTF-8, or does not have each column of the schema exactly once.
    """
    try:
        text = line.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        problem = Problem(
            "the header is not UTF-8", "write the file in UTF-8, as iconv -f LATIN1 -t UTF-8 does", path, number
        )
        raise MillraceError(problem) from None
    try:
        names = next(csv.reader([text], delimiter=delimiter))
    except csv.Error as error:
        reason = "it has a carriage return inside the line" if "\r" in text else str(error)
        hint = "end each line with LF or CRLF"
        raise MillraceError(Problem(f"the header is not a line of CSV: {reason}", hint, path, number)) from None
    missing = [name for name in schema.names if name not in names]
    repeated = [name for name in schema.names if names.count(name) > 1]
    if missing:
        message = f"the header has no column {', '.join(missing)}; it has {', '.join(names)}"
        raise MillraceError(Problem(message, _header_hint(text, schema, names, delimiter), path, number))
    if repeated:
        message = f"the header has the column {', '.join(repeated)} more than once"
        raise MillraceError(Problem(message, "name the column once", path, number))
    return names


def _header_hint(text: str, schema: pa.Schema, names: list[str], delimiter: str) -> str:
    """Return what to write where the header lacks a column."""
    if text.startswith("sep=") and len(text) == len("sep=") + 1:
        return f"remove this line, which only Excel knows, and set delimiter: {json.dumps(text[-1])}"
    for other in _OTHER_DELIMITERS.replace(delimiter, ""):
        if set(schema.names) <= set(next(csv.reader([text], delimiter=other))):
            return f"set delimiter: {json.dumps(other)}"
    spelled = {name.strip().lower(): name for name in names}
    if all(name.lower() in spelled for name in schema.names):
        return "write the names in the schema as in the file, where case and blanks count"
    return "correct the schema or the delimiter, or set header: false"


def declared_batch(table: pa.Table, schema: pa.Schema, timestamp_format: str) -> pa.RecordBatch:
    """Return the declared columns of a table. Raises InexactTimesError if times have to be read with all digits."""
    for field in schema:
        for column, part in leaves_of(single_array(table, field.name), field):
            if part.type == TIMESTAMP and pa.types.is_floating(column.type):
                require_exact(column, time_format(part, timestamp_format))
    columns = [to_declared(single_array(table, field.name), field, timestamp_format) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def single_array(table: pa.Table, name: str) -> pa.Array:
    """Return a column as one array."""
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
