"""Inferring the columns of a file without a declared schema."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.sources.formats.schema import TIMESTAMP
from millrace_jobs.sources.formats.text_files import blocks, first_byte, open_text

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
