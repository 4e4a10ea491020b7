"""Files of records in CSV or JSON lines, of which any range can be read, and the choice of a format by its name.

Ranges that cover a file without overlap yield each record exactly once.
"""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import IO

import pyarrow as pa

from millrace_api.errors import MillraceError, Problem
from millrace_api.sql.schema_ddl import Column, not_in_csv
from millrace_jobs.sources.formats.column_types import is_nested, spark_type
from millrace_jobs.sources.formats.csv_parser import CsvParser, CsvQuotes, header_columns
from millrace_jobs.sources.formats.decoding import BadRecord, Layout, Parser, decode, line_layout
from millrace_jobs.sources.formats.format_reader import (
    MAX_ROWS,
    FormatReader,
    ReaderWithAddedColumns,
    RejectIn,
    path_columns,
    without_event_time,
)
from millrace_jobs.sources.formats.json_parser import JsonParser
from millrace_jobs.sources.formats.parquet_format import ParquetFormat
from millrace_jobs.sources.formats.text_values import TIMESTAMP_FORMATS
from millrace_jobs.sources.stored_files import SIGNATURES, codec_of, decompressed, open_bytes, unreadable

BLOCK_BYTES = 4 << 20
LONGEST_LINE = 64 << 20
"""The maximum bytes of a record. A longer one suggests that the file is not text, and would fill the memory."""

_SIGNATURE = 64
_RECODE = "convert it to UTF-8, for example with iconv -f UTF-16 -t UTF-8"
_NOT_TEXT = {
    codecs.BOM_UTF32_LE: ("UTF-32", "convert it to UTF-8, for example with iconv -f UTF-32 -t UTF-8"),
    codecs.BOM_UTF16_LE: ("UTF-16", _RECODE),
    codecs.BOM_UTF16_BE: ("UTF-16", _RECODE),
    **SIGNATURES,
    b"PK\x03\x04": ("a zip archive or an Excel workbook", "unpack it, or save the workbook as CSV in UTF-8"),
    b"PAR1": ("Parquet", "write format: parquet"),
    b"Obj\x01": ("an Avro file", "convert it to Parquet"),
}
"""What files that are taken for text begin with: what they are, and what to do."""

FORMATS_BY_SUFFIX = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}
"""Format of a file by the suffix of its name; that of a compressed text file may follow."""


def file_format(
    name: str,
    schema: pa.Schema,
    *,
    header: bool = True,
    delimiter: str = ",",
    timestamp_format: str = "iso",
    in_path: Sequence[str] = (),
) -> FormatReader:
    """Return the format called ``name``; the columns ``in_path`` are those of paths.

    Raises MillraceError if the format is unknown, or an option is invalid.
    """
    if timestamp_format not in TIMESTAMP_FORMATS:
        hint = f"write one of {', '.join(TIMESTAMP_FORMATS)}"
        raise MillraceError(Problem(f"timestampFormat {timestamp_format!r} is unknown", hint))
    stored = pa.schema([field for field in without_event_time(schema) if field.name not in in_path])
    if len(stored) < len(schema):
        reader = file_format(name, stored, header=header, delimiter=delimiter, timestamp_format=timestamp_format)
        return ReaderWithAddedColumns(reader, schema, path_columns(schema, in_path, timestamp_format))
    if name == "csv":
        check_delimiter(delimiter)
        require_flat(schema)
        return _TextFormat(schema, timestamp_format, header, delimiter)
    if name == "json":
        return _TextFormat(schema, timestamp_format)
    if name == "parquet":
        return ParquetFormat(schema, timestamp_format)
    raise MillraceError(Problem(f"format {name!r} is unknown", "write csv, json or parquet"))


def require_flat(schema: pa.Schema) -> None:
    """Raise MillraceError if a column is of a type that a field of CSV cannot hold."""
    for field in schema:
        if is_nested(field.type):
            raise MillraceError(Problem(*not_in_csv(Column(field.name, spark_type(field.type)))))


def check_delimiter(delimiter: str) -> None:
    """Raise MillraceError unless ``delimiter`` can separate the columns of a CSV file."""
    if len(delimiter.encode()) != 1 or delimiter in '"\\\r\n':
        hint = "write one character such as , or |"
        raise MillraceError(Problem(f"delimiter {delimiter!r} cannot be used", hint))


