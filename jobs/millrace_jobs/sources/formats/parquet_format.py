"""Parquet files: their rows are read by the types that the file has, and converted to the declared ones.

Spark 2, Hive 3 and their like count days before 1582-10-15 in the Julian calendar. Everything else, and SQL, has the
proleptic Gregorian one. A day keeps its name: the Julian 1000-03-01 is read as 1000-03-01, as Spark reads it. Their
times before 1900 are also off by the difference between a zone's standard time and its local mean time: they can be
read only if the zone is UTC. Spark marks such files in their metadata (``DataSourceUtils.datetimeRebaseSpec``), and so
does Hive (HIVE-22589), which does not say what its times mean. Files of other writers have no mark and are taken as
they are.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from millrace_api.errors import MillraceError, Problem
from millrace_api.validation.places import is_object
from millrace_jobs.sources.formats.column_types import (
    TIMESTAMP,
    is_nested,
    leaf_count,
    parts_of,
    rebuilt,
    shown_names,
    with_parts,
)
from millrace_jobs.sources.formats.format_reader import MAX_ROWS, RejectIn
from millrace_jobs.sources.formats.typed_columns import TypedColumn, places_of
from millrace_jobs.sources.stored_files import open_bytes, unreadable

_DAY = 86_400_000_000
_FIRST_GREGORIAN = -141_427  # 1582-10-15, in days since 1970
_FIRST_EQUAL = -2_208_988_800_000_000
"""1900-01-01, in microseconds since 1970: from then on no zone has its local mean time."""
_UTC = {"UTC", "Etc/UTC", "GMT", "Etc/GMT", "Z", "Zulu", "UCT", "+00:00"}

_VERSION = b"org.apache.spark.version"
_ROWS = b"org.apache.spark.sql.parquet.row.metadata"
"""Metadata that every Spark writes; files with it and without a version are of Spark 2.4 or earlier."""

_MAGIC = b"PAR1"
_ENCRYPTED_MAGIC = b"PARE"

_READ_AS_BYTES = {"INTERVAL": pa.month_day_nano_interval(), "BSON": pa.binary(1)}
"""Converted types that Arrow reads as bytes, with types that are converted as these should be: never to text."""

_CALENDAR_HINT = "write the file again with Spark 3 or later, which is set to CORRECTED or to the time zone UTC"
_WHOLE_HINT = "write it elsewhere, and rename it into place when it is complete"


@dataclass(frozen=True)
class LegacyCalendar:
    """Which values of a file are in the legacy calendar, and the time zone of its writer, if known."""

    dates: bool
    int96: bool
    zone: str = ""

    def corrected(self, column: pa.Array) -> pa.Array:
        """Return dates or timestamps in the proleptic calendar.

        Raises ValueError if a time was written in another zone than UTC, or an unknown one.
        """
        if pa.types.is_date(column.type):
            days = _values(column.cast(pa.int32()))
            return pa.array(_gregorian(days).astype(np.int32), mask=_nulls(column)).cast(pa.date32())
        column = column.cast(TIMESTAMP)
        micros = _values(column.cast(pa.int64()))
        if not len(micros) or micros.min() >= _FIRST_EQUAL:
            return column
        if self.zone not in _UTC:
            zone = f"in {self.zone}" if self.zone else "in a time zone that it did not note"
            raise ValueError(f"a time before 1900 is in the old calendar of its writer, which was {zone}")
        days = micros // _DAY
        return pa.array(micros + (_gregorian(days) - days) * _DAY, mask=_nulls(column)).cast(TIMESTAMP)


def legacy_calendar(metadata: Mapping[bytes, bytes] | None) -> LegacyCalendar:
    """Return what the metadata of a Parquet file says about its calendar; files of other writers are proleptic."""
    known = metadata or {}
    if known.get(b"writer.date.proleptic") == b"false":
        return LegacyCalendar(True, True)
    if _VERSION not in known and _ROWS not in known:
        return LegacyCalendar(False, False)
    version = tuple(map(int, re.findall(r"\d+", known.get(_VERSION, b"2.4").decode())[:2]))
    return LegacyCalendar(
        version < (3, 0) or b"org.apache.spark.legacyDateTime" in known,
        version < (3, 1) or b"org.apache.spark.legacyINT96" in known,
        known.get(b"org.apache.spark.timeZone", b"").decode(),
    )


def _values(column: pa.Array) -> NDArray[np.int64]:
    values: NDArray[np.int64] = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return values


def _nulls(column: pa.Array) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return mask


def _gregorian(days: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the days since 1970 with the same names in the proleptic calendar (Richards' algorithms)."""
    is_julian = days < _FIRST_GREGORIAN
    if not is_julian.any():
        return days
    shifted = days[is_julian] + 2_440_588 + 32_082  # since the 1st of March of the year -4800
    year = (4 * shifted + 3) // 1461
    of_year = shifted - 1461 * year // 4
    month = (5 * of_year + 2) // 153  # 0 is March
    day = of_year - (153 * month + 2) // 5
    renamed = days.copy()
    renamed[is_julian] = (
        day + (153 * month + 2) // 5 + 365 * year + year // 4 - year // 100 + year // 400 - 32_044 - 2_440_588
    )
    return renamed


