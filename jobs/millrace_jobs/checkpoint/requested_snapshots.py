"""Snapshots that a query's annotation asks its driver for, and the report on all snapshots of a checkpoint.

A request is carried out once, also by a driver whose predecessor has died before it could report it: the manifest has
the time of the request. Of a removal, nothing is left that could have it, so a note beside the snapshots does.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import UTC, datetime

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.snapshots import MOST_REPORTED, ReportedSnapshot, SnapshotOrigin, SnapshotsReport
from millrace_api.model.values import SNAPSHOT_NAME
from millrace_jobs.checkpoint.automatic_snapshots import require_room
from millrace_jobs.checkpoint.object_lease import spark_place
from millrace_jobs.checkpoint.snapshot_manifest import MANIFEST, Snapshot, SnapshotReason
from millrace_jobs.checkpoint.snapshots import (
    ASKED,
    SNAPSHOTS,
    claim_on,
    names_of_snapshots,
    place_of_snapshot,
    remove,
    remove_files,
    snapshots_of,
    take,
)
from millrace_jobs.checkpoint.spark_folder import SparkLog
from millrace_jobs.places import Place, write_durably

_REMOVAL = "_removal.json"
"""File beside the snapshots with the name and the time of the last removal that was asked for, written before it.

No snapshot can have this name.
"""

_ORIGINS = {
    SnapshotReason.REQUEST: SnapshotOrigin.PERSON,
    SnapshotReason.SCHEDULE: SnapshotOrigin.CLOCK,
    SnapshotReason.CHANGE: SnapshotOrigin.CHANGE,
}


def take_requested(root: Place, name: str, asked: str, now: datetime) -> Snapshot | None:
    """Take the snapshot that was asked for at a time, unless it was taken then; None if no batch is finished yet.

    What a driver that died has left of it is removed first. Only the driver of a checkpoint may call it.

    Raises:
        MillraceError: another snapshot has the name, or it cannot be taken.
        OSError: the place cannot be read or written.
    """
    place = place_of_snapshot(root, name)
    if (claim_on(place) or "").startswith(ASKED):
        remove(place)
    if (place / MANIFEST).exists():
        found = Snapshot.read(place)
        if found.asked == asked:
            return found
        message = f"there is a snapshot {name} of batch {found.batch} already, taken at {_formatted(found.taken)}"
        raise MillraceError(Problem(message, f"ask for another name, or first for -{name}, which removes it"))
    if SparkLog(spark_place(root)).last_batch().committed is None:
        return None
    require_room(root)
    return take(root, name, now, asked=asked)


def remove_requested(root: Place, name: str, asked: str) -> None:
    """Remove a snapshot, whole or not, whoever has taken it, as was asked for at a time; do nothing if it was then.

    Only the driver of a checkpoint may call it.

    Raises:
        MillraceError: there is nothing.
        OSError: it cannot be removed.
    """
    note, removal = root / SNAPSHOTS / _REMOVAL, json.dumps({"name": name, "asked": asked}).encode()
    with suppress(FileNotFoundError):
        if note.read_bytes() == removal:
            remove_files(place_of_snapshot(root, name))  # with what a driver that died has left of it
            return
    if name not in names_of_snapshots(root):
        hint = "write - and the name of one; status.snapshots.newest has the newest"
        raise MillraceError(Problem(f"there is no snapshot {name}", hint))
    write_durably(note, removal)
    remove(place_of_snapshot(root, name))


def report_on(root: Place) -> SnapshotsReport:
    """Return the report on the whole snapshots of a checkpoint. Raises OSError if the place cannot be read.

    Those that comparisons take and remove are left out, and folders with names that no snapshot can have.
    """
    found = [each for each in snapshots_of(root) if each.reason in _ORIGINS and re.fullmatch(SNAPSHOT_NAME, each.name)]
    newest = [
        ReportedSnapshot(
            name=each.name,
            batch=each.batch,
            time=_formatted(each.taken),
            bytes=each.bytes,
            origin=_ORIGINS[each.reason],
        )
        for each in reversed(found[-MOST_REPORTED:])
    ]
    return SnapshotsReport(count=len(found), newest=tuple(newest))


def _formatted(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