@dataclass(frozen=True)
class _TextFormat:
    """A reader of CSV, or of JSON lines if ``delimiter`` is empty."""

    schema: pa.Schema
    timestamp_format: str
    header: bool = False
    delimiter: str = ""

    def extent(self, path: str, size: int) -> int:
        return size

    def divisible(self, path: str) -> bool:
        return codec_of(path) is None

    def check(self, path: str) -> None:
        with open_text(path) as stream:
            self._parser(stream, path)

    def read(self, path: str, begin: int, end: int, reject: RejectIn) -> Iterator[pa.RecordBatch]:
        """Yield the records that begin in the range; a compressed file is always read to its end."""
        if not self.divisible(path):
            end = sys.maxsize
        with open_text(path) as stream:
            parser, first = self._parser(stream, path)
            lines = _LineNumbers(path, reject)
            quotes = parser.quotes if isinstance(parser, CsvParser) else None
            for offset, layout in blocks(stream, path, first, begin, end, quotes):
                lines.block = offset
                records = decode(parser, self.schema, layout, lines.reject)
                for row in range(0, records.num_rows, MAX_ROWS):
                    yield records.slice(row, MAX_ROWS)

    def _parser(self, stream: IO[bytes], path: str) -> tuple[Parser, int]:
        """Return the parser for this file, and the byte at which its records begin."""
        first = first_byte(stream, path)
        if not self.delimiter:
            return JsonParser(self.schema, self.timestamp_format), first
        columns = self.schema.names
        if self.header:
            line, first, number = _header(stream, path, first, CsvQuotes(self.delimiter))
            if line:
                columns = header_columns(line, self.schema, self.delimiter, path, number)
        return CsvParser(self.schema, columns, self.delimiter, self.timestamp_format), first


class _LineNumbers:
    """Conversion of line numbers from block to file; lines are counted only when a bad record turns up."""

    def __init__(self, path: str, reject: RejectIn) -> None:
        self._path = path
        self._reject = reject
        self._counted = (0, 0)
        self.block = 0
        """The offset of the current block."""

    def reject(self, bad: BadRecord) -> None:
        offset, lines = self._counted
        if offset < self.block:
            self._counted = (self.block, lines + _count_lines(self._path, offset, self.block))
        self._reject(self._path, replace(bad, line=bad.line + self._counted[1]))


@contextmanager
def open_text(path: str) -> Iterator[IO[bytes]]:
    """Open a file as decompressed bytes. Raises MillraceError if opening or reading it fails."""
    try:
        with open_bytes(path) as content:
            codec = codec_of(path)
            yield content if codec is None else decompressed(content, path, codec)
    except OSError as error:
        raise unreadable(path, error) from error


def first_byte(stream: IO[bytes], path: str) -> int:
    """Return the offset at which the text begins: after the byte order mark, if any.

    Raises MillraceError if the file is not text in an encoding like UTF-8.
    """
    stream.seek(0)
    start = stream.read(_SIGNATURE)
    for signature, (what, hint) in _NOT_TEXT.items():
        if start.startswith(signature):
            raise MillraceError(Problem(f"is not text in UTF-8 but {what}", hint, path))
    if len(start) > 1 and (not any(start[::2]) or not any(start[1::2])):  # Latin letters without a byte order mark
        raise MillraceError(Problem("is not text in UTF-8 but UTF-16", _RECODE, path))
    return len(codecs.BOM_UTF8) if start.startswith(codecs.BOM_UTF8) else 0


