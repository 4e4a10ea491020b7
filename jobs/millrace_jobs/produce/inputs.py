"""The input of ``millrace produce``: the records of a file, its raw lines, or the rows of a generator."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.sources import NexmarkSourceSpec as NexmarkSpec
from millrace_api.model.sources import NexmarkStream, SourceSpec
from millrace_api.sql.schema_ddl import parse_schema
from millrace_jobs.sources.base import Rejected
from millrace_jobs.sources.formats.decoding import BadRecord
from millrace_jobs.sources.formats.file_formats import file_format
from millrace_jobs.sources.formats.messages import RAW
from millrace_jobs.sources.formats.schema import TIMESTAMP, arrow_schema
from millrace_jobs.sources.formats.text_files import blocks, first_byte, open_text
from millrace_jobs.sources.generated import GeneratedRows, GeneratedSource
from millrace_jobs.sources.nexmark import NexmarkSource, share
from millrace_jobs.sources.opening import schema_of
from millrace_jobs.sources.pacing import RatePace
from millrace_jobs.sources.rate import RateSource

_SUFFIXES = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}
_ROWS = 10_000
"""Rows that are generated at a time."""


class RecordInput(Protocol):
    """A finite or endless sequence of records."""

    @property
    def schema(self) -> pa.Schema:
        """Columns of the records."""
        ...

    def records(self) -> Iterator[pa.RecordBatch]:
        """Yield all records in order. Raises MillraceError if one cannot be read."""
        ...


@dataclass(frozen=True)
class FileInput:
    """The records of a CSV, JSON or Parquet file."""

    path: str
    format: str
    schema: pa.Schema
    header: bool
    delimiter: str
    timestamp_format: str

    def records(self) -> Iterator[pa.RecordBatch]:
        """Yield the records in the order of the file."""
        reader = file_format(
            self.format,
            self.schema,
            header=self.header,
            delimiter=self.delimiter,
            timestamp_format=self.timestamp_format,
        )
        extent = reader.extent(self.path, Path(self.path).stat().st_size)
        yield from reader.read(self.path, 0, extent, _refuse)


@dataclass(frozen=True)
class LinesInput:
    """The lines of a text file that are not blank, unparsed."""

    path: str
    schema: pa.Schema = RAW

    def records(self) -> Iterator[pa.RecordBatch]:
        """Yield the lines in the order of the file."""
        with open_text(self.path) as stream:
            for _, block in blocks(stream, self.path, first_byte(stream), 0, sys.maxsize):
                lines = [line.removesuffix(b"\r") for line in block.split(b"\n") if line.strip()]
                yield pa.RecordBatch.from_arrays([pa.array(lines, pa.binary())], schema=RAW)


@dataclass(frozen=True)
class GeneratorInput:
    """The rows of a generated stream, which has no end."""

    source: GeneratedSource

    @property
    def schema(self) -> pa.Schema:
        """Columns of the generated rows."""
        return self.source.schema

    def records(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows from row 0 on, without end."""
        epoch = int(self.source.initial()["epoch"])
        for begin in itertools.count(step=_ROWS):
            for records in self.source.read(GeneratedRows(begin, begin + _ROWS, epoch), "produce"):
                assert not isinstance(records, Rejected)
                yield records


def file_input(
    path: Path, ddl: str | None, *, raw: bool, header: bool, delimiter: str, timestamp_format: str
) -> FileInput | LinesInput:
    """Return the input for a file, in the format of its suffix.

    The columns are those of ``ddl`` if given, otherwise they are inferred from the file. ``raw`` sends its lines
    unparsed.

    Raises:
        MillraceError: the file does not exist, has an unknown suffix, or its columns cannot be inferred or sent.
    """
    name = str(path)
    if not path.is_file():
        raise MillraceError(Problem("there is no such file", "write --input and a csv, json or parquet file", name))
    format = _SUFFIXES.get(path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix)
    if format is None:
        raise MillraceError(Problem("is no file to send, by its name", "name it .csv, .json, .jsonl or .parquet", name))
    if raw:
        if format == "parquet":
            raise MillraceError(Problem("has no lines to send as they are", "send a text file, or --format json", name))
        return LinesInput(name)
    if ddl is not None:
        schema = arrow_schema([(column.name, column.type) for column in parse_schema(ddl)])
    else:
        schema = inferred_schema(name, format, header=header, delimiter=delimiter)
    return FileInput(name, format, schema, header, delimiter, timestamp_format)


