"""Columns whose values are in the path of a file, as Hive and Spark partition them: ``dt=2026-01-01/hour=03``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

import pyarrow as pa

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.sources.formats.format_reader import FormatReader, RejectIn
from millrace_jobs.sources.formats.text_values import from_text

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""What stands for NULL in a path."""


@dataclass(frozen=True)
class PathColumns:
    """The columns of a schema that paths have.

    A folder ``NAME=VALUE`` anywhere above the file gives the column of this name its value. ``%XX`` in either is a byte
    of UTF-8. Names are those of the schema; in another case, as Hive writes them, if they differ only in it.
    """

    schema: pa.Schema
    timestamp_format: str

    def values(self, path: str) -> list[pa.Array]:
        """Return the value of each column, as an array of one.

        Raises:
            MillraceError: the path lacks a column, has it twice, or has a value that is none of its type.
        """
        return [self._value(field, path) for field in self.schema]

    def _value(self, field: pa.Field, path: str) -> pa.Array:
        folders = [folder for folder in re.split("[/\\\\]", path)[:-1] if _is_of(folder, field.name)]
        if not folders:
            hint = f"move it to a folder {field.name}=VALUE, or leave {field.name} out of partitionColumns"
            raise MillraceError(Problem(f"its path has no folder {field.name}=..., a partition column", hint, path))
        if len(folders) > 1:
            message = f"its path has the partition column {field.name} twice: {' and '.join(folders)}"
            raise MillraceError(Problem(message, "name the folders otherwise", path))
        text = folders[0].partition("=")[2]
        try:
            value = None if text == NO_VALUE else unquote_to_bytes(text).decode()
            return from_text(pa.array([value], pa.string()), field, self.timestamp_format)
        except UnicodeDecodeError:
            said = f"{text!r} is not UTF-8"
        except ValueError as error:
            said = str(error)
        message = f"the folder {folders[0]} of its path has no value of the schema: {said}"
        raise MillraceError(Problem(message, "", path)) from None


@dataclass(frozen=True)
class ReaderWithPathColumns:
    """A file format that adds the columns of paths to what another one reads, which lacks them.

    A column of the same name in the file is not read: the path is what others have filtered by.
    """

    reader: FormatReader
    schema: pa.Schema
    columns: PathColumns

    def extent(self, path: str, size: int) -> int:
        """Return the length of a file."""
        return self.reader.extent(path, size)

    def divisible(self, path: str) -> bool:
        """Return whether a range of the file can be read without the data before it."""
        return self.reader.divisible(path)

    def check(self, path: str) -> None:
        """Check the columns of the path, and those that the file declares."""
        self.columns.values(path)
        self.reader.check(path)

    def read(self, path: str, begin: int, end: int, reject: RejectIn) -> Iterator[pa.RecordBatch]:
        """Yield the records that begin in the range."""
        values = dict(zip(self.columns.schema.names, self.columns.values(path), strict=True))
        for records in self.reader.read(path, begin, end, reject):
            first = pa.repeat(0, len(records))
            own = {name: array.take(first) for name, array in values.items()}
            arrays = [own[name] if name in own else records.column(name) for name in self.schema.names]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def path_columns(schema: pa.Schema, names: Sequence[str], timestamp_format: str) -> PathColumns:
    """Return the columns of these names."""
    return PathColumns(pa.schema([field for field in schema if field.name in names]), timestamp_format)


def _is_of(folder: str, name: str) -> bool:
    key, equals, _ = folder.partition("=")
    found = unquote_to_bytes(key).decode(errors="replace")
    return bool(equals) and found.lower() == name.lower()
