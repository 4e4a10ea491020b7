"""The columns of a user's file: as SQL declares them, and which of them records can be grouped and windowed by."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from millrace_api.errors import MillraceError, Problem
from millrace_api.validation.places import path_problem
from millrace_jobs.sources.formats.column_types import TIMESTAMP, declared_schema, is_nested, spark_type
from millrace_jobs.sources.formats.file_formats import FORMATS_BY_SUFFIX
from millrace_jobs.sources.formats.inferred_columns import first_records, inferred_schema
from millrace_jobs.sources.formats.text_conversions import iso_timestamps
from millrace_jobs.sources.stored_files import without_ending

_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")
_TIME_NAME = re.compile(r"(^|_)(at|date|epoch|time|timestamp|ts|when)$|(time|timestamp|[a-z](At|Date))$|_(ms|millis)$")
_EPOCHS = {"seconds": (10**9, 4 * 10**9), "milliseconds": (10**12, 4 * 10**12), "microseconds": (10**15, 4 * 10**15)}
"""Numbers that are times of 2001 to 2096, by their unit."""


@dataclass(frozen=True)
class Columns:
    """Columns of records: their schema, and how times are written that are not in ISO 8601, by column."""

    schema: pa.Schema
    time_formats: dict[str, str]

    @property
    def ddl(self) -> str:
        """The columns as ``spec.sources.NAME.schema`` has them."""
        return ", ".join(f"{sql_name(field.name)} {_declared(field.type)}" for field in self.schema)

    @property
    def times(self) -> list[str]:
        """The paths of the event times that a window can be over, those of fields last."""
        return sorted((path for path, kind in _leaves(self.schema) if kind == TIMESTAMP), key=lambda path: "." in path)

    @property
    def groups(self) -> list[str]:
        """The paths of the columns that records can be grouped by, texts first."""
        found = [(path, kind) for path, kind in _leaves(self.schema) if kind != TIMESTAMP and not is_nested(kind)]
        return [path for path, _ in sorted(found, key=lambda each: not pa.types.is_string(each[1]))]


def format_of(file: Path) -> str:
    """Return the format of a file by its name. Raises MillraceError if it is no file, or of no known format."""
    if not file.is_file():
        missing = "there is no such file", "write --input and a csv, json or parquet file"
        raise MillraceError(Problem(*(path_problem(str(file)) or missing), str(file)))
    format = FORMATS_BY_SUFFIX.get(without_ending(file).suffix)
    if format is None:
        hint = "name it *.csv, *.json, *.jsonl or *.parquet"
        raise MillraceError(Problem("the extension of its name stands for no known format", hint, str(file)))
    return format


def columns_of_file(file: Path) -> Columns:
    """Return the columns of a CSV, JSON or Parquet file, by its first megabyte.

    Texts that are all times in ISO 8601 are TIMESTAMP, and so are whole numbers in a column named like a time, such as
    ``created_at``, that are times of this century.

    Raises:
        MillraceError: the file does not exist, or its columns cannot be inferred.
    """
    format = format_of(file)
    hint = "correct the file, or write the query by hand: docs/reference/streamquery.md"
    schema, formats = inferred_schema(str(file), format, nested=True, hint=hint), {}
    if format != "parquet":
        records = first_records(str(file), format, hint=hint)
        fields = []
        for field in schema:
            kind, written = _time_in(field, records.column(field.name).combine_chunks())
            fields.append(pa.field(field.name, kind))
            if written:
                formats[field.name] = written
        schema = pa.schema(fields)
    return Columns(schema, formats)


def columns_of_ddl(ddl: str) -> Columns:
    """Return columns that are declared in SQL. Raises MillraceError if they are not."""
    return Columns(declared_schema(ddl), {})


def sql_name(path: str) -> str:
    """Return the path of a column as SQL has it: names with other characters than those of words are quoted."""
    quoted = (name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`" for name in path.split("."))
    return ".".join(quoted)


def _time_in(field: pa.Field, values: pa.Array) -> tuple[pa.DataType, str]:
    """Return the type of a text column, and how its times are written if it has times that are not in ISO 8601."""
    values = values.drop_null()
    if not len(values):
        return field.type, ""
    if pa.types.is_string(field.type):
        try:
            iso_timestamps(values)
        except (ValueError, pa.ArrowException):
            return field.type, ""
        return TIMESTAMP, ""
    if pa.types.is_integer(field.type) and _TIME_NAME.search(field.name):
        bounds = pc.min_max(values).as_py()
        for unit, (least, most) in _EPOCHS.items():
            if least <= bounds["min"] and bounds["max"] < most:
                return TIMESTAMP, unit
    return field.type, ""


def _leaves(fields: pa.Schema | pa.StructType, above: str = "") -> Iterator[tuple[str, pa.DataType]]:
    for field in fields:
        path = above + field.name
        if "." in field.name:
            continue  # its path would be that of a field of a struct
        if pa.types.is_struct(field.type):
            yield from _leaves(field.type, path + ".")
        else:
            yield path, field.type


def _declared(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(f'{sql_name(field.name)}: {_declared(field.type)}' for field in kind)}>"
    if pa.types.is_map(kind):
        return f"MAP<{_declared(kind.key_type)}, {_declared(kind.item_type)}>"
    return f"ARRAY<{_declared(kind.value_type)}>" if is_nested(kind) else spark_type(kind)