class NamesOfTable(Protocol):
    """The names that a table has for the fields of its files."""

    def named(self, stored: pa.Schema) -> pa.Schema:
        """Return the schema of a file with the names of the declared columns and their fields."""


@dataclass(frozen=True)
class ParquetFormat:
    """A reader of Parquet files: columns are found by name, and those that the schema does not name are ignored.

    A name in another case than the schema's is found if the file has no other such name. A value that does not fit is
    an error of the file, never a bad record. Files of a table have the names of ``table``; a column or field that was
    added to the table after a file was written is NULL.
    """

    schema: pa.Schema
    timestamp_format: str
    table: NamesOfTable | None = None

    def extent(self, path: str, size: int) -> int:
        """Return the number of rows."""
        with open_parquet(path) as file:
            return int(file.metadata.num_rows)

    def divisible(self, path: str) -> bool:
        """Return true: row groups are read one by one."""
        return True

    def check(self, path: str) -> None:
        """Check the columns in the file's footer; of a column whose type does not fit, also the values."""
        with open_parquet(path) as file:
            self._columns(file, path)

    def read(self, path: str, begin: int, end: int, reject: RejectIn) -> Iterator[pa.RecordBatch]:
        """Yield the rows ``[begin, end)``; other row groups are not read. ``reject`` is never called."""
        with open_parquet(path) as file:
            columns = self._columns(file, path)
            leaves = sorted({leaf for column in columns for leaf in column.leaves})
            tops = sorted({column.leaves[0] for column in columns if column.leaves})
            groups, first = _row_groups(file.metadata, begin, end)
            for batch in _batches(file, path, groups, leaves):
                skipped = max(begin - first, 0)
                part = batch.slice(skipped, max(end - max(begin, first), 0))
                if part.num_rows:
                    stored = dict(zip(tops, part.columns, strict=True))
                    arrays = [column.read(stored, part.num_rows, first + skipped + 1, path) for column in columns]
                    yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)
                first += batch.num_rows

    def _columns(self, file: pq.ParquetFile, path: str) -> list[_Column]:
        """Return the columns of the file for those of the schema. Raises MillraceError if one does not fit."""
        try:
            own = file.schema_arrow  # which Arrow converts again each time
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(path, error) from error
        stored = own if self.table is None else self.table.named(own)
        positions, folded = _positions(stored.names), _positions([name.lower() for name in stored.names])
        found, missing = {}, []
        for name in self.schema.names:
            places = positions.get(name) or folded.get(name.lower())
            if not places:
                missing.append(name)
                continue
            if len(places) > 1:
                message = f"has the column {name} {len(places)} times: {', '.join(stored.names[i] for i in places)}"
                raise MillraceError(Problem(message, "name every column of the file once", path))
            found[name] = places[0]
        if missing and self.table is None:
            message = f"has no column {', '.join(missing)}; it has {shown_names(stored.names) or 'no columns'}"
            raise MillraceError(Problem(message, "correct the schema", path))
        calendar = legacy_calendar(file.metadata.metadata)
        leaves = _positions([place[0] for place in file.reader.column_paths])
        return [
            self._column(file, path, field, stored.field(place), leaves[own.field(place).name], calendar)
            if (place := found.get(field.name)) is not None
            else _Column(TypedColumn(pa.null(), field, self.timestamp_format), (), ())
            for field in self.schema
        ]

    def _column(
        self,
        file: pq.ParquetFile,
        path: str,
        field: pa.Field,
        stored: pa.Field,
        leaves: list[int],
        calendar: LegacyCalendar,
    ) -> _Column:
        kinds = [file.schema.column(leaf) for leaf in leaves]
        is_known = leaf_count(stored.type) == len(leaves)  # unlike that of an extension with several
        found = _as_converted(stored.type, iter(kinds)) if is_known else stored.type
        whole = TypedColumn(found, field, self.timestamp_format, by_writer=self.table is not None)
        if not whole.fits:
            groups = list(range(file.metadata.num_row_groups))
            if any(batch.column(0).null_count < batch.num_rows for batch in _batches(file, path, groups, leaves)):
                raise MillraceError(Problem(whole.misfit, whole.hint, path))
            return _Column(whole, (), ())
        if not is_known:
            return _Column(whole, tuple(leaves), ())
        if self.table is not None and is_nested(stored.type):
            return _Column(whole, tuple(leaves), tuple(_of_leaf(calendar, kind) for kind in kinds), stored.type)
        needed, is_read = _needed(whole.found, field)
        read = [leaf for leaf, wanted in zip(leaves, is_read, strict=True) if wanted]
        calendars = [_of_leaf(calendar, kind) for kind, wanted in zip(kinds, is_read, strict=True) if wanted]
        return _Column(replace(whole, found=needed), tuple(read), tuple(calendars))


