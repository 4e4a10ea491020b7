"""Tables that are read once, when a query starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


def read_static_table(source: Source, keys: Sequence[str]) -> StaticTable:
    """Read all records of a source as a table with these columns as its primary key.

    Records with a NULL in the key are no rows, as in all tables.

    Raises:
        MillraceError: a record does not decode, under the policy ``fail``, or two records have the same key.
    """
    start = source.initial()
    pieces = source.slices(start, source.latest(start, everything=True), 1)
    read = [item for piece in pieces for item in source.read(piece, "table")]
    batches = [item for item in read if isinstance(item, pa.RecordBatch)]
    records = rows = pa.Table.from_batches(batches, source.schema)
    for key in keys:
        rows = rows.filter(rows.column(key).is_valid())
    _require_one_row_per_key(source.name, rows, keys)
    rejected = sum(item.records for item in read if isinstance(item, Rejected))
    return StaticTable(rows, rejected, records.num_rows - rows.num_rows)


def _require_one_row_per_key(name: str, rows: pa.Table, keys: Sequence[str]) -> None:
    equal = [normalized(rows.column(key).combine_chunks()) for key in keys]
    counts = pa.table(equal, names=list(keys)).group_by(list(keys)).aggregate([([], "count_all")])
    several = counts.filter(pc.greater(counts.column("count_all"), 1))
    if several.num_rows:
        key = ", ".join(f"{column} = {shown_value(several.column(column)[0])!r}" for column in keys)
        message = f"source {name}: the static table has {several.column('count_all')[0]} rows with the key {key}"
        hint = "keep one of them, or name more columns in keys"
        error = MillraceError(Problem(message, hint, field=f"spec.sources.{name}.table.keys"))
        error.failure = FailureClass.SOURCE
        raise error
