"""The records that ``millrace produce`` sends: read from a file or made by a generator, and encoded as messages.

Encoders make message values that the Kafka source can decode, whole columns at a time.
"""

from __future__ import annotations

import base64
import io
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from fastavro.validation import ValidationError, validate

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.generators import NexmarkSourceSpec, NexmarkStream
from millrace_api.model.sources import SourceSpec
from millrace_api.validation.places import path_problem
from millrace_jobs.sources.base import Rejected
from millrace_jobs.sources.connector import schema_of
from millrace_jobs.sources.formats.avro_records import read_avro_schema
from millrace_jobs.sources.formats.column_types import TIMESTAMP, declared_schema, is_nested, taken_apart
from millrace_jobs.sources.formats.decoding import BadRecord
from millrace_jobs.sources.formats.file_formats import (
    FORMATS_BY_SUFFIX,
    blocks,
    file_format,
    first_byte,
    open_text,
)
from millrace_jobs.sources.formats.inferred_columns import inferred_schema
from millrace_jobs.sources.formats.messages import RAW
from millrace_jobs.sources.formats.text_conversions import bytes_of
from millrace_jobs.sources.generated.nexmark import NexmarkSource, share
from millrace_jobs.sources.generated.rows import GeneratedRows, GeneratedSource, RateSource
from millrace_jobs.sources.pacing import RatePace
from millrace_jobs.sources.stored_files import without_ending

_ROWS = 10_000  # rows that are generated at a time

_HINT = "give its columns with --schema"
_GENERATORS = ("rate", *(stream.value for stream in NexmarkStream))

Encode = Callable[[pa.RecordBatch], list[bytes]]
"""Function that returns one message value per record."""

_UNITS = {"seconds": 1_000_000, "milliseconds": 1_000, "microseconds": 1}
_CONTROLS = [chr(code) for code in range(0x20)]


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
    lines that are not blank, unparsed. Raises MillraceError if the file does not exist, has an unknown suffix, or its
    columns cannot be inferred or sent.
    """
    name = str(path)
    if not path.is_file():
        missing = "there is no such file", "write --input and a csv, json or parquet file"
        raise MillraceError(Problem(*(path_problem(name) or missing), name))
    format = FORMATS_BY_SUFFIX.get(without_ending(path).suffix)
    if format is None:
        hint = "name it *.csv, *.json, *.jsonl or *.parquet"
        raise MillraceError(Problem("its extension is not that of a known format", hint, name))
    if raw:
        if format == "parquet":
            raise MillraceError(Problem("has no lines to send", "send a text file, or use --format json", name))
        return RecordInput(RAW, partial(_lines, name))
    if ddl is not None:
        schema = declared_schema(ddl)
    else:
        schema = inferred_schema(name, format, header=header, delimiter=delimiter, hint=_HINT)
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


def generator_input(
    name: str, pace: RatePace, *, keys: int, skew: float, drift: float | None, seed: int, start: datetime | None
) -> RecordInput:
    """Return the endless rows of a generator whose event times follow ``pace``: ``rate``, or a NEXMark stream.

    Raises MillraceError if the name is unknown.
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


def json_encoder(schema: pa.Schema, timestamp_format: str) -> Encode:
    """Return an encoder that makes one JSON object per record, with every column and field, including those of NULL.

    DATE, BINARY (base64), NaN and infinities are strings.
    """

    def encode(records: pa.RecordBatch) -> list[bytes]:
        return _values(_objects(schema.names, records.columns, timestamp_format))

    return encode


def _objects(names: Sequence[str], columns: Sequence[pa.Array], timestamp_format: str) -> pa.Array:
    labels = [json.dumps(name, ensure_ascii=False) + ":" for name in names]
    parts: list[Any] = []
    for begin, column in zip(["{" + labels[0], *("," + label for label in labels[1:])], columns, strict=True):
        parts += [begin, pc.fill_null(_json_texts(column, timestamp_format), "null")]
    return pc.binary_join_element_wise(*parts, "}", "")


def _json_texts(column: pa.Array, timestamp_format: str) -> pa.Array:
    """Return a column's values as JSON; NULL stays NULL."""
    kind = column.type
    if is_nested(kind):
        return _nested_texts(column, timestamp_format)
    if pa.types.is_binary(kind):
        encoded = (None if value is None else base64.b64encode(value).decode() for value in column.to_pylist())
        texts = pa.array(list(encoded), pa.string())
    else:
        texts = plain_texts(column, timestamp_format)
    is_text = pa.types.is_string(kind) or pa.types.is_date(kind) or pa.types.is_binary(kind)
    if is_text or (kind == TIMESTAMP and timestamp_format == "iso"):
        return pc.binary_join_element_wise('"', _escaped(texts), '"', "")
    if pa.types.is_floating(kind) and pc.all(pc.is_finite(column)).as_py() is False:
        infinity = pc.if_else(pc.greater(column, 0.0), '"Infinity"', '"-Infinity"')
        return pc.if_else(pc.is_finite(column), texts, pc.if_else(pc.is_nan(column), '"NaN"', infinity))
    return texts


def _nested_texts(column: pa.Array, timestamp_format: str) -> pa.Array:
    parts, offsets = taken_apart(column, column.type)
    if offsets is None:
        texts = _objects([field.name for field in column.type], parts, timestamp_format)
        return pc.if_else(column.is_null(), None, texts)
    values = pc.fill_null(_json_texts(parts[-1], timestamp_format), "null")
    begin, end = "[]"
    if pa.types.is_map(column.type):
        values = pc.binary_join_element_wise('"', _escaped(parts[0]), '":', values, "")
        begin, end = "{}"
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, values), ",")
    return pc.if_else(column.is_null(), None, pc.binary_join_element_wise(begin, joined, end, ""))


