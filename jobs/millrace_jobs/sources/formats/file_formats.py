"""Files of records in CSV or JSON lines, of which any range can be read, and the choice of a format by its name.

Ranges that cover a file without overlap yield each record exactly once.
"""

from __future__ import annotations

import codecs
import gzip
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import pyarrow as pa

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.sources.formats.column_types import TIMESTAMP_FORMATS
from millrace_jobs.sources.formats.decoding import BadRecord, Parser, decode
from millrace_jobs.sources.formats.format_reader import MAX_ROWS, FormatReader, RejectIn
from millrace_jobs.sources.formats.parquet_format import ParquetFormat
from millrace_jobs.sources.formats.text_parsers import CsvParser, JsonParser, header_columns

BLOCK_BYTES = 4 << 20
LONGEST_LINE = 64 << 20
"""The maximum bytes of a line. A longer line suggests that the file is not text, and would fill the memory."""

FORMATS_BY_SUFFIX = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}
"""Format of a file by the suffix of its name; in the name of a text file, ``.gz`` may follow."""


def file_format(
    name: str, schema: pa.Schema, *, header: bool = True, delimiter: str = ",", timestamp_format: str = "iso"
) -> FormatReader:
    """Return the format called ``name``. Raises MillraceError if the format is unknown or an option is invalid."""
    if timestamp_format not in TIMESTAMP_FORMATS:
        hint = f"write one of {', '.join(TIMESTAMP_FORMATS)}"
        raise MillraceError(Problem(f"timestampFormat {timestamp_format!r} is unknown", hint))
    if name == "csv":
        check_delimiter(delimiter)
        return _TextFormat(schema, timestamp_format, header, delimiter)
    if name == "json":
        return _TextFormat(schema, timestamp_format)
    if name == "parquet":
        return ParquetFormat(schema, timestamp_format)
    raise MillraceError(Problem(f"format {name!r} is unknown", "write csv, json or parquet"))


def check_delimiter(delimiter: str) -> None:
    """Raise MillraceError unless ``delimiter`` can separate the columns of a CSV file."""
    if len(delimiter.encode()) != 1 or delimiter in '"\\\r\n':
        hint = "write one character such as , or |"
        raise MillraceError(Problem(f"delimiter {delimiter!r} cannot be used", hint))


@dataclass(frozen=True)
class _TextFormat:
    """A reader of CSV lines, or of JSON lines if ``delimiter`` is empty; a line break always ends a record."""

    schema: pa.Schema
    timestamp_format: str
    header: bool = False
    delimiter: str = ""

    def extent(self, path: str, size: int) -> int:
        return size

    def divisible(self, path: str) -> bool:
        return not _is_compressed(path)

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
                lines.block = offset
                records = decode(parser, self.schema, block, lines.reject)
                for row in range(0, records.num_rows, MAX_ROWS):
                    yield records.slice(row, MAX_ROWS)

    def _parser(self, stream: IO[bytes], path: str) -> tuple[Parser, int]:
        """Return the parser for this file, and the byte at which its records begin."""
        first = first_byte(stream)
        if not self.delimiter:
            return JsonParser(self.schema, self.timestamp_format), first
        columns = self.schema.names
        if self.header:
            line, first, number = _first_line(stream, path, first)
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
        """Reject a record whose line number counts from the beginning of the block."""
        offset, lines = self._counted
        if offset < self.block:
            self._counted = (self.block, lines + _count_lines(self._path, offset, self.block))
        self._reject(self._path, replace(bad, line=bad.line + self._counted[1]))


@contextmanager
def open_text(path: str) -> Iterator[IO[bytes]]:
    """Open a file as decompressed bytes. Raises MillraceError if opening or reading it fails."""
    try:
        with gzip.open(path) if _is_compressed(path) else Path(path).open("rb") as stream:
            yield stream  # type: ignore[misc]
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise MillraceError(Problem(f"not a whole gzip file: {error}", "", path)) from error
    except OSError as error:
        raise MillraceError(Problem(f"cannot be read: {error.strerror or error}", "", path)) from error


def first_byte(stream: IO[bytes]) -> int:
    """Return the offset at which the text begins: after the byte order mark, if any."""
    stream.seek(0)
    mark = len(codecs.BOM_UTF8)
    return mark if stream.read(mark) == codecs.BOM_UTF8 else 0


def blocks(stream: IO[bytes], path: str, first: int, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, block) for the lines that begin in ``[begin, end)``; ``first`` is where the first record begins.

    A block has about BLOCK_BYTES.
    """
    if begin <= first:
        begin = first
        stream.seek(first)
    else:
        stream.seek(begin - 1)  # the line of this byte began earlier; if it ends here, only its newline is skipped
        _line(stream, path)
        begin = stream.tell()
    while begin < end:
        block = stream.read(min(BLOCK_BYTES, end - begin))
        if not block:
            return
        if not block.endswith(b"\n"):
            block += _line(stream, path)
        yield begin, block
        begin += len(block)


def _is_compressed(path: str) -> bool:
    """Return whether the file is gzip, which can only be read from its beginning."""
    return path.endswith(".gz")


def _first_line(stream: IO[bytes], path: str, begin: int) -> tuple[bytes, int, int]:
    """Return the first line from ``begin`` on that is not blank, where the next line begins, and the line's number."""
    stream.seek(begin)
    number = 1
    while (line := _line(stream, path)).isspace():
        number += 1
    return line, stream.tell(), number


def _count_lines(path: str, begin: int, end: int) -> int:
    """Return the number of line breaks in ``[begin, end)``."""
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