def blocks(
    stream: IO[bytes], path: str, first: int, begin: int, end: int, quotes: CsvQuotes | None = None
) -> Iterator[tuple[int, Layout]]:
    """Yield (offset, text) for the records that begin in ``[begin, end)``; ``first`` is where the first one begins.

    A text has about BLOCK_BYTES. A record is a line, or ends where ``quotes`` say.
    """
    if begin <= first:
        begin = first
        stream.seek(first)
    elif quotes is None:
        stream.seek(begin - 1)  # the line of this byte began earlier; if it ends here, only its newline is skipped
        _line(stream, path)
        begin = stream.tell()
    else:
        begin = _next_record(stream, path, first, begin, quotes)
    while begin < end:
        block = stream.read(min(BLOCK_BYTES, end - begin))
        if not block:
            return
        if not block.endswith(b"\n"):
            block += _line(stream, path)
        layout = line_layout(block) if quotes is None else quotes.layout(block)
        while layout.is_open and quotes is not None and (rest := _rest(stream, path, quotes)):
            block += rest
            layout = quotes.layout(block)
        yield begin, layout
        begin += len(block)


def _next_record(stream: IO[bytes], path: str, first: int, begin: int, quotes: CsvQuotes) -> int:
    """Move to the first record that begins at ``begin`` or later, and return where that is."""
    line, is_open = _line_before(stream, first, begin)
    if is_open:  # a quote is near enough to be open still: only the text from the beginning says whether it is
        is_open = False
        stream.seek(first)
        while stream.tell() < line:
            text = stream.read(min(BLOCK_BYTES, line - stream.tell()))
            is_open = quotes.is_open_after(text if text.endswith(b"\n") else text + _line(stream, path), is_open)
    stream.seek(line)
    while is_open or stream.tell() < begin:
        text = _line(stream, path)
        if not text or stream.tell() - begin > LONGEST_LINE:  # whoever reads the beginning of the record reports it
            return sys.maxsize
        is_open = quotes.is_open_after(text, is_open)
    return stream.tell()


def _line_before(stream: IO[bytes], first: int, begin: int) -> tuple[int, bool]:
    """Return where the line with the byte before ``begin`` begins, and whether a quote is before it in reach.

    A record has at most LONGEST_LINE bytes, so a quote farther away has been closed.
    """
    line, stop = first, begin - 1
    while stop > max(first, begin - LONGEST_LINE):
        start = max(first, stop - BLOCK_BYTES)
        stream.seek(start)
        text = stream.read(stop - start)
        if line == first:
            line = max(start + text.rfind(b"\n") + 1, first) if b"\n" in text else first
            text = text[: line - start] if line > first else text
        if b'"' in text:
            return line, True
        stop = start
    return line, False


def _rest(stream: IO[bytes], path: str, quotes: CsvQuotes) -> bytes:
    """Return the lines up to the end of a record with an open quote; empty at the end of the file."""
    begin, is_open, lines = stream.tell(), True, []
    while is_open and (line := _line(stream, path)):
        lines.append(line)
        is_open = quotes.is_open_after(line, is_open)
        if stream.tell() - begin > LONGEST_LINE:
            message = f"the record before byte {begin} has a quote that is not closed within {LONGEST_LINE >> 20} MiB"
            raise MillraceError(Problem(message, "close the quote, or double it if it belongs to the value", path))
    return b"".join(lines)


def _header(stream: IO[bytes], path: str, begin: int, quotes: CsvQuotes) -> tuple[bytes, int, int]:
    """Return the first record from ``begin`` on that is not blank, where the next begins, and the record's line."""
    stream.seek(begin)
    number = 1
    while (line := _line(stream, path)).isspace():
        number += 1
    if quotes.is_open_after(line, False):
        line += _rest(stream, path, quotes)
        if quotes.is_open_after(line, False):
            problem = Problem("the header is not a line of CSV: a quote is not closed", "close it", path, number)
            raise MillraceError(problem)
    return line, stream.tell(), number


def _count_lines(path: str, begin: int, end: int) -> int:
    count = 0
    with open_text(path) as stream:
        stream.seek(begin)
        while begin < end and (chunk := stream.read(min(BLOCK_BYTES, end - begin))):
            count += chunk.count(b"\n")
            begin += len(chunk)
    return count


def _line(stream: IO[bytes], path: str) -> bytes:
    begin = stream.tell()
    line = stream.readline(LONGEST_LINE)
    if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
        message = f"the line at byte {begin} is longer than {LONGEST_LINE >> 20} MiB"
        raise MillraceError(Problem(message, "check that this is a text file with one record per line", path))
    return line
