"""Incomplete records: those that are in no result because their key or their event time is NULL.

SQL has no row of a table without its primary key, and no window without a time. Such records are counted, so that what
a producer forgot to write is noticed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from millrace_api.model.streamquery import Spec


def required_columns(spec: Spec, name: str) -> tuple[str, ...]:
    """Return the columns in which a record of a source without a value is in no result.

    They are the key and the event time of a table, and for other sources the times that windows are over; under emit
    OnWindowClose also the event time of groups, which is never past if it is NULL.
    """
    # not with this module: tasks import it for ``incomplete``, and these take half a second of a core
    from millrace_api.model.streamquery import Emit
    from millrace_api.sql.parsed_query import parsed_sql
    from millrace_api.sql.window_columns import group_columns, window_columns

    source, python = spec.sources[name], spec.query.python
    if source.table is not None:
        times = [source.watermark.column] if source.watermark is not None and not source.is_static else []
        return (*source.table.keys, *times)
    if python is not None:
        return (python.window.column,) if python.window is not None else ()
    query = parsed_sql(spec)
    columns = {column for table, column in window_columns(query) if table == name.lower()}
    if spec.emit is Emit.ON_WINDOW_CLOSE and source.watermark is not None:
        time = source.watermark.column.lower()
        columns |= {time} & {column for table, column in group_columns(query) if table == name.lower()}
    return tuple(sorted(columns))


def incomplete(batch: pa.RecordBatch, required: Sequence[int]) -> int:
    """Return the number of records that have no value in at least one of the columns at these indexes."""
    columns = [batch.column(place) for place in required if batch.column(place).null_count]
    if len(columns) < 2:
        return sum(column.null_count for column in columns)
    return int(pc.sum(reduce(pc.or_, [column.is_null() for column in columns])).as_py())


def why_incomplete(records: int, spec: Spec) -> str:
    """Return one sentence on the incomplete records of a run."""
    reasons = []
    for name, source in spec.sources.items():
        columns = required_columns(spec, name)
        if columns and not source.is_static:
            place = "are no rows of its table" if source.table is not None else "are in no window or group that closes"
            reasons.append(f"those of source {name} without a value in {' or '.join(columns)} {place}")
    return f"incomplete={records}: these records are in no result: {'; '.join(reasons)}"
