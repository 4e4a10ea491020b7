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
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.sources.formats.decoding import Layout, line_breaks

_QUOTE, _NEWLINE, _RETURN = b'"\n\r'
_NOT_CLOSED = "a quote is not closed: close it, or double it if it belongs to the value"
_AFTER_QUOTE = "text after a closing quote: double the quotes inside a quoted field"
_BLANK_QUOTE = "a blank before an opening quote: remove the blank, or quote the whole field"
_LONE_RETURN = "a carriage return inside the line: end each line with LF or CRLF, or quote the field"

_MATCHED = 128
"""The least number of quotes that are matched from an irregular one on."""


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
