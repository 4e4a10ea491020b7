"""Tables that are read as a whole: all rows of a source, or of a table of a database or a lakehouse."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.status import FailureClass
from millrace_jobs.shown_values import shown_value
from millrace_jobs.sources.base import Rejected, Source
from millrace_jobs.tables.merging import normalized


@dataclass(frozen=True)
class StaticTable:
    """The rows of a static table, and the numbers of records that do not decode, and that have NULL in their key."""

    rows: pa.Table
    rejected: int
    incomplete: int


@dataclass(frozen=True)
class TableLimits:
    """The most that a table may have: rows, and bytes of its rows in memory."""

    rows: int
    bytes: int


@dataclass(frozen=True)
class TableRead:
    """A table as of one moment: its version, None if it has none, and its rows, which are read as they are taken.

    It has at least ``least`` rows, as far as that is known before they are read.
    """

    version: str | None
    records: Iterator[pa.RecordBatch | Rejected]
    least: int = 0


class WholeTable(Protocol):
    """A table that can be read as a whole again and again."""

    def read(self, known: str | None) -> TableRead | None:
        """Return the table as it is now; None if its version is still the ``known`` one.

        Raises:
            MillraceError: it cannot be read; a TransientError if that may pass. So may the iteration of its rows.
        """
        ...


class RecordsAsTable:
    """The records of a source as a table.

    Args:
        source: the source.
    """

    def __init__(self, source: Source) -> None:
        self._source = source

    def read(self, known: str | None) -> TableRead:
        """Return all records that the source has now."""
        start = self._source.initial()
        pieces = self._source.slices(start, self._source.latest(start, everything=True), 1)
        return TableRead(None, (item for piece in pieces for item in self._source.read(piece, "table")))


def read_static_table(source: Source, keys: Sequence[str]) -> StaticTable:
    """Read all records of a source as a table with these columns as its primary key.

    Records with a NULL in the key are no rows, as in all tables.

    Raises:
        MillraceError: a record does not decode, under the policy ``Fail``, or two records have the same key.
    """
    return static_table(source.name, RecordsAsTable(source).read(None).records, source.schema, keys)


def static_table(
    name: str,
    records: Iterable[pa.RecordBatch | Rejected],
    schema: pa.Schema,
    keys: Sequence[str],
    limits: TableLimits | None = None,
    least: int = 0,
) -> StaticTable:
    """Read records as the rows of a table with these columns as its primary key; there are at least ``least``.

    Raises:
        MillraceError: two records have the same key, or there are more than the limits allow.
    """
    read: list[pa.RecordBatch] = []
    rejected = count = size = 0
    if limits is not None:
        _require_within(limits, least, size, name)
    for item in records:
        if isinstance(item, Rejected):
            rejected += item.records
            continue
        read.append(item)
        count += item.num_rows
        size += item.nbytes
        if limits is not None:
            _require_within(limits, count, size, name)
    found = rows = pa.Table.from_batches(read, schema)
    for key in keys:
        rows = rows.filter(rows.column(key).is_valid())
    _require_one_row_per_key(name, rows, keys)
    return StaticTable(rows, rejected, found.num_rows - rows.num_rows)


def _require_within(limits: TableLimits, rows: int, size: int, name: str) -> None:
    if rows > limits.rows:
        what, field, hint = f"more than {limits.rows:,} rows", "maxRows", "raise maxRows"
    elif size > limits.bytes:
        what, field, hint = f"more than {_shown(limits.bytes)} in memory", "maxSize", "raise maxSize"
    else:
        return
    message = f"source {name}: the static table has {what}"
    hint = f"{hint} and the memory of the driver and the executors, or read fewer rows and columns"
    raise _source_error(Problem(message, hint, field=f"spec.sources.{name}.table.{field}"))


def _shown(size: int) -> str:
    """Return a size as a query writes it."""
    return next(f"{size >> bits}{unit}" for unit, bits in (("g", 30), ("m", 20), ("k", 10)) if size % (1 << bits) == 0)


def _require_one_row_per_key(name: str, rows: pa.Table, keys: Sequence[str]) -> None:
    equal = [normalized(rows.column(key).combine_chunks()) for key in keys]
    counts = pa.table(equal, names=list(keys)).group_by(list(keys)).aggregate([([], "count_all")])
    several = counts.filter(pc.greater(counts.column("count_all"), 1))
    if several.num_rows:
        key = ", ".join(f"{column} = {shown_value(several.column(column)[0])!r}" for column in keys)
        message = f"source {name}: the static table has {several.column('count_all')[0]} rows with the key {key}"
        hint = "keep one of them, or name more columns in keys"
        raise _source_error(Problem(message, hint, field=f"spec.sources.{name}.table.keys"))


def _source_error(problem: Problem) -> MillraceError:
    error = MillraceError(problem)
    error.failure = FailureClass.SOURCE
    return error