@dataclass(frozen=True)
class _Column:
    """A column of the file, by its places among the leaves of the file's schema; without any if it has no value.

    ``calendars`` has that of each leaf, and ``named`` is the type with the names of a table.
    """

    typed: TypedColumn
    leaves: tuple[int, ...]
    calendars: tuple[LegacyCalendar | None, ...]
    named: pa.DataType | None = None

    def read(self, stored: Mapping[int, pa.Array], rows: int, first_row: int, path: str) -> pa.Array:
        """Return the declared column of a batch whose columns, by their first leaves, are ``stored``."""
        if not self.leaves:
            return pa.nulls(rows, self.typed.field.type)
        column = stored[self.leaves[0]]
        if self.named is not None and self.named != column.type:
            column = column.view(self.named)
        if any(self.calendars):
            try:
                column = _corrected(column, iter(self.calendars))
            except ValueError as error:
                raise MillraceError(Problem(f"{self.typed.title}: {error}", _CALENDAR_HINT, path)) from None
        try:
            return self.typed.convert(column, first_row)
        except ValueError as error:
            raise MillraceError(Problem(str(error), self.typed.hint, path)) from None


def open_parquet(path: str) -> pq.ParquetFile:
    """Open a Parquet file. Raises MillraceError if it is not one, or is not whole.

    INT96 timestamps are read in microseconds: Arrow's default, nanoseconds, wraps outside the years 1677 to 2262.
    """
    try:
        content = open_bytes(path) if is_object(path) else pa.OSFile(os.fsencode(path))
        return pq.ParquetFile(content, coerce_int96_timestamp_unit="us")
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from error


def _positions(names: Sequence[str]) -> Mapping[str, list[int]]:
    positions: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        positions.setdefault(name, []).append(position)
    return positions


