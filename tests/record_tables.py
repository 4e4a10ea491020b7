"""Tables as text: drawn by Hypothesis, written by Python's csv and json, and expected from a source."""

from __future__ import annotations

import csv
import io
import json
import resource
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from arrow_schemas import a_schema
from millrace_jobs.sources.base import Rejected

SCHEMA = a_schema([("name", "STRING"), ("count", "BIGINT"), ("size", "DOUBLE"), ("good", "BOOLEAN")])
Row = tuple[str | None, int | None, float | None, bool | None]


def _rows(text: st.SearchStrategy[str]) -> st.SearchStrategy[list[Row]]:
    return st.lists(
        st.tuples(
            text | st.none(),
            st.integers(-(2**63), 2**63 - 1) | st.none(),
            st.floats(allow_nan=False, allow_infinity=False) | st.none(),
            st.booleans() | st.none(),
        ),
        max_size=40,
    )


# Python's csv module writes the empty text as it writes None.
ROWS = _rows(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0"), min_size=1))
"""Rows whose records are one line each."""
ROWS_OF_LINES = _rows(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('\r\n",'), min_size=1))
FORMATS = ["csv", "json"]


def line_of(row: Row, file_format: str) -> str:
    """Return one record as Python's own modules write it, without the line end."""
    if file_format == "json":
        return json.dumps(dict(zip(SCHEMA.names, row, strict=True)), ensure_ascii=False)
    text = io.StringIO()
    csv.writer(text).writerow(["" if value is None else value for value in row])
    return text.getvalue().removesuffix("\r\n")


BAD_LINES = {
    "csv": [
        "a,1",
        "a,1,2.0,true,5",
        "a,x,2.0,true",
        "a,1,two,true",
        "a,1,2.0,maybe",
        ',99999999999999999999,"",',
        '"a"b,1,2.0,true',
        ' "a",1,2.0,true',
        "a,0x10,2.0,true",
    ],
    "json": [
        "null",
        "7",
        "[1]",
        "{",
        "}",
        '{"count": "1"}',
        '{"size": true}',
        '{"name": 5}',
        '{"count": 1.5}',
        "{} {}",
        "{}null",
        "x",
        '{"name": "a',
    ],
}
"""Lines that are not records of SCHEMA, by format."""


class Collected:
    """Rows and rejected records that a source or a format yields."""

    def __init__(self, blocks: Iterable[pa.RecordBatch | Rejected]) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.rejected = 0
        for block in blocks:
            if isinstance(block, Rejected):
                self.rejected += block.records
            else:
                block.validate(full=True)
                self.rows += zip(*block.to_pydict().values(), strict=True) if block.num_columns else []


def rows_of(source: Any, start: Any, end: Any, replicas: int) -> Iterator[Collected]:
    """Return the rows of each slice of a batch."""
    for i, piece in enumerate(source.slices(start, end, replicas)):
        yield Collected(source.read(piece, f"0-{i}"))


def all_rows(source: Any, replicas: int = 1) -> list[tuple[Any, ...]]:
    """Return all rows of a source, read in one batch."""
    end = source.latest(source.initial(), everything=True)
    return [row for slice_ in rows_of(source, source.initial(), end, replicas) for row in slice_.rows]


@contextmanager
def no_file_above(size: int) -> Iterator[None]:
    """Make writes beyond ``size`` bytes of any file fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
