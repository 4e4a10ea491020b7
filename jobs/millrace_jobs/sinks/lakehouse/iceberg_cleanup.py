"""Old snapshots of an Iceberg table, and files that no snapshot has."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from millrace_api.model.values import PositiveDuration
from millrace_jobs.lakehouse.iceberg_io import folder_of
from millrace_jobs.object_store import ObjectPath
from millrace_jobs.sinks.lakehouse.data_files import Folder

_AGE, _KEPT = "history.expire.max-snapshot-age-ms", "history.expire.min-snapshots-to-keep"
"""Properties of a table: the age up to which snapshots stay, and how many stay whatever their age."""

_MOST = 1_000
"""Snapshots that stay, unless they are younger than an hour: each commit writes all of them to the table's metadata."""

_AN_HOUR = timedelta(hours=1)

_OTHER_PLACES = ("write.data.path", "write.metadata.path", "write.folder-storage.path", "write.object-storage.path")
"""Properties of a table by which its files are elsewhere than below its location, maybe among those of others."""


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