def _as_converted(found: pa.DataType, leaves: Iterator[pq.ColumnSchema]) -> pa.DataType:
    """Return a type in which the leaves that Arrow reads as bytes have types that are converted as these should be."""
    if not is_nested(found):
        return _READ_AS_BYTES.get(next(leaves).converted_type, found)
    return with_parts(found, [_as_converted(part.type, leaves) for part in parts_of(pa.field("", found))])


def _needed(found: pa.DataType, field: pa.Field) -> tuple[pa.DataType, list[bool]]:
    """Return a type that fits without what the schema does not name, and which of its leaves are left."""
    if not is_nested(field.type) or not is_nested(found):
        return found, [True] * leaf_count(found)
    places = places_of(found, field) or []
    declared = dict(zip(places, parts_of(field), strict=True))
    kinds, is_read, kept = [], [], []
    for place, part in enumerate(parts_of(pa.field("", found))):
        if place not in declared:
            is_read += [False] * leaf_count(part.type)
            continue
        kind, wanted = _needed(part.type, declared[place])
        kept.append(place)
        kinds.append(kind)
        is_read += wanted
    if pa.types.is_struct(found):
        return pa.struct([found.field(place).with_type(kind) for place, kind in zip(kept, kinds, strict=True)]), is_read
    return with_parts(found, kinds), is_read


def _corrected(column: pa.Array, calendars: Iterator[LegacyCalendar | None]) -> pa.Array:
    """Return a column whose leaves are in these calendars in that of SQL."""
    if is_nested(column.type):
        return rebuilt(column, pa.field("", column.type), lambda part, _: _corrected(part, calendars))
    calendar = next(calendars)
    return column if calendar is None else calendar.corrected(column).cast(column.type)


def _of_leaf(calendar: LegacyCalendar, leaf: pq.ColumnSchema) -> LegacyCalendar | None:
    """Return the calendar if the values of the leaf are in it. Timestamps without a zone never are."""
    if leaf.physical_type == "INT96":
        return calendar if calendar.int96 else None
    kind = json.loads(leaf.logical_type.to_json())
    is_zoned = kind.get("Type") == "Timestamp" and kind.get("isAdjustedToUTC")
    is_date = kind.get("Type") == "Date"
    return calendar if calendar.dates and (is_date or is_zoned) else None


def _batches(file: pq.ParquetFile, path: str, groups: list[int], leaves: list[int]) -> Iterator[pa.RecordBatch]:
    """Yield these leaves of the row groups, in their order in the file.

    They are selected by index: in a name, a dot would select the field of a STRUCT, and every column of that name.
    """
    try:
        yield from file.reader.iter_batches(MAX_ROWS, groups, sorted(set(leaves)))
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str, error: Exception) -> MillraceError:
    if is_object(path) and isinstance(error, OSError) and error.errno is not None:  # the store's, not the format's
        return unreadable(path, error)
    try:
        with open_bytes(path) as file:
            begin = file.read(len(_MAGIC))
            size = file.seek(0, 2)
            file.seek(max(size - len(_MAGIC), 0))
            end = file.read()
    except OSError as problem:
        return unreadable(path, problem)
    why, hint = str(error).splitlines()[0], _WHOLE_HINT
    if not begin:
        why = "it is empty"
    elif _ENCRYPTED_MAGIC in (begin, end) or "decrypt" in why or "ncrypted" in why:
        why, hint = "it is encrypted", "write it without encryption"
    elif begin != _MAGIC:
        why, hint = f"it begins with {begin!r}, not with {_MAGIC!r}", "name the format that the file has"
    elif end != _MAGIC:
        why = "its end is missing"
    elif isinstance(error, pa.ArrowNotImplementedError):
        hint = "write it without that"
    return MillraceError(Problem(f"cannot be read as parquet: {why}", hint, path))


def _row_groups(metadata: pq.FileMetaData, begin: int, end: int) -> tuple[list[int], int]:
    """Return the row groups with rows in ``[begin, end)``, and the row at which the first of them begins."""
    groups: list[int] = []
    first, row = 0, 0
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        if row < end and row + rows > begin:
            first = first if groups else row
            groups.append(group)
        row += rows
    return groups, first
