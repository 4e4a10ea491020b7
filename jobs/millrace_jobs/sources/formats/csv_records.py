"""Decoding of CSV text to Arrow.

The dialect is Spark's default with RFC 4180 quoting. The quote character is ``"``. A quote inside quotes is doubled
(or has a backslash before it, as Spark writes it). An empty field is NULL in every type, quoted or not. Blank lines
are skipped. Spaces belong to the value, but numbers and dates may have spaces around them. A record is one line.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.csv

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.sources.formats.columns import stored_type, to_declared
from millrace_jobs.sources.formats.schema import spark_type

_TRUE, _FALSE = ["true", "True", "TRUE"], ["false", "False", "FALSE"]
_FIELD_COUNT = re.compile(r"Expected (\d+) columns?, got (\d+)")
_CONVERSION = re.compile(r"In CSV column #(\d+): (?:Row #\d+: )?(?:CSV conversion error to [^:]+: )?(.*)", re.DOTALL)


def header_columns(line: bytes, schema: pa.Schema, delimiter: str, path: str) -> list[str]:
    """Return the column names in a header line. Raises MillraceError unless it has each schema column exactly once."""
    try:
        names = next(csv.reader([line.decode().rstrip("\r\n")], delimiter=delimiter))
    except UnicodeDecodeError as error:
        raise MillraceError(Problem(f"the header is not UTF-8: {error.reason}", "", path, 1)) from None
    missing = [name for name in schema.names if name not in names]
    repeated = [name for name in schema.names if names.count(name) > 1]
    if missing:
        message = f"the header has no column {', '.join(missing)}; it has {', '.join(names)}"
        raise MillraceError(Problem(message, "correct the schema, the delimiter, or set header: false", path, 1))
    if repeated:
        message = f"the header has the column {', '.join(repeated)} more than once"
        raise MillraceError(Problem(message, "name the column once", path, 1))
    return names


class CsvParser:
    """Parser of whole lines of CSV.

    ``file_columns`` are the names of the fields of a line, in order; fields that are not in ``schema`` are ignored.
    """

    def __init__(self, schema: pa.Schema, file_columns: Sequence[str], delimiter: str, timestamp_format: str) -> None:
        self._schema = schema
        self._timestamp_format = timestamp_format
        # Arrow requires unique names, and ignored columns may share one.
        self._names = [name if name in schema.names else f"ignored {i}" for i, name in enumerate(file_columns)]
        stored = {field.name: stored_type(field.type, timestamp_format) for field in schema}
        self._nulls = b'\n""' + delimiter.encode() * (len(self._names) - 1)
        self._parse_options = pa.csv.ParseOptions(delimiter=delimiter)
        self._convert_options = pa.csv.ConvertOptions(
            column_types=stored,
            include_columns=schema.names,
            null_values=[""],
            true_values=_TRUE,
            false_values=_FALSE,
            strings_can_be_null=True,
        )

    def parse(self, text: bytes) -> pa.RecordBatch:
        """Return all records of ``text``. Raises ValueError if any of them is bad."""
        if b"\r" in text and text.count(b"\r") != text.count(b"\r\n") + text.endswith(b"\r"):
            raise ValueError("a carriage return inside the line")  # Arrow would end the line there
        quoted = b'"' in text
        if quoted:
            # Arrow closes a quote left open at the end. This record of NULLs then disappears into the value.
            text = text.replace(b'\\"', b'""') + self._nulls
        table = pa.csv.read_csv(
            pa.BufferReader(text),
            pa.csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=self._names),
            self._parse_options,
            self._convert_options,
        ).combine_chunks()
        columns = [
            to_declared(table.column(i).combine_chunks(), field, self._timestamp_format)
            for i, field in enumerate(self._schema)
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        return batch[:-1] if quoted else batch

    def explain(self, error: ValueError) -> str:
        """Return what is wrong with a record, given the error from parsing it alone."""
        message = str(error)
        if match := _FIELD_COUNT.search(message):
            return f"{match[2]} fields where {match[1]} are expected"
        if match := _CONVERSION.match(message):
            field = self._schema.field(self._names[int(match[1])])
            return f"column {field.name} ({spark_type(field.type)}): {match[2]}"
        return message
