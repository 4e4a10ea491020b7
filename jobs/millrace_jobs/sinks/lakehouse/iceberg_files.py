"""Files of an Iceberg table that are replaced or removed.

Files are replaced by files without some rows, or by fewer, larger ones. Both run in the driver, and read the table at
one of its snapshots. What they plan is committed only if that is still the current one. Old snapshots, and files
that no snapshot has, are removed.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, GreaterThanOrEqual, LessThanOrEqual, Reference
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile as FileEntry
from pyiceberg.table import FileScanTask, Table

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.values import PositiveDuration
from millrace_jobs.lakehouse.iceberg_io import FIELD, folder_of
from millrace_jobs.sinks.lakehouse.data_files import (
    SMALL_BYTES,
    DataFile,
    FileWriter,
    Folder,
    merging,
    opened_file,
    rewritten,
)
from millrace_jobs.sinks.lakehouse.iceberg_layout import arrow_schema
from millrace_jobs.stores.objects import ObjectPath

_ROW = "millrace_row"

_AGE, _KEPT = "history.expire.max-snapshot-age-ms", "history.expire.min-snapshots-to-keep"
"""Properties of a table: the age up to which snapshots stay, and how many stay whatever their age."""

_MOST = 1_000
"""Snapshots that stay, unless they are younger than an hour: each commit writes all of them to the table's metadata."""

_AN_HOUR = timedelta(hours=1)

_OTHER_PLACES = ("write.data.path", "write.metadata.path", "write.folder-storage.path", "write.object-storage.path")
"""Properties of a table by which its files are elsewhere than below its location, maybe among those of others."""


@dataclass(frozen=True)
class Replacement:
    """A file of the table, and the files that have those of its rows which stay."""

    old: tuple[FileEntry, ...]
    new: tuple[DataFile, ...]


def without_keys(table: Table, keys: pa.Table, folder: Folder, prefix: str) -> list[Replacement]:
    """Return replacements of the files that have rows with any of these keys.

    ``keys`` are the key columns, with the table's types and without NULL; new files have ``prefix`` in ``folder``.

    Raises MillraceError if a file has an earlier partitioning of the table.
    """
    found = []
    for task in table.scan(row_filter=_between(keys)).plan_files():
        scanned = ArrowScan(table.metadata, table.io, table.schema().select(*keys.column_names), AlwaysTrue())
        if not any(_places(rows, keys).size for rows in scanned.to_record_batches([task])):
            continue
        if task.file.spec_id != table.metadata.default_spec_id:
            message = f"the table has rows to replace in {task.file.file_path}, a file of an earlier partitioning"
            hint = "rewrite the table's old files by another engine, such as Spark's procedure rewrite_data_files"
            raise MillraceError(Problem(message, hint, field=f"{FIELD}.table"))
        rest = (_outside(rows, keys) for rows in _rows(table, task))
        found.append(Replacement((task.file,), tuple(_written(table, rest, folder, prefix))))
    return found


def merged(table: Table, folder: Folder, prefix: str) -> list[Replacement]:
    """Return replacements of small files by larger ones with the same rows, within each partition in their order."""
    groups: dict[Any, list[FileScanTask]] = defaultdict(list)
    for task in table.scan().plan_files():
        if task.file.spec_id == table.metadata.default_spec_id and task.file.file_size_in_bytes < SMALL_BYTES:
            groups[task.file.partition].append(task)
    found = []
    for group in groups.values():
        by_batch = sorted(group, key=lambda task: task.file.file_path)  # names of files begin with it
        for tasks in merging(by_batch, lambda task: task.file.file_size_in_bytes):
            rows = (each for task in tasks for each in _rows(table, task))
            old = tuple(task.file for task in tasks)
            found.append(Replacement(old, tuple(_written(table, rows, folder, prefix))))
    return found


