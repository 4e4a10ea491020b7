"""Files of records in CSV, JSON lines or Parquet behind one interface, which reads any range of a file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import IO, Protocol

import pyarrow as pa

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.sources.formats.columns import TIMESTAMP_FORMATS
from millrace_jobs.sources.formats.csv_records import CsvParser, header_columns
from millrace_jobs.sources.formats.decoding import BadRecord, Parser, decode
from millrace_jobs.sources.formats.json_records import JsonParser
from millrace_jobs.sources.formats.parquet_files import ParquetFormat
from millrace_jobs.sources.formats.text_files import (
    blocks,
    count_lines,
    first_byte,
    first_line,
    is_compressed,
    open_text,
)

MAX_ROWS = 131_072
"""The maximum number of records in one record batch."""

RejectIn = Callable[[str, BadRecord], None]
"""Handler that leaves out a bad record of the file at a path, or raises, as the policy requires."""


class FormatReader(Protocol):
    """A reader of one file format. ``begin`` and ``end`` are in the unit of ``extent``."""

    def extent(self, path: str, size: int) -> int:
        """Return the length of a file of ``size`` bytes: in bytes for text, in rows for Parquet."""
        ...

    def divisible(self, path: str) -> bool:
        """Return whether a range of the file can be read without the data before it."""
        ...

    def check(self, path: str) -> None:
        """Check the columns that the file declares. Raises MillraceError if a column of the schema is missing."""
        ...

    def read(self, path: str, begin: int, end: int, reject: RejectIn) -> Iterator[pa.RecordBatch]:
        """Yield the records that begin in ``[begin, end)``, at most MAX_ROWS per batch. Raises MillraceError."""
        ...


def file_format(
    name: str, schema: pa.Schema, *, header: bool = True, delimiter: str = ",", timestamp_format: str = "iso"
) -> FormatReader:
    """Return the format called ``name``. Raises MillraceError if the format is unknown or an option is invalid."""
    if timestamp_format not in TIMESTAMP_FORMATS:
        raise MillraceError(
            Problem(
                f"timestampFormat {timestamp_format!r} is unknown",
                f"write one of {', '.join(TIMESTAMP_FORMATS)}",
            )
        )
    if name == "csv":
        if len(delimiter.encode()) != 1 or delimiter in '"\\\r\n':
            raise MillraceError(
                Problem(f"delimiter {delimiter!r} cannot be used", "write one character such as , or |")
            )
        return TextFormat(schema, timestamp_format, header, delimiter)
    if name == "json":
        return TextFormat(schema, timestamp_format)
    if name == "parquet":
        return ParquetFormat(schema, timestamp_format, MAX_ROWS)
    raise MillraceError(Problem(f"format {name!r} is unknown", "write csv, json or parquet"))


@dataclass(frozen=True)
class TextFormat:
    """A reader of CSV lines, or of JSON lines if ``delimiter`` is empty.

    A line break always ends a record: quoted line breaks in CSV are not supported.
    """

    schema: pa.Schema
    timestamp_format: str
    header: bool = False
    delimiter: str = ""

    def extent(self, path: str, size: int) -> int:
        """Return the bytes of the file, compressed or not."""
        return size

    def divisible(self, path: str) -> bool:
        """Return whether the file is uncompressed."""
        return not is_compressed(path)

    def check(self, path: str) -> None:
        """Check the header of a CSV file; JSON has no header."""
        with open_text(path) as stream:
            self._parser(stream, path)

    def read(self, path: str, begin: int, end: int, reject: RejectIn) -> Iterator[pa.RecordBatch]:
        """Yield the records on lines that begin in the range; a compressed file is always read to its end."""
        if not self.divisible(path):
            end = sys.maxsize
        with open_text(path) as stream:
            parser, first = self._parser(stream, path)
            lines = _LineNumbers(path, reject)
            for offset, block in blocks(stream, path, first, begin, end):
                records = decode(parser, self.schema, block, lines.at(offset).reject)
                for row in range(0, records.num_rows, MAX_ROWS):
                    yield records.slice(row, MAX_ROWS)

    def _parser(self, stream: IO[bytes], path: str) -> tuple[Parser, int]:
        """Return the parser for this file, and the byte at which its records begin."""
        if not self.delimiter:
            return JsonParser(self.schema, self.timestamp_format), first_byte(stream)
        columns, first = self.schema.names, 0
        if self.header:
            line, first = first_line(stream, path)
            if line:
                columns = header_columns(line, self.schema, self.delimiter, path)
        else:
            first = first_byte(stream)
        return CsvParser(self.schema, columns, self.delimiter, self.timestamp_format), first


class _LineNumbers:
    """Conversion of line numbers from block to file; lines are counted only when a bad record turns up."""

    def __init__(self, path: str, reject: RejectIn) -> None:
        self._path = path
        self._reject = reject
        self._block = 0
        self._counted = (0, 0)

    def at(self, offset: int) -> _LineNumbers:
        """Move on to the block at ``offset``."""
        self._block = offset
        return self

    def reject(self, bad: BadRecord) -> None:
        """Reject a record whose line number counts from the beginning of the block."""
        offset, lines = self._counted
        if offset < self._block:
            self._counted = (self._block, lines + count_lines(self._path, offset, self._block))
        self._reject(self._path, replace(bad, line=bad.line + self._counted[1]))
