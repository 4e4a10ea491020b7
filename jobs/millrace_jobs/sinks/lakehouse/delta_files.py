"""Files of a Delta table: as actions of a transaction, and small ones replaced by larger ones with the same rows.

The format is Delta's protocol (github.com/delta-io/delta, PROTOCOL.md, "Per-file Statistics"). Floating-point columns
get no bounds: Parquet's leave out NaN, which is larger than all others in Spark. A time's upper bound is rounded up to
milliseconds, as readers expect.

The library's own ``optimize`` is not used. Of two that begin at one version of a table, deltalake 1.6 commits both,
with or without retries or application transactions, and so has all of their rows twice in the table. Here a commit is
for the version that follows the one that was looked at, or fails.
"""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from millrace_jobs.lakehouse.delta_store import plain_path
from millrace_jobs.sinks.lakehouse.data_files import (
    SMALL_BYTES,
    DataFile,
    FileWriter,
    Folder,
    merging,
    opened_file,
    rewritten,
)

_LONGEST_TEXT = 64
"""Length above which a text is no bound, because each commit would repeat it."""

_MILLISECOND = timedelta(milliseconds=1)

_PLAIN = re.compile(r"(?!/)(?:[A-Za-z0-9_./=-]|%25[0-9A-Fa-f]{2})+")
"""Relative URIs that all writers write alike, so that the action that removes a file names it as it was added."""


def add_actions(
    files: Iterable[DataFile], schema: pa.Schema, *, data_change: bool = True
) -> list[AddAction | RemoveAction]:
    """Return the actions that add these files.

    ``schema`` has the columns of the files, without those that the table is partitioned by. ``data_change`` is whether
    their rows are new, and not those of other files that are removed.
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
            if rounded.replace(tzinfo=None) > datetime.max - _MILLISECOND:
                return None  # the next millisecond is of the year 10000, which no text here has
            rounded += _MILLISECOND
        text = rounded.replace(tzinfo=None).isoformat(timespec="milliseconds")
        return text if value.tzinfo is None else f"{text}Z"
    if isinstance(value, date):
        return value.isoformat()
    return float(value) if isinstance(value, Decimal) else value


@dataclass(frozen=True)
class _LoggedFile:
    """A file of the table, as its log has it; ``path`` is a URI, relative to the table's folder or absolute."""

    path: str
    size: int
    written: int
    values: dict[str, Any]


@dataclass(frozen=True)
class Rewrite:
    """Files of a table, and those that take their place."""

    old: tuple[_LoggedFile, ...]
    new: tuple[DataFile, ...]


def commit_rewrites(table: DeltaTable, planned: Iterable[Rewrite], schema: pa.Schema) -> None:
    """Replace files in the newest version of a table; what it has no longer, or has marked rows of, is not replaced.

    ``schema`` has the columns of the files.

    Raises DeltaError if another writer was faster: try again.
    """
    table.update_incremental()
    known = {each.path for each in _files(table)}
    actions: list[AddAction | RemoveAction] = []
    for each in planned:
        if all(file.path in known for file in each.old):
            actions += add_actions(each.new, schema, data_change=False)
            actions += [remove_action(unquote(file.path), file.size, file.values) for file in each.old]
    if actions:
        table.create_write_transaction(
            actions,
            mode="append",
            schema=table.schema(),
            partition_by=list(table.metadata().partition_columns),
            commit_properties=CommitProperties(max_commit_retries=0),
        )


def rewrites(table: DeltaTable, folder: Folder, schema: pa.Schema, field: str) -> Iterator[Rewrite]:
    """Write larger files with the rows of small ones, within each partition in their order; yield what they replace.

    Files whose names are not plain or lead out of the folder, such as those of a cloned table, and files of which rows
    are marked as deleted are left out.

    ``schema`` has the table's columns but those that it is partitioned by; ``field`` of the spec describes the table.
    """
    groups: dict[tuple[Any, ...], list[_LoggedFile]] = defaultdict(list)
    for each in _files(table):
        if each.size < SMALL_BYTES and _PLAIN.fullmatch(each.path) and ".." not in each.path.split("/"):
            groups[tuple(each.values.values())].append(each)
    for group in groups.values():
        for files in merging(sorted(group, key=lambda file: (file.written, file.path)), lambda file: file.size):
            rows = (batch for each in files for batch in _rows(folder, each.path, schema))
            written = rewritten(FileWriter(folder, "compacted-", schema, (), field), rows)
            yield Rewrite(tuple(files), tuple(replace(each, values=files[0].values) for each in written))


def has_deletion_vectors(table: DeltaTable) -> bool:
    """Return whether rows of the table's files may be marked as deleted, in other files that only such tables have."""
    return "deletionVectors" in (table.protocol().reader_features or ())


def _files(table: DeltaTable) -> list[_LoggedFile]:
    """Return the table's files without those of which rows are marked as deleted: no action of ours has the marks."""
    vectors = pa.table(table.deletion_vectors())["filepath"].to_pylist() if has_deletion_vectors(table) else []
    marked = set(map(plain_path, vectors))
    place = table.table_uri.rstrip("/")
    names = table.metadata().partition_columns
    return [
        _LoggedFile(
            each["path"],
            each["size_bytes"],
            each["modification_time"],
            {name: each[f"partition.{name}"] for name in names},
        )
        for each in pa.table(table.get_add_actions(flatten=True)).to_pylist()
        if not marked or plain_path(f"{place}/{each['path']}") not in marked
    ]


def _rows(folder: Folder, path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, with NULL in columns that were added to the table later."""
    with (
        opened_file(folder, unquote(path)) as stream,
        pq.ParquetFile(stream, coerce_int96_timestamp_unit="us") as file,  # as Spark writes them, from the year 1 on
    ):
        for batch in file.iter_batches():
            columns = [
                batch.column(each.name).cast(each.type)
                if each.name in batch.schema.names
                else pa.nulls(len(batch), each.type)
                for each in schema
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