def key_rows(folder: Folder, files: Sequence[DataFile], key: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Return the key columns of all rows in these files."""
    wanted = pa.schema([pa.field(name, schema.field(name).type) for name in key])
    parts = [wanted.empty_table()]
    for each in files:
        with opened_file(folder, each.name) as stream:
            parts.append(pq.read_table(stream, columns=list(key)).select(key).cast(wanted))
    return pa.concat_tables(parts)


def _between(keys: pa.Table) -> BooleanExpression:
    """Return a condition that all rows with these keys meet, by which files are skipped."""
    found: BooleanExpression = AlwaysTrue()
    for name in keys.column_names:
        values = keys.column(name)
        if pa.types.is_timestamp(values.type):
            values = values.cast(pa.int64())
        elif pa.types.is_date32(values.type):
            values = values.cast(pa.int32())
        if len(values) and (pa.types.is_integer(values.type) or pa.types.is_string(values.type)):
            bounds = pc.min_max(values).as_py()
            term = Reference(name)
            above = GreaterThanOrEqual(term=term, value=bounds["min"])
            below = LessThanOrEqual(term=term, value=bounds["max"])
            found = And(found, And(above, below))
    return found


def _rows(table: Table, task: FileScanTask) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, without those that the table says are deleted."""
    schema = arrow_schema(table.schema())
    scanned = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    for each in scanned.to_record_batches([task]):
        yield from pa.Table.from_batches([each]).cast(schema).to_batches()


def _outside(rows: pa.RecordBatch, keys: pa.Table) -> pa.RecordBatch:
    stays = np.ones(len(rows), bool)
    stays[_places(rows, keys)] = False
    return rows.filter(pa.array(stays))


def _places(rows: pa.RecordBatch, keys: pa.Table) -> np.ndarray[Any, Any]:
    names = keys.column_names
    own = pa.Table.from_batches([rows]).select(names).cast(keys.schema)
    numbered = own.append_column(_ROW, pa.array(np.arange(len(rows))))
    return np.asarray(numbered.join(keys, names, join_type="left semi")[_ROW].to_numpy())


def _written(table: Table, rows: Iterator[pa.RecordBatch], folder: Folder, prefix: str) -> list[DataFile]:
    filled = (each for each in rows if len(each))
    return rewritten(FileWriter(folder, prefix, arrow_schema(table.schema()), (), FIELD), filled)


def expire_snapshots(table: Table, retention: PositiveDuration) -> None:
    """Remove snapshots from the table's metadata that are older than the retention, or than the table keeps them.

    Of those that are older than an hour, the newest 1,000 stay at most, or as many as the table's own property says.
    The newest snapshot of each branch stays, and so does each one with a tag.
    """
    age = max(retention.microseconds // 1000, int(table.properties.get(_AGE, 0)))
    kept = int(table.properties.get(_KEPT, 1))
    newest = sorted(table.snapshots(), key=lambda each: each.timestamp_ms, reverse=True)
    named = {each.snapshot_id for each in table.refs().values()}
    now = datetime.now(UTC)
    oldest, fresh = ((now - each).timestamp() * 1000 for each in (timedelta(milliseconds=age), _AN_HOUR))
    old = [
        each.snapshot_id
        for place, each in enumerate(newest)
        if place >= kept
        and each.timestamp_ms < (fresh if place >= max(_MOST, kept) else oldest)
        and each.snapshot_id not in named
    ]
    if old:
        table.maintenance.expire_snapshots().by_ids(old).commit()


def remove_orphans(table: Table, retention: PositiveDuration) -> None:
    """Remove files in the table's folders that none of its snapshots has, and that are older than the retention.

    Younger ones may be those of a commit that is under way. Nothing is removed where the table shares its folders.
    """
    if any(name in table.properties for name in _OTHER_PLACES):
        return
    oldest = time.time_ns() - retention.microseconds * 1000
    old = {
        str(file): file
        for part in ("data", "metadata")
        for file in _older(folder_of(f"{table.location().rstrip('/')}/{part}"), oldest)
    }
    if not old:
        return
    for name in _used(table):  # what is in use is read after the listing
        old.pop(str(folder_of(name)), None)
    for file in old.values():
        with suppress(FileNotFoundError):
            file.unlink()


def _older(folder: Folder, oldest: int) -> Iterator[Folder]:
    """Yield the files below a folder that were written before this time."""
    if isinstance(folder, ObjectPath):
        for each in folder.listed(below=True)[0]:
            if each.mtime_ns < oldest:
                yield ObjectPath(folder.scheme, folder.bucket, each.key)
        return
    for file in folder.rglob("*") if folder.is_dir() else ():
        with suppress(FileNotFoundError):
            if file.is_file() and file.stat().st_mtime_ns < oldest:
                yield file


def _used(table: Table) -> Iterator[str]:
    """Yield the places of all files that the table's snapshots and metadata have."""
    newest = table.catalog.load_table(table.name())
    metadata = newest.metadata
    if metadata.table_uuid != table.metadata.table_uuid:
        raise NoSuchTableError(f"the table {'.'.join(table.name())} has been replaced by another one")
    yield newest.metadata_location
    yield from (each.metadata_file for each in metadata.metadata_log)
    yield from (each.statistics_path for each in (*metadata.statistics, *metadata.partition_statistics))
    known: set[str] = set()
    for snapshot in metadata.snapshots:
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(newest.io):
            if manifest.manifest_path not in known:
                known.add(manifest.manifest_path)
                yield manifest.manifest_path
                yield from (each.data_file.file_path for each in manifest.fetch_manifest_entry(newest.io))
