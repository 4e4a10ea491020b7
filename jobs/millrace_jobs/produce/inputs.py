"""The input of ``millrace produce``: the records of a file, its raw lines, or the rows of a generator."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.json

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.generators import NexmarkSourceSpec, NexmarkStream
from millrace_api.model.sources import SourceSpec
from millrace_api.sql.schema_ddl import parse_schema
from millrace_api.validation.places import path_problem
from millrace_jobs.sources.base import Rejected
from millrace_jobs.sources.connector import schema_of
from millrace_jobs.sources.formats.column_types import arrow_schema
from millrace_jobs.sources.formats.csv_parser import CsvQuotes
from millrace_jobs.sources.formats.decoding import BadRecord
from millrace_jobs.sources.formats.file_formats import (
    FORMATS_BY_SUFFIX,
    blocks,
    check_delimiter,
    file_format,
    first_byte,
    open_text,
)
from millrace_jobs.sources.formats.messages import RAW
from millrace_jobs.sources.formats.parquet_format import open_parquet
from millrace_jobs.sources.formats.typed_columns import suitable_type
from millrace_jobs.sources.generated.nexmark import NexmarkSource, share
from millrace_jobs.sources.generated.rows import GeneratedRows, GeneratedSource, RateSource
from millrace_jobs.sources.pacing import RatePace
from millrace_jobs.sources.stored_files import without_ending

_ROWS = 10_000
"""Rows that are generated at a time."""


@dataclass(frozen=True)
class RecordInput:
    """A finite or endless sequence of records: their columns, and a function that yields them in order.

    The function raises MillraceError if a record cannot be read.
    """

    schema: pa.Schema
    records: Callable[[], Iterator[pa.RecordBatch]]


def file_input(
    path: Path, ddl: str | None, *, raw: bool, header: bool, delimiter: str, timestamp_format: str
) -> RecordInput:
    """Return the input for a file, in the format of its suffix.

    The columns are those of ``ddl`` if given, otherwise they are inferred from the file. ``raw`` sends those of its
    lines that are not blank, unparsed.

    Raises:
        MillraceError: the file does not exist, has an unknown suffix, or its columns cannot be inferred or sent.
    """
    name = str(path)
    if not path.is_file():
        missing = "there is no such file", "write --input and a csv, json or parquet file"
        raise MillraceError(Problem(*(path_problem(name) or missing), name))
    format = FORMATS_BY_SUFFIX.get(without_ending(path).suffix)
    if format is None:
        hint = "name it *.csv, *.json, *.jsonl or *.parquet"
        raise MillraceError(Problem("the extension of its name stands for no known format", hint, name))
    if raw:
        if format == "parquet":
            raise MillraceError(Problem("has no lines to send", "send a text file, or use --format json", name))
        return RecordInput(RAW, partial(_lines, name))
    if ddl is not None:
        schema = arrow_schema([(column.name, column.type) for column in parse_schema(ddl)])
    else:
        schema = _inferred_schema(name, format, header=header, delimiter=delimiter)
    reader = file_format(format, schema, header=header, delimiter=delimiter, timestamp_format=timestamp_format)
    return RecordInput(schema, lambda: reader.read(name, 0, reader.extent(name, path.stat().st_size), _refuse))


def _lines(path: str) -> Iterator[pa.RecordBatch]:
    with open_text(path) as stream:
        for _, layout in blocks(stream, path, first_byte(stream, path), 0, sys.maxsize):
            lines = [line.removesuffix(b"\r") for line in layout.text.split(b"\n") if line.strip()]
            yield pa.RecordBatch.from_arrays([pa.array(lines, pa.binary())], schema=RAW)


def _refuse(path: str, bad: BadRecord) -> None:
    shown = bad.text if len(bad.text) <= 200 else bad.text[:200] + "..."
    message = f"{shown!r} is not a record: {bad.reason}"
    raise MillraceError(Problem(message, "correct it, or give the columns with --schema", path, bad.line))


_SAMPLE = 1 << 20
"""Bytes of a text file from which its types are inferred."""
_HINT = "give its columns with --schema"


def _inferred_schema(path: str, format: str, *, header: bool, delimiter: str) -> pa.Schema:
    """Return the schema of a Parquet file, or infer it from the first megabyte of a CSV or JSON file."""
    if format == "csv" and not header:
        raise MillraceError(Problem("a csv file without a header does not name its columns", _HINT, path))
    if format == "csv":
        check_delimiter(delimiter)
    try:
        if format == "parquet":
            found = open_parquet(path).schema_arrow
        elif format == "csv":
            options = pa.csv.ConvertOptions(null_values=[""], strings_can_be_null=True)
            parse = pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
            sample = _sample(path, CsvQuotes(delimiter))
            found = pa.csv.read_csv(sample, parse_options=parse, convert_options=options).schema
        else:
            found = pa.json.read_json(_sample(path), pa.json.ReadOptions(block_size=2 * _SAMPLE)).schema
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise MillraceError(Problem(f"cannot be read as {format}: {error}", _HINT, path)) from None
    if not len(found):
        raise MillraceError(Problem("has no columns", _HINT, path))
    return pa.schema([(field.name, _type(field, path)) for field in found])


def _sample(path: str, quotes: CsvQuotes | None = None) -> pa.BufferReader:
    with open_text(path) as stream:
        read = blocks(stream, path, first_byte(stream, path), 0, _SAMPLE, quotes)
        return pa.BufferReader(b"".join(layout.text for _, layout in read))


def _type(field: pa.Field, path: str) -> pa.DataType:
    suitable = suitable_type(field.type)
    if suitable is None:
        message = f"column {field.name} is of type {field.type}, which no source can read"
        raise MillraceError(Problem(message, _HINT, path))
    return suitable


_GENERATORS = ("rate", *(stream.value for stream in NexmarkStream))


def generator_input(
    name: str, pace: RatePace, *, keys: int, skew: float, drift: float | None, seed: int, start: datetime | None
) -> RecordInput:
    """Return the endless rows of a generator whose event times follow ``pace``: ``rate``, or a NEXMark stream.

    Raises:
        MillraceError: the name is unknown.
    """
    source: GeneratedSource
    if name == "rate":
        source = RateSource(name, pace, keys=keys, skew=skew, drift=drift, seed=seed, start_time=start)
    elif name in _GENERATORS:
        schema = schema_of(SourceSpec(nexmark=NexmarkSourceSpec(stream=NexmarkStream(name))))
        events = pace.scaled(1 / share(name))
        source = NexmarkSource(name, schema, name, events, skew=skew, drift=drift, seed=seed, start_time=start)
    else:
        raise MillraceError(Problem(f"--generate {name} is unknown", f"write one of {', '.join(_GENERATORS)}"))
    return RecordInput(source.schema, partial(_generated, source))


def _generated(source: GeneratedSource) -> Iterator[pa.RecordBatch]:
    epoch = int(source.initial()["epoch"])
    for begin in itertools.count(step=_ROWS):
        for records in source.read(GeneratedRows(begin, begin + _ROWS, epoch), "produce"):
            assert not isinstance(records, Rejected)
            yield records
