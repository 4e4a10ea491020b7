"""Files as actions of a Delta transaction, with statistics by which readers skip files.

The format is Delta's protocol (github.com/delta-io/delta, PROTOCOL.md, "Per-file Statistics"). Floating-point columns
get no bounds: Parquet's leave out NaN, which is larger than all others in Spark. A time's upper bound is rounded up to
milliseconds, as readers expect.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.transaction import AddAction, RemoveAction

from millrace_jobs.sinks.lakehouse.data_files import DataFile

_LONGEST_TEXT = 64
"""Length above which a text is no bound, because each commit would repeat it."""

_MILLISECOND = timedelta(milliseconds=1)


def add_actions(
    files: Iterable[DataFile], schema: pa.Schema, *, data_change: bool = True
) -> list[AddAction | RemoveAction]:
    """Return the actions that add these files.

    Args:
        files: the files, directly in the table's folder.
        schema: columns of the files; those that the table is partitioned by are not in them.
        data_change: whether their rows are new, and not those of other files that are removed.
    """
    now = int(time.time() * 1000)
    return [
        AddAction(
            path=each.name,
            size=each.size,
            partition_values={name: _partition_text(value) for name, value in each.values.items()},
            modification_time=now,
            data_change=data_change,
            stats=json.dumps(_statistics(each.metadata, schema)),
        )
        for each in files
    ]


def remove_action(path: str, size: int, values: Mapping[str, Any]) -> RemoveAction:
    """Return the action that removes a file whose rows are in others; ``values`` are those of its partition."""
    return RemoveAction(
        path=path,
        data_change=False,
        deletion_timestamp=int(time.time() * 1000),
        partition_values={name: _partition_text(value) for name, value in values.items()},
        size=size,
    )


def _partition_text(value: Any) -> str | None:
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _statistics(metadata: pq.FileMetaData, schema: pa.Schema) -> Mapping[str, Any]:
    nulls: dict[str, int] = {}
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    for number in range(metadata.num_columns):
        name = metadata.schema.column(number).path
        if name not in schema.names or pa.types.is_nested(schema.field(name).type):
            continue
        groups = [metadata.row_group(group).column(number).statistics for group in range(metadata.num_row_groups)]
        if not groups or any(each is None or not each.has_null_count for each in groups):
            continue
        nulls[name] = sum(each.null_count for each in groups)
        bounded = [each for each in groups if each.has_min_max]
        if len(bounded) == len([each for each in groups if each.num_values]) and bounded:
            low = _bound(min(each.min for each in bounded), up=False)
            high = _bound(max(each.max for each in bounded), up=True)
            if low is not None and high is not None:
                lowest[name], highest[name] = low, high
    return {"numRecords": metadata.num_rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls}


def _bound(value: Any, *, up: bool) -> Any:
    """Return a bound as JSON; None if the type or the value has none."""
    if isinstance(value, bool | float | bytes):
        return None
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT else None
    if isinstance(value, datetime):
        rounded = value - timedelta(microseconds=value.microsecond % 1000)
        if up and rounded != value:
            rounded += _MILLISECOND
        text = rounded.replace(tzinfo=None).isoformat(timespec="milliseconds")
        return text if value.tzinfo is None else f"{text}Z"
    if isinstance(value, date):
        return value.isoformat()
    return float(value) if isinstance(value, Decimal) else value
