"""Decoding of text blocks to record batches, even if some lines are bad.

A block is parsed as a whole. If that fails, or does not yield one record per line, the block is bisected until each
bad line stands alone. A record is therefore good if and only if the parser accepts its line alone, and its values do
not depend on how the text was cut.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_NEWLINE = ord("\n")
_SPACE = ord(" ")


@dataclass(frozen=True)
class BadRecord:
    """A line that is not a record of the schema; ``line`` counts from 1."""

    text: str
    reason: str
    line: int


Reject = Callable[[BadRecord], None]
"""Handler that leaves a bad record out of the stream, or raises, as the policy requires."""


class Parser(Protocol):
    """A parser of whole lines, all or nothing."""

    def parse(self, text: bytes) -> pa.RecordBatch:
        """Return all records of ``text``. Raises ValueError if any of them is bad."""
        ...

    def explain(self, error: ValueError) -> str:
        """Return what is wrong with a record, given the error from parsing it alone."""
        ...


def decode(parser: Parser, schema: pa.Schema, block: bytes, reject: Reject) -> pa.RecordBatch:
    """Return the good records of ``block`` in order, and pass the bad ones to ``reject`` in order.

    ``block`` consists of whole lines that end with LF or CRLF; the last line may have no line break. Line numbers
    count from the beginning of the block. Blank lines are not records.
    """
    batches = list(_good_records(parser, block, _Lines.of(block), reject))
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema)


@dataclass(frozen=True)
class _Lines:
    """The places of the lines that are not blank: byte offsets and line numbers. Shapes ``(lines,)``."""

    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    numbers: NDArray[np.int64]

    @classmethod
    def of(cls, block: bytes) -> _Lines:
        data = np.frombuffer(block, np.uint8)
        ends = np.flatnonzero(data == _NEWLINE)
        if block and not block.endswith(b"\n"):
            ends = np.append(ends, len(block))
        begins = np.concatenate(([0], ends[:-1] + 1)) if len(ends) else ends
        filled = ends > begins
        # Few lines begin with white space, so checking those one by one is cheap.
        for i in np.flatnonzero(filled & (data[np.minimum(begins, len(block) - 1)] <= _SPACE)):
            filled[i] = not block[begins[i] : ends[i]].isspace()
        return cls(begins[filled], ends[filled], np.flatnonzero(filled) + 1)

    def __len__(self) -> int:
        return len(self.begins)

    def __getitem__(self, part: slice) -> _Lines:
        return _Lines(self.begins[part], self.ends[part], self.numbers[part])


def _good_records(parser: Parser, block: bytes, lines: _Lines, reject: Reject) -> Iterator[pa.RecordBatch]:
    if not len(lines):
        return
    text = block[lines.begins[0] : lines.ends[-1]]
    try:
        # Arrow skips a byte order mark where it begins to parse, but this one is in the middle of a file.
        batch = parser.parse(b"\n" + text if text.startswith(codecs.BOM_UTF8) else text)
        if batch.num_rows == len(lines):
            yield batch
            return
        reason = f"{batch.num_rows} records on one line" if batch.num_rows else "a quote is not closed"
    except ValueError as error:
        reason = parser.explain(error) if len(lines) == 1 else ""
    if len(lines) == 1:
        shown = text.rstrip(b"\r").decode(errors="backslashreplace")
        reject(BadRecord(shown, reason, int(lines.numbers[0])))
        return
    middle = len(lines) // 2
    yield from _good_records(parser, block, lines[:middle], reject)
    yield from _good_records(parser, block, lines[middle:], reject)
