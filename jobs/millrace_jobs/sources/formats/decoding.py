"""Decoding of text blocks to record batches, even if some records are bad.

A block is parsed as a whole. If that fails, or does not yield one row per record, the block is bisected until each
bad record stands alone. A record is therefore good if and only if the parser accepts its text alone, and its values do
not depend on how the text was cut.
"""

from __future__ import annotations

import codecs
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_NEWLINE = ord("\n")
_SPACE = ord(" ")


@dataclass(frozen=True)
class BadRecord:
    """Text that is not a record of the schema; ``line`` is where it begins, and counts from 1."""

    text: str
    reason: str
    line: int


Reject = Callable[[BadRecord], None]
"""Handler that leaves a bad record out of the stream, or raises, as the policy requires."""


@dataclass(frozen=True)
class Layout:
    """A text and where its records are.

    ``ends`` are the offsets of the line breaks, or of the end of the text, that end a record; ``newlines`` those of all
    line breaks. Shapes ``(records,)`` and ``(lines,)``. ``faults`` are reasons why the records at these indexes are
    bad, whatever their values. ``is_open`` says that the last record goes on behind the text. ``delimiter`` makes a
    record of a line that has nothing else, even if it is white space. ``blanks`` are (begin, end) of text that is
    not parsed, in order.
    """

    text: bytes
    ends: NDArray[np.int64]
    newlines: NDArray[np.int64]
    faults: Mapping[int, str]
    is_open: bool = False
    delimiter: bytes = b""
    blanks: Sequence[tuple[int, int]] = ()

    def parsed(self, begin: int, end: int) -> bytes:
        """Return what is parsed of a part of the text, which cuts no blanks."""
        parts = []
        for first, last in self.blanks[bisect_left(self.blanks, (begin,)) : bisect_left(self.blanks, (end,))]:
            parts.append(self.text[begin:first])
            begin = last
        return b"".join([*parts, self.text[begin:end]]) if parts else self.text[begin:end]

    def is_blank(self, line: bytes) -> bool:
        """Whether a line is no record: it has only white space that is not the delimiter."""
        return line.isspace() and not (self.delimiter and self.delimiter in line)


class Parser(Protocol):
    """A parser of whole records, all or nothing."""

    def layout(self, block: bytes) -> Layout:
        """Return where the records of ``block`` are; it begins with a record."""

    def parse(self, text: bytes) -> pa.RecordBatch:
        """Return all records of ``text``, whose lines all end. Raises ValueError if any of them is bad."""

    def explain(self, error: ValueError, text: bytes) -> str:
        """Return what is wrong with a record, given its text and the error from parsing it alone."""


def line_breaks(block: bytes) -> NDArray[np.int64]:
    """Return the offsets of the line breaks. Shape ``(lines,)``."""
    return np.flatnonzero(np.frombuffer(block, np.uint8) == _NEWLINE)


def line_layout(block: bytes) -> Layout:
    """Return the layout of text in which each line is a record."""
    newlines = line_breaks(block)
    ends = newlines if not block or block.endswith(b"\n") else np.append(newlines, len(block))
    return Layout(block, ends, newlines, {})


def decode(parser: Parser, schema: pa.Schema, layout: Layout, reject: Reject) -> pa.RecordBatch:
    """Return the good records of a text in order, and pass the bad ones to ``reject`` in order.

    Lines end with LF or CRLF; the last one may have no line break. Line numbers count from the beginning of the text.
    Blank lines are not records. A record that is bad by its layout is rejected line by line: where its quotes are
    wrong, each of its lines may have been meant as a record.
    """
    batches: list[pa.RecordBatch] = []
    records = _RecordPlaces.of(layout)
    begin = 0
    for index in sorted(layout.faults):
        place = int(np.searchsorted(records.ends, layout.ends[index]))
        if place == len(records) or records.ends[place] != layout.ends[index]:
            continue  # a blank line
        batches += _good_records(parser, layout, records[begin:place], reject)
        _reject_lines(layout, records[place : place + 1], layout.faults[index], reject)
        begin = place + 1
    batches += _good_records(parser, layout, records[begin:], reject)
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema)


@dataclass(frozen=True)
class _RecordPlaces:
    """The places of the records that are not blank: byte offsets and line numbers. Shapes ``(records,)``."""

    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    numbers: NDArray[np.int64]

    @classmethod
    def of(cls, layout: Layout) -> _RecordPlaces:
        block, ends = layout.text, layout.ends
        data = np.frombuffer(block, np.uint8)
        begins = np.concatenate(([0], ends[:-1] + 1)) if len(ends) else ends
        filled = ends > begins
        first = data[np.minimum(begins, len(block) - 1)]
        may_be_blank = filled & (first <= _SPACE)
        if layout.delimiter:
            may_be_blank &= first != layout.delimiter[0]
        # Few lines begin with white space, so checking those one by one is cheap.
        for i in np.flatnonzero(may_be_blank):
            filled[i] = not layout.is_blank(block[begins[i] : ends[i]])
        begins = begins[filled]
        has_rest = len(ends) > 0 and ends[-1] == len(block)
        if len(layout.newlines) == len(ends) - has_rest:  # each record is a line
            numbers = np.flatnonzero(filled) + 1
        else:
            numbers = np.searchsorted(layout.newlines, begins) + 1
        return cls(begins, ends[filled], numbers)

    def __len__(self) -> int:
        return len(self.begins)

    def __getitem__(self, part: slice) -> _RecordPlaces:
        return _RecordPlaces(self.begins[part], self.ends[part], self.numbers[part])


def _good_records(parser: Parser, layout: Layout, records: _RecordPlaces, reject: Reject) -> Iterator[pa.RecordBatch]:
    if not len(records):
        return
    begin, end = int(records.begins[0]), int(records.ends[-1]) + 1
    text = layout.parsed(begin, end)
    if not text.endswith(b"\n"):
        text += b"\n"  # without it, Arrow takes an empty field at the end for one in quotes if one before it was
    try:
        # Arrow skips a byte order mark where it begins to parse, but this one is in the middle of a file.
        batch = parser.parse(b"\n" + text if text.startswith(codecs.BOM_UTF8) else text)
        if batch.num_rows == len(records):
            yield batch
            return
        reason = f"{batch.num_rows} records where one is expected"
    except ValueError as error:
        reason = parser.explain(error, text) if len(records) == 1 else ""
    if len(records) == 1:
        reject(BadRecord(_shown(layout.text[begin:end]), reason, int(records.numbers[0])))
        return
    middle = len(records) // 2
    yield from _good_records(parser, layout, records[:middle], reject)
    yield from _good_records(parser, layout, records[middle:], reject)


def _reject_lines(layout: Layout, record: _RecordPlaces, reason: str, reject: Reject) -> None:
    first = int(record.numbers[0])
    lines = layout.text[record.begins[0] : record.ends[0]].split(b"\n")
    for number, line in enumerate(lines, first):
        if line and not layout.is_blank(line):
            why = reason if number == first else "part of the record that begins above, which is bad"
            reject(BadRecord(_shown(line), why, number))


def _shown(text: bytes) -> str:
    return text.removesuffix(b"\n").rstrip(b"\r").decode(errors="backslashreplace")
