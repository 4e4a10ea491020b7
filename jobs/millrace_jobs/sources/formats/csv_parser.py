"""Parser of CSV: whole records become columns of the declared types, all or nothing.

Records end at the line breaks outside quotes. The dialect is that of RFC 4180 with the leniency on which the readers of
Spark and DuckDB agree:

- A quote at the beginning of a field opens a quoted field, in which a quote is doubled and line breaks belong to the
  value. There is no escape character. Blanks between the closing quote and the delimiter are dropped.
- A quote elsewhere in a field without quotes is an ordinary character: ``5" pipe``.
- Where those readers differ, the record is bad: text after a closing quote, blanks before an opening one, and a
  carriage return outside quotes that does not belong to a line break.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.sources.formats.column_types import time_format
from millrace_jobs.sources.formats.decoding import Layout, line_breaks
from millrace_jobs.sources.formats.text_values import IN_UTF8, declared_batch, from_text, single_array, stored_type

_QUOTE, _NEWLINE, _RETURN = b'"\n\r'
_NOT_CLOSED = "a quote is not closed: close it, or double it if it belongs to the value"
_AFTER_QUOTE = "text after a closing quote: double the quotes inside a quoted field"
_BLANK_QUOTE = "a blank before an opening quote: remove the blank, or quote the whole field"
_LONE_RETURN = "a carriage return inside the line: end each line with LF or CRLF, or quote the field"

_MATCHED = 128  # the least number of quotes that are matched from an irregular one on

_CSV_FIELDS = re.compile(r"Expected (\d+) columns?, got (\d+)")
_OTHER_DELIMITERS = ";\t|,"


@dataclass
class _Quotes:
    """The quotes that open and close fields in turns, doubled ones among them or not, and what is wrong around them.

    ``faults`` are (place, reason), and ``blanks`` (begin, end) of blanks after closing quotes.
    """

    quotes: NDArray[np.int64]
    faults: list[tuple[int, str]] = field(default_factory=list)
    blanks: list[tuple[int, int]] = field(default_factory=list)


class CsvQuotes:
    """The quotes of CSV text with one delimiter, which decide where its records end."""

    def __init__(self, delimiter: str) -> None:
        field_ends = np.zeros(256, np.bool_)
        field_ends[[*delimiter.encode(), _NEWLINE, _RETURN, _QUOTE]] = True
        self._regular = field_ends
        self._delimiter = delimiter.encode()
        blanks = re.escape(" \t".replace(delimiter, "")).encode()
        end = re.escape(delimiter).encode() + b"\n\r"
        self._field = re.compile(rb'(?<![^%b])(?:"[^"]*(?:""[^"]*)*(?:(")([%b]*)|\Z)|[%b]+")' % (end, blanks, blanks))
        self._ends = frozenset(delimiter.encode() + b"\n\r")

    def layout(self, block: bytes) -> Layout:
        """Return where the records of ``block`` end; it begins with a record."""
        newlines = line_breaks(block)
        found = self._found(block)
        quotes, faults = found.quotes, found.faults
        ends = newlines if not len(quotes) else newlines[np.searchsorted(quotes, newlines) % 2 == 0]
        if b"\r" in block:
            faults += ((int(place), _LONE_RETURN) for place in _lone_returns(block, quotes))
        is_open = len(quotes) % 2 == 1
        if is_open:
            faults.append((int(quotes[-1]), _NOT_CLOSED))
        if block and (is_open or not block.endswith(b"\n")):
            ends = np.append(ends, len(block))
        reasons = {int(np.searchsorted(ends, place)): reason for place, reason in sorted(faults, reverse=True)}
        return Layout(block, ends, newlines, reasons, is_open, self._delimiter, found.blanks)

    def is_open_after(self, lines: bytes, is_open: bool) -> bool:
        """Return whether a quote is open after whole lines, given whether it was before them."""
        if b'"' not in lines:
            return is_open
        begin = b'"' if is_open else b""
        text = begin + lines
        return len(self._found(text).quotes) % 2 == 1

    def _found(self, block: bytes) -> _Quotes:
        if b'"' not in block:
            return _Quotes(np.empty(0, np.int64))
        quotes = np.flatnonzero(np.frombuffer(block, np.uint8) == _QUOTE)
        return _Quotes(quotes) if self._are_regular(block, quotes) else self._examined(block, quotes)

    def _are_regular(self, block: bytes, quotes: NDArray[np.int64]) -> bool:
        """Return whether quotes open and close fields in turns, apart from doubled ones, and there are no others."""
        data = np.frombuffer(block, np.uint8)
        opens, closes = quotes[0::2], quotes[1::2]
        before = self._regular[data[opens - 1]]
        after = self._regular[data[np.minimum(closes + 1, len(data) - 1)]]
        return bool((before | (opens == 0)).all() and after.all())

    def _examined(self, block: bytes, quotes: NDArray[np.int64]) -> _Quotes:
        """Return which of all ``quotes`` open and close fields, if not all of them do so in turns.

        Fields are matched one by one from an irregular quote on. As this is slow, the quotes are taken in turns again
        after some fields, up to the next irregular one.
        """
        data = np.frombuffer(block, np.uint8)
        may_open = self._regular[data[quotes - 1]] | (quotes == 0)
        may_close = self._regular[data[np.minimum(quotes + 1, len(data) - 1)]]
        is_odd = np.arange(len(quotes)) % 2 == 1
        irregular = [np.flatnonzero(~np.where(is_odd == odd, may_open, may_close)) for odd in (False, True)]
        parts: list[NDArray[np.int64]] = []
        faults: list[tuple[int, str]] = []
        blanks: list[tuple[int, int]] = []
        begin = 0
        while len(rest := irregular[begin % 2]) > (place := int(np.searchsorted(rest, begin))):
            end = int(rest[place])
            if (end - begin) % 2:  # the quote that should close a field: go back to the one that opens the field
                end -= 1
                while end > begin and quotes[end - 1] == quotes[end] - 1:
                    end -= 2
            fields = self._field.finditer(block, int(quotes[end - 1]) + 1 if end else 0)
            matched, following = self._matched(block, fields, faults, blanks)
            parts += quotes[begin:end], np.array(matched, np.int64)
            if following is None:
                begin = len(quotes)
                break
            begin = int(np.searchsorted(quotes, following))
        return _Quotes(np.concatenate([*parts, quotes[begin:]]), faults, blanks)

    def _matched(
        self,
        block: bytes,
        fields: Iterator[re.Match[bytes]],
        faults: list[tuple[int, str]],
        blanks: list[tuple[int, int]],
    ) -> tuple[list[int], int | None]:
        """Return the quotes around the next fields, and where the field after them begins, if there is one."""
        quotes: list[int] = []
        for match in fields:
            start, end = match.span()
            if block[start] != _QUOTE:
                faults.append((start, _BLANK_QUOTE))
                continue
            if len(quotes) >= _MATCHED:
                return quotes, start
            quotes.append(start)
            if match[1] is None:
                break  # the text ends within the field
            quotes.append(match.start(1))
            if end < len(block) and block[end] not in self._ends:
                faults.append((start, _AFTER_QUOTE))
            elif match[2]:
                blanks.append(match.span(2))
        return quotes, None


def _lone_returns(block: bytes, quotes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the places of carriage returns outside quotes that do not end a line with the byte after them."""
    if block.count(b"\r") == block.count(b"\r\n") + block.endswith(b"\r"):
        return np.empty(0, np.int64)
    data = np.frombuffer(block, np.uint8)
    places = np.flatnonzero(data[:-1] == _RETURN)
    is_lone = (data[places + 1] != _NEWLINE) & (np.searchsorted(quotes, places) % 2 == 0)
    lone: NDArray[np.int64] = places[is_lone]
    return lone


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

    Raises MillraceError if the line is not CSV in UTF-8, or does not have each column of the schema exactly once.
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
    if text.startswith("sep=") and len(text) == len("sep=") + 1:
        return f"remove this line, which only Excel knows, and set delimiter: {json.dumps(text[-1])}"
    for other in _OTHER_DELIMITERS.replace(delimiter, ""):
        if set(schema.names) <= set(next(csv.reader([text], delimiter=other))):
            return f"set delimiter: {json.dumps(other)}"
    spelled = {name.strip().lower(): name for name in names}
    if all(name.lower() in spelled for name in schema.names):
        return "write the names in the schema as in the file, where case and blanks count"
    return "correct the schema or the delimiter, or set header: false"