def csv_encoder(schema: pa.Schema, timestamp_format: str) -> Encode:
    """Return an encoder that makes one CSV record per record, without a header, in the dialect of the CSV source.

    NULL is an empty field, the empty string is ``""``, and BINARY is text. The encoder raises MillraceError for a value
    that a record cannot hold.
    """
    for field in schema:
        if is_nested(field.type):
            raise _not_in_csv(field.name, "a nested type, which CSV cannot hold")
    is_alone = len(schema) == 1  # a blank line would not count as a record

    def text_of(column: pa.Array, field: pa.Field) -> pa.Array:
        try:
            texts = plain_texts(column, timestamp_format)
        except pa.ArrowInvalid:
            raise _not_in_csv(field.name, "bytes that are not text in UTF-8, which CSV cannot hold") from None
        if not (pa.types.is_string(field.type) or pa.types.is_binary(field.type)):
            return texts
        if is_alone and texts.null_count:
            raise _not_in_csv(field.name, "a NULL, which a line of CSV without other columns cannot hold")
        return _quoted(texts, every=is_alone)

    def encode(records: pa.RecordBatch) -> list[bytes]:
        columns = [text_of(column, field) for column, field in zip(records.columns, schema, strict=True)]
        absent = '""' if is_alone else ""
        return _values(pc.binary_join_element_wise(*(pc.fill_null(texts, absent) for texts in columns), ","))

    return encode


def _not_in_csv(column: str, what: str) -> MillraceError:
    return MillraceError(Problem(f"column {column} has {what}", "produce json instead"))


def key_encoder(column: str, timestamp_format: str) -> Callable[[pa.RecordBatch], list[bytes | None]]:
    """Return a function that makes a message key per record: the column's value as text, or None for NULL.

    BINARY values are used unchanged.
    """

    def encode(records: pa.RecordBatch) -> list[bytes | None]:
        values = records.column(column)
        return _values(values if pa.types.is_binary(values.type) else plain_texts(values, timestamp_format))

    return encode


def plain_texts(column: pa.Array, timestamp_format: str) -> pa.Array:
    """Return a column's values as text, neither quoted nor escaped.

    A TIMESTAMP becomes ISO 8601 or a number of time units since 1970, by ``timestamp_format``.
    """
    if column.type == TIMESTAMP:
        if timestamp_format == "iso":
            naive = column.cast(pa.timestamp("us")).cast(pa.string())
            return pc.binary_join_element_wise(pc.replace_substring(naive, " ", "T", max_replacements=1), "Z", "")
        micros = column.cast(pa.int64())
        unit = _UNITS[timestamp_format]
        whole = pc.divide(micros, unit)
        if pc.all(pc.equal(pc.multiply(whole, unit), micros)).as_py() is not False:
            return whole.cast(pa.string())
        return pc.divide(micros.cast(pa.float64()), float(unit)).cast(pa.string())
    return column.cast(pa.string())


def _escaped(texts: pa.Array) -> pa.Array:
    """Escape text for a JSON string. Most columns have nothing to escape, which is checked first."""
    if _holds(texts, '"\\'):
        texts = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    if _holds(texts, "".join(_CONTROLS)):
        for control in _CONTROLS:
            texts = pc.replace_substring(texts, control, json.dumps(control)[1:-1])
    return texts


def _quoted(texts: pa.Array, *, every: bool) -> pa.Array:
    """Return text as CSV fields: in quotes if necessary, or every one of them."""
    is_empty = pc.equal(pc.binary_length(texts), 0)
    if not every and not _holds(texts, '",\r\n') and not pc.any(is_empty).as_py():
        return texts
    needed = pc.or_(is_empty, pc.match_substring_regex(texts, '[",\r\n]'))
    inside = pc.replace_substring(texts, '"', '""')
    return pc.if_else(pc.or_(needed, every), pc.binary_join_element_wise('"', inside, '"', ""), texts)


def _holds(texts: pa.Array, characters: str) -> bool:
    """Return whether any text has any of these ASCII characters; several times faster than a regular expression."""
    wanted = np.zeros(256, np.bool_)
    wanted[list(characters.encode())] = True
    return bool(wanted[bytes_of(texts)].any())


def _values(texts: pa.Array) -> list[Any]:
    values: list[Any] = texts.cast(pa.binary()).to_pylist()
    return values


def avro_encoder(writer_schema: str) -> Encode:
    """Return an encoder for an Avro schema given as JSON text; messages lack the framing of a schema registry.

    Raises MillraceError if the schema is not valid. The encoder raises it for a record that does not fit the schema.
    """
    try:
        read_avro_schema(writer_schema)
    except ValueError as error:
        raise MillraceError(Problem(f"avro.writerSchema cannot be used: {error}", "correct it")) from None
    schema = fastavro.parse_schema(json.loads(writer_schema))

    def encode(records: pa.RecordBatch) -> list[bytes]:
        return [_avro(schema, record) for record in records.to_pylist()]

    return encode


def _avro(schema: fastavro.types.Schema, record: dict[str, object]) -> bytes:
    target = io.BytesIO()
    try:
        fastavro.schemaless_writer(target, schema, record)
        validate(record, schema)  # the writer makes false of a NULL boolean, and ignores the range of an int
        return target.getvalue()
    except ValidationError as error:
        why = ", ".join(map(str, error.errors))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        why = str(error)
    message = f"record {record} does not fit avro.writerSchema: {why}"
    raise MillraceError(Problem(message, "correct the writer schema, or the schema of the input"))