def _refuse(path: str, bad: BadRecord) -> None:
    shown = bad.text if len(bad.text) <= 200 else bad.text[:200] + "..."
    message = f"{shown!r} is no record: {bad.reason}"
    raise MillraceError(Problem(message, "correct it, or say by --schema what the columns are", path, bad.line))


_SAMPLE = 1 << 20
"""Bytes of a text file from which its types are inferred."""
_TEXTS = (pa.types.is_null, pa.types.is_time, pa.types.is_large_string, pa.types.is_string_view)
_HINT = "say by --schema what its columns are"


def inferred_schema(path: str, format: str, *, header: bool, delimiter: str) -> pa.Schema:
    """Return the schema of a Parquet file, or infer it from the first megabyte of a CSV or JSON file.

    Raises:
        MillraceError: the file cannot be read, names no columns, or has a column of a type that sources do not support.
    """
    if format == "csv" and not header:
        raise MillraceError(Problem("a csv file without a header does not name its columns", _HINT, path))
    try:
        if format == "parquet":
            found = pq.read_schema(path)
        elif format == "csv":
            options = pa.csv.ConvertOptions(null_values=[""], strings_can_be_null=True)
            parse = pa.csv.ParseOptions(delimiter=delimiter)
            found = pa.csv.read_csv(_sample(path), parse_options=parse, convert_options=options).schema
        else:
            found = pa.json.read_json(_sample(path), pa.json.ReadOptions(block_size=2 * _SAMPLE)).schema
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise MillraceError(Problem(f"cannot be read as {format}: {error}", _HINT, path)) from None
    if not len(found):
        raise MillraceError(Problem("has no columns", _HINT, path))
    return pa.schema([(field.name, _type(field, path)) for field in found])


def _sample(path: str) -> pa.BufferReader:
    with open_text(path) as stream:
        return pa.BufferReader(b"".join(block for _, block in blocks(stream, path, first_byte(stream), 0, _SAMPLE)))


def _type(field: pa.Field, path: str) -> pa.DataType:
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if pa.types.is_timestamp(kind):
        return TIMESTAMP
    if any(check(kind) for check in _TEXTS):
        return pa.string()
    if pa.types.is_nested(kind) or pa.types.is_duration(kind) or pa.types.is_unsigned_integer(kind):
        raise MillraceError(Problem(f"column {field.name} is of type {kind}, which no source has", _HINT, path))
    return kind


NAMES = ("rate", *(stream.value for stream in NexmarkStream))


def generator(
    name: str,
    pace: RatePace,
    *,
    keys: int,
    skew: float,
    drift: float | None,
    seed: int,
    start: datetime | None,
) -> GeneratedSource:
    """Return a generator whose event times follow ``pace``: ``rate``, or a NEXMark stream.

    Raises:
        MillraceError: the name is unknown.
    """
    if name == "rate":
        return RateSource(name, pace, keys=keys, skew=skew, drift=drift, seed=seed, start_time=start)
    if name not in NAMES:
        raise MillraceError(Problem(f"--generate {name} is unknown", f"write one of {', '.join(NAMES)}"))
    schema = schema_of(name, SourceSpec(nexmark=NexmarkSpec(stream=NexmarkStream(name))))
    events = pace.scaled(1 / share(name))
    return NexmarkSource(name, schema, name, events, skew=skew, drift=drift, seed=seed, start_time=start)
