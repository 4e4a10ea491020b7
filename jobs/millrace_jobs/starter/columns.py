"""The columns of a user's file: as SQL declares them, and which of them records can be grouped and windowed by."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from sqlglot.dialects.spark import Spark

from millrace_api.errors import MillraceError, Problem
from millrace_api.validation.places import path_problem
from millrace_jobs.sources.files.listing import FileListing
from millrace_jobs.sources.formats.column_types import TIMESTAMP, declared_schema, is_nested, spark_type
from millrace_jobs.sources.formats.file_formats import FORMATS_BY_SUFFIX, open_text
from millrace_jobs.sources.formats.inferred_columns import first_records, inferred_schema
from millrace_jobs.sources.formats.text_conversions import iso_timestamps, pattern_timestamps
from millrace_jobs.sources.stored_files import without_ending

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LEADING_ZERO = re.compile(r"-?0[0-9]")
_KEYWORDS = frozenset(Spark.Tokenizer.KEYWORDS)
"""Words of Spark SQL, most of which could be names all the same."""
_TIME_NAME = re.compile(r"(^|_)(at|date|epoch|time|timestamp|ts|when)$|(time|timestamp|[a-z](At|Date))$|_(ms|millis)$")
_EPOCHS = {"seconds": (10**9, 4 * 10**9), "milliseconds": (10**12, 4 * 10**12), "microseconds": (10**15, 4 * 10**15)}
"""Numbers that are times of 2001 to 2096, by their unit."""
_DAYS = ("dd.MM.yyyy", "MM/dd/yyyy", "dd/MM/yyyy", "yyyy/MM/dd", "d.M.yyyy", "M/d/yyyy", "d/M/yyyy", "dd-MM-yyyy")
_HOURS = (" HH:mm:ss", " HH:mm", "", " HH:mm:ss.SSS", "'T'HH:mm:ss", " H:mm")
_PATTERNS = tuple(f"{day}{hour}" for day, hour in product(_DAYS, _HOURS))
"""Common forms of times beside ISO 8601, the likelier of two first."""
_DELIMITERS = ",;\t|"
_QUOTED = re.compile(r'"[^"]*"')


@dataclass(frozen=True)
class Columns:
    """Columns of records: their schema, and how times are written that are numbers, by column.

    ``text_times`` are columns of text that seem to be times, with the likely pattern; empty if it is not known.
    ``uneven`` is how many of the first records have another number of fields than the header.
    """

    schema: pa.Schema
    time_formats: dict[str, str]
    delimiter: str
    text_times: dict[str, str]
    uneven: int = 0

    def with_time(self, name: str) -> Columns:
        """Return these columns with a text time as a TIMESTAMP that is read by its likely pattern."""
        index = self.schema.get_field_index(name)
        others = {other: pattern for other, pattern in self.text_times.items() if other != name}
        return replace(
            self,
            schema=self.schema.set(index, pa.field(name, TIMESTAMP)),
            time_formats=self.time_formats | {name: self.text_times[name]},
            text_times=others,
        )

    @property
    def ddl(self) -> str:
        """The columns as ``spec.sources.NAME.schema`` has them."""
        return ", ".join(f"{sql_name(field.name)} {_declared(field.type)}" for field in self.schema)

    @property
    def times(self) -> list[str]:
        """The paths of the event times that a window can be over, those of fields last."""
        return sorted((path for path, kind in _leaves(self.schema) if kind == TIMESTAMP), key=lambda path: "." in path)

    @property
    def time_notes(self) -> list[str]:
        """What to write so that columns of text that seem to be times are event times, in a sentence for each."""
        return [
            f"{name} is text that may be a time: for windows, declare it TIMESTAMP and write "
            f"timeFormats: {json.dumps({name: pattern or 'PATTERN'}, ensure_ascii=False)}"
            + ("" if pattern else " with a PATTERN such as dd.MM.yyyy HH:mm:ss")
            for name, pattern in self.text_times.items()
        ]

    @property
    def groups(self) -> list[str]:
        """The paths of the columns that records can be grouped by, texts first, and those that may be times last."""
        found = [(path, kind) for path, kind in _leaves(self.schema) if kind != TIMESTAMP and not is_nested(kind)]
        order = sorted(found, key=lambda each: (each[0] in self.text_times, not pa.types.is_string(each[1])))
        return [path for path, _ in order]


def first_file(input: Path) -> tuple[Path, Path]:
    """Return the file whose columns a query over a file, a folder or a pattern has, and the path that it reads.

    It reads a folder, and of one with other files, those that are named like the first one.

    Raises:
        MillraceError: the folder or pattern has no file of a known format.
    """
    listing = FileListing(str(input))
    if not listing.is_folder and not listing.pattern:
        return input, input
    files = sorted(Path(path) for path, _ in listing.entries() if Path(path).is_file())
    known = [file for file in files if without_ending(file).suffix in FORMATS_BY_SUFFIX]
    if not known:
        what = "is a folder" if listing.is_folder else "is a pattern"
        hint = "write --input and a csv, json or parquet file"
        raise MillraceError(Problem(f"{what} without a file of a known format", hint, str(input)))
    first = known[0]
    ending = without_ending(first).suffix + (first.suffix if without_ending(first) != first else "")
    is_mixed = any(format_of(file) != format_of(first) for file in known) or len(known) < len(files)
    return first, input / f"*{ending}" if listing.is_folder and is_mixed else input


def format_of(file: Path) -> str:
    """Return the format of a file by its name. Raises MillraceError if it is not a file, or its format is unknown."""
    if not file.is_file():
        missing = "there is no such file", "write --input and a csv, json or parquet file"
        raise MillraceError(Problem(*(path_problem(str(file)) or missing), str(file)))
    format = FORMATS_BY_SUFFIX.get(without_ending(file).suffix)
    if format is None:
        hint = "name it *.csv, *.json, *.jsonl or *.parquet"
        raise MillraceError(Problem("its extension is not that of a known format", hint, str(file)))
    return format


def columns_of_file(file: Path) -> Columns:
    """Return the columns of a CSV, JSON or Parquet file, by its first megabyte.

    Texts that are all times in ISO 8601 are TIMESTAMP, and so are whole numbers in a column named like a time, such as
    ``created_at``, that are times of this century. Digits of which some begin with 0, such as postal codes, are STRING.
    A few CSV records with another number of fields than the header are left out.

    Raises:
        MillraceError: the file does not exist, or its columns cannot be inferred.
    """
    format = format_of(file)
    hint = "correct the file, or write the query by hand: docs/reference/streamquery.md"
    delimiter = _delimiter(file) if format == "csv" else ","
    uneven: list[pa.csv.InvalidRow] = []
    schema = inferred_schema(str(file), format, delimiter=delimiter, nested=True, hint=hint, uneven=_skip)
    formats: dict[str, str] = {}
    text_times: dict[str, str] = {}
    _require_columns(schema.names, file)
    if format != "parquet":
        records = first_records(
            str(file), format, delimiter=delimiter, hint=hint, uneven=lambda row: _skip(row, uneven.append)
        )
        if len(uneven) > records.num_rows:  # not a few bad records: the delimiter or the header is not what it seems
            first_records(str(file), format, delimiter=delimiter, hint=hint)
        if format == "csv":
            schema = _with_codes(schema, str(file), delimiter, hint)
        fields = []
        for field in schema:
            values = records.column(field.name).combine_chunks()
            is_code = pa.types.is_string(field.type) and not pa.types.is_string(values.type)
            kind, written = (field.type, "") if is_code else _time_in(field, values)
            fields.append(pa.field(field.name, kind))
            if pa.types.is_string(kind) and not is_code:
                pattern = _pattern_of(values)
                if pattern or _TIME_NAME.search(field.name):
                    text_times[field.name] = pattern
            if written:
                formats[field.name] = written
        schema = pa.schema(fields)
    return Columns(schema, formats, delimiter, text_times, len(uneven))


def _skip(row: pa.csv.InvalidRow, note: Callable[[pa.csv.InvalidRow], object] = lambda _: None) -> str:
    note(row)
    return "skip"


def _delimiter(file: Path) -> str:
    """Return the character of which the header of a CSV file has most, among those that separate columns."""
    with open_text(str(file)) as stream:
        header = _QUOTED.sub("", stream.readline(1 << 16).decode(errors="replace"))
    return max(_DELIMITERS, key=header.count)


def _pattern_of(values: pa.Array) -> str:
    """Return the likely form of a column of texts that are all times; empty if they are not."""
    values = values.drop_null()
    if not len(values) or not values[0].as_py()[:1].isdigit():
        return ""
    for pattern in _PATTERNS:
        try:
            pattern_timestamps(values, pattern)
        except (ValueError, pa.ArrowException):
            continue
        return pattern
    return ""


def _require_columns(names: list[str], file: Path) -> None:
    """Refuse two columns of one name."""
    twice = next((name for name, count in Counter(map(str.lower, names)).items() if count > 1), None)
    if twice is not None:
        raise MillraceError(Problem(f"two columns are called {twice!r}", "rename one in the header", str(file)))


def _with_codes(schema: pa.Schema, path: str, delimiter: str, hint: str) -> pa.Schema:
    """Return the schema of a CSV file with STRING for whole numbers of which some are written with a leading 0."""
    numbers = [field.name for field in schema if pa.types.is_integer(field.type)]
    texts = first_records(path, "csv", delimiter=delimiter, hint=hint, texts=numbers, uneven=_skip) if numbers else None
    for name in numbers:
        assert texts is not None
        if any(_LEADING_ZERO.match(text) for text in texts.column(name).unique().to_pylist() if text is not None):
            schema = schema.set(schema.get_field_index(name), pa.field(name, pa.string()))
    return schema


def columns_of_ddl(ddl: str) -> Columns:
    """Return columns that are declared in SQL. Raises MillraceError if they are not."""
    return Columns(declared_schema(ddl), {}, ",", {})


def sql_name(path: str) -> str:
    """Return the path of a column as SQL has it: names that Spark would not take as they are, are quoted."""
    quoted = (
        name if _PLAIN_NAME.fullmatch(name) and name.upper() not in _KEYWORDS else f"`{name.replace('`', '``')}`"
        for name in path.split(".")
    )
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
