"""The columns of a file that nothing declares: their names and types, inferred from its first megabyte."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.csv
import pyarrow.json

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.sources.formats.column_types import is_nested, parts_of, with_parts
from millrace_jobs.sources.formats.csv_parser import CsvQuotes
from millrace_jobs.sources.formats.file_formats import blocks, check_delimiter, first_byte, open_text
from millrace_jobs.sources.formats.parquet_format import open_parquet
from millrace_jobs.sources.formats.typed_columns import suitable_type

UnevenRow = Callable[[pa.csv.InvalidRow], str]
"""What is called for a row with another number of fields than the header; returns ``skip`` or ``error``."""

_SAMPLE = 1 << 20
"""Bytes of a text file from which its types are inferred."""


def inferred_schema(
    path: str,
    format: str,
    *,
    header: bool = True,
    delimiter: str = ",",
    nested: bool = False,
    hint: str,
    uneven: UnevenRow | None = None,
) -> pa.Schema:
    """Return the schema of a Parquet file, or infer it from the first megabyte of a CSV or JSON file.

    Args:
        path: the file.
        format: csv, json or parquet.
        header: whether a CSV file has a header.
        delimiter: what separates the columns of a CSV file.
        nested: whether columns may be structs, lists and maps.
        hint: what to do where the columns cannot be inferred.
        uneven: decides about each CSV row that has another number of fields than the header; None: they are refused.

    Raises:
        MillraceError: they cannot be inferred, or no source can read them.
    """
    if format == "parquet":
        try:
            found = open_parquet(path).schema_arrow
        except (pa.ArrowException, OSError) as error:
            raise MillraceError(Problem(f"cannot be read as parquet: {error}", hint, path)) from None
    else:
        found = first_records(path, format, header=header, delimiter=delimiter, hint=hint, uneven=uneven).schema
    if not len(found):
        raise MillraceError(Problem("has no columns", hint, path))
    columns = []
    for field in found:
        kind = _suitable(field.type) if nested else suitable_type(field.type)
        if kind is None:
            message = f"column {field.name} is of type {field.type}, which no source can read"
            raise MillraceError(Problem(message, hint, path))
        columns.append(pa.field(field.name, kind))
    return pa.schema(columns)


def _suitable(kind: pa.DataType) -> pa.DataType | None:
    """Return the type that a source reads a column of this type as; None if there is none."""
    if not is_nested(kind):
        return suitable_type(kind)
    fields = parts_of(pa.field("", kind))
    parts = [_suitable(field.type) for field in fields]
    return None if None in parts or not parts else with_parts(kind, parts)


def first_records(
    path: str,
    format: str,
    *,
    header: bool = True,
    delimiter: str = ",",
    hint: str,
    texts: Sequence[str] = (),
    uneven: UnevenRow | None = None,
) -> pa.Table:
    """Return the records in the first megabyte of a CSV or JSON file; as in ``inferred_schema``.

    The columns ``texts`` of a CSV file are as they are written, whatever they look like.
    """
    if format == "csv" and not header:
        raise MillraceError(Problem("a csv file without a header does not name its columns", hint, path))
    if format == "csv":
        check_delimiter(delimiter)
    try:
        if format == "csv":
            types = dict.fromkeys(texts, pa.string())
            options = pa.csv.ConvertOptions(column_types=types, null_values=[""], strings_can_be_null=True)
            parse = pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=uneven)
            return pa.csv.read_csv(_sample(path, CsvQuotes(delimiter)), parse_options=parse, convert_options=options)
        return pa.json.read_json(_sample(path), pa.json.ReadOptions(block_size=2 * _SAMPLE))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise MillraceError(Problem(f"cannot be read as {format}: {error}", hint, path)) from None


def _sample(path: str, quotes: CsvQuotes | None = None) -> pa.BufferReader:
    with open_text(path) as stream:
        read = blocks(stream, path, first_byte(stream, path), 0, _SAMPLE, quotes)
        return pa.BufferReader(b"".join(layout.text for _, layout in read))
