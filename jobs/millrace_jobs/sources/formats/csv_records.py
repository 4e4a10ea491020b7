"""Where the records of CSV text end: at the line breaks outside quotes, as RFC 4180 has it.

The dialect is that of RFC 4180 with the leniency on which the readers of Spark and DuckDB agree:

- A quote at the beginning of a field opens a quoted field, in which a quote is doubled and line breaks belong to the
  value. There is no escape character. Blanks between the closing quote and the delimiter are dropped.
- A quote elsewhere in a field without quotes is an ordinary character: ``5" pipe``.
- Where those readers differ, the record is bad: text after a closing quote, blanks before an opening one, and a
  carriage return outside quotes that does not belong to a line break.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.sources.formats.decoding import Layout, line_breaks

_QUOTE, _NEWLINE, _RETURN = b'"\n\r'
_NOT_CLOSED = "a quote is not closed: close it, or double it if it belongs to the value"
_AFTER_QUOTE = "text after a closing quote: double the quotes inside a quoted field"
_BLANK_QUOTE = "a blank before an opening quote: remove the blank, or quote the whole field"
_LONE_RETURN = "a carriage return inside the line: end each line with LF or CRLF, or quote the field"


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
        faults: list[tuple[int, str]] = []
        quotes = np.empty(0, np.int64)
        if b'"' in block:
            quotes = np.flatnonzero(np.frombuffer(block, np.uint8) == _QUOTE)
            if not self._are_regular(block, quotes):
                quotes, faults, tidied = self._examined(block)
                if tidied is not None:
                    return self.layout(tidied)
        ends = newlines if not len(quotes) else newlines[np.searchsorted(quotes, newlines) % 2 == 0]
        if b"\r" in block:
            faults += ((int(place), _LONE_RETURN) for place in _lone_returns(block, quotes))
        is_open = len(quotes) % 2 == 1
        if is_open:
            faults.append((int(quotes[-1]), _NOT_CLOSED))
        if block and (is_open or not block.endswith(b"\n")):
            ends = np.append(ends, len(block))
        reasons = {int(np.searchsorted(ends, place)): reason for place, reason in sorted(faults, reverse=True)}
        return Layout(block, ends, newlines, reasons, is_open, self._delimiter)

    def is_open_after(self, lines: bytes, is_open: bool) -> bool:
        """Return whether a quote is open after whole lines, given whether it was before them."""
        if b'"' not in lines:
            return is_open
        begin = b'"' if is_open else b""
        text = begin + lines
        quotes = np.flatnonzero(np.frombuffer(text, np.uint8) == _QUOTE)
        if not self._are_regular(text, quotes):
            quotes, _, _ = self._examined(text)
        return len(quotes) % 2 == 1

    def _are_regular(self, block: bytes, quotes: NDArray[np.int64]) -> bool:
        """Return whether quotes open and close fields in turns, apart from doubled ones, and there are no others."""
        data = np.frombuffer(block, np.uint8)
        opens, closes = quotes[0::2], quotes[1::2]
        before = self._regular[data[opens - 1]]
        after = self._regular[data[np.minimum(closes + 1, len(data) - 1)]]
        return bool((before | (opens == 0)).all() and after.all())

    def _examined(self, block: bytes) -> tuple[NDArray[np.int64], list[tuple[int, str]], bytes | None]:
        """Return the quotes that open and close fields, the faults, and the text without blanks after closing quotes.

        The text is None if it has no such blanks. One field after the other is looked at, which is slow.
        """
        quotes: list[int] = []
        faults: list[tuple[int, str]] = []
        blanks: list[tuple[int, int]] = []
        for field in self._field.finditer(block):
            if block[field.start()] != _QUOTE:
                faults.append((field.start(), _BLANK_QUOTE))
                continue
            quotes.append(field.start())
            if field[1] is None:
                break  # the text ends within the field
            quotes.append(field.start(1))
            if field.end() < len(block) and block[field.end()] not in self._ends:
                faults.append((field.start(), _AFTER_QUOTE))
            elif field[2]:
                blanks.append(field.span(2))
        return np.array(quotes, np.int64), faults, b"".join(_without(block, blanks)) if blanks else None


def _without(block: bytes, spans: list[tuple[int, int]]) -> Iterator[bytes]:
    begin = 0
    for start, end in spans:
        yield block[begin:start]
        begin = end
    yield block[begin:]


def _lone_returns(block: bytes, quotes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the places of carriage returns outside quotes that do not end a line with the byte after them."""
    if block.count(b"\r") == block.count(b"\r\n") + block.endswith(b"\r"):
        return np.empty(0, np.int64)
    data = np.frombuffer(block, np.uint8)
    places = np.flatnonzero(data[:-1] == _RETURN)
    is_lone = (data[places + 1] != _NEWLINE) & (np.searchsorted(quotes, places) % 2 == 0)
    lone: NDArray[np.int64] = places[is_lone]
    return lone
