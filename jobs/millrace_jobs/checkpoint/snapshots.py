"""Snapshots of a checkpoint: named copies as of a committed batch, taken while the query runs.

A snapshot is in ``snapshots/NAME`` of its checkpoint, with the files of a checkpoint that no driver holds, and
``snapshot.json``, which has the size and the digest of every other file, and a digest of what it says itself. It is
written last: without it, a snapshot is not whole. In a folder, Spark's files are hard links: Spark replaces files, and
never changes one in place. In an object store, the store copies them, and snapshots share the copies of the state.

What sources, tables and policies record belongs to no batch. It is copied first, and counts only if the batch is still
the last one committed afterwards: a driver that died in that moment would have left the same.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.values import SNAPSHOT_NAME, SNAPSHOT_NAME_HINT
from millrace_jobs.checkpoint.marker import MARKER, Marker
from millrace_jobs.checkpoint.object_lease import begun_entries, spark_place
from millrace_jobs.checkpoint.shared_objects import SharedObjects, remove_unshared
from millrace_jobs.checkpoint.snapshot_files import files_at, require_named
from millrace_jobs.checkpoint.snapshot_manifest import (
    KEPT,
    MANIFEST,
    SHARED,
    Snapshot,
    SnapshotReason,
    StoredFile,
    damaged_snapshot,
)
from millrace_jobs.checkpoint.spark_folder import SparkLog
from millrace_jobs.disk import sync
from millrace_jobs.places import Place, files_below, folders_in, remove_all, within, write_durably
from millrace_jobs.stores.objects import ObjectPath

SNAPSHOTS = "snapshots"
"""The folder of a checkpoint that has its snapshots."""

RESTORING = "restoring"
"""File of a checkpoint that is being made of a snapshot, with the place of that; a process that died has left it."""

_CLAIM = "taking"
"""File of a snapshot that is being taken, with its reason."""

ASKED = "asked "
"""What that reason begins with if the query's annotation asks for the snapshot, so that its driver takes it."""

_ATTEMPTS = 20
"""How often the newest batch is tried, while Spark commits the next one, or removes what this one needs."""


def place_of_snapshot(root: Place, name: str) -> Place:
    """Return the place of a checkpoint's snapshot.

    Raises:
        MillraceError: the name cannot be that of a snapshot.
    """
    if not re.fullmatch(SNAPSHOT_NAME, name):
        raise MillraceError(Problem(f"{name!r} cannot be the name of a snapshot", SNAPSHOT_NAME_HINT))
    return root / SNAPSHOTS / name


def take(
    root: Place,
    name: str,
    now: datetime | None = None,
    reason: SnapshotReason = SnapshotReason.REQUEST,
    asked: str = "",
) -> Snapshot:
    """Take a snapshot of a checkpoint as of its newest committed batch; its query may run, and is not stopped.

    ``reason`` and ``asked`` are those of the snapshot.

    Raises:
        MillraceError: there is no checkpoint or no finished batch, the name is taken, or several batches in turn ended
            or lost their files before they could be kept.
        OSError: the place cannot be written. No whole snapshot is left.
    """
    target = place_of_snapshot(root, name)
    _claim(target, f"{ASKED}{asked}" if asked else reason)
    missing: FileNotFoundError | None = None
    try:
        shared = SharedObjects(target.parent, snapshots_of(root)) if isinstance(target, ObjectPath) else None
        for _ in range(_ATTEMPTS):
            try:
                snapshot = _take(root, target, now or datetime.now(UTC), reason, asked, shared)
                if missing is not None:
                    remove_unshared(target.parent)  # copies of files that Spark has replaced
                return snapshot
            except FileNotFoundError as error:
                missing = error
            for folder in ("spark", *KEPT):
                remove_all(target / folder)
    except BaseException:
        remove_files(target)
        raise
    remove_files(target)
    message = f"no snapshot of {root} could be taken: its files are replaced faster than they are kept ({missing})"
    raise MillraceError(Problem(message, "try again; if it fails again, write a longer batchInterval"))


def _claim(target: Place, reason: str) -> None:
    """Take a name, so that no other process takes a snapshot under it.

    Raises:
        MillraceError: it is taken, by a snapshot or by a process that is taking one.
    """
    if (target / MANIFEST).exists():
        raise MillraceError(Problem(f"there is a snapshot {target}", "give this one another name, or remove that one"))
    claim = target / _CLAIM
    if isinstance(claim, ObjectPath):
        is_ours = claim.create(reason.encode()) is not None
    else:
        claim.parent.mkdir(parents=True, exist_ok=True)
        try:
            with claim.open("x", encoding="utf-8") as file:
                file.write(reason)
            is_ours = True
        except FileExistsError:
            is_ours = False
    if not is_ours:
        message = f"another process is taking the snapshot {target}, or one that did was interrupted"
        raise MillraceError(Problem(message, "give this one another name, or remove that one by millrace snapshot rm"))


def _take(
    root: Place, target: Place, now: datetime, reason: SnapshotReason, asked: str, shared: SharedObjects | None
) -> Snapshot:
    marker = Marker.read(root)
    if marker is None:
        raise MillraceError(Problem(f"there is no checkpoint {root}", "millrace checkpoint ls shows those in a place"))
    spark = spark_place(root)
    batch = SparkLog(spark).last_batch().committed
    if batch is None:
        raise MillraceError(Problem(f"no batch of {root} is finished", "take the snapshot after its first results"))
    files: list[StoredFile] = []
    for folder in KEPT:
        kept = root / folder
        files += [_copy(within(kept, each), target, f"{folder}/{each}") for each, _ in files_below(kept)]
    if SparkLog(spark).last_batch().committed != batch:
        raise FileNotFoundError(f"{root}: batch {batch} is not the last one any more")
    begun = begun_entries(root) if isinstance(root, ObjectPath) else {}
    for each in files_at(spark, batch):
        log, _, number = each.partition("/")
        if log == "offsets" and int(number) in begun:  # an old driver may have replaced it in the log
            files.append(_written(target, f"spark/{each}", begun[int(number)].encode()))
        else:
            files.append(_keep(within(spark, each), target, f"spark/{each}", shared))
    require_named({file.name.removeprefix("spark/"): file.place(target) for file in files})
    again = Marker.read(root)
    if again is None or (again.layout, again.renumbered) != (marker.layout, marker.renumbered):
        raise FileNotFoundError(f"{root}: another state has taken the place of that of batch {batch}")
    marker.write(target)
    files.append(_described(target / MARKER, MARKER))
    if isinstance(target, Path):
        _sync_folders(target)
    if not (target / _CLAIM).exists():
        hint = "take it again, by one process at a time"
        raise MillraceError(Problem(f"the snapshot {target} was removed while it was being taken", hint))
    of = (target.name, marker.query.name, marker.id, batch)
    snapshot = Snapshot(*of, now, marker.versions, tuple(files), reason, asked)
    snapshot.write(target)
    (target / _CLAIM).unlink(missing_ok=True)
    return snapshot


def snapshots_of(root: Place) -> list[Snapshot]:
    """Return the whole snapshots of a checkpoint, the oldest first; without those whose manifest is damaged.

    Raises:
        OSError: the place cannot be read.
    """
    found = []
    for name in names_of_snapshots(root):
        with suppress(MillraceError):
            found.append(Snapshot.read(root / SNAPSHOTS / name))
    return sorted(found, key=lambda snapshot: (snapshot.taken, snapshot.name))


def names_of_snapshots(root: Place) -> list[str]:
    """Return the names of a checkpoint's snapshots, also of those that are not whole."""
    try:
        return [folder.name for folder in folders_in(root / SNAPSHOTS) if folder.name != SHARED]
    except FileNotFoundError:
        return []


def claim_on(place: Place) -> str | None:
    """Return who takes or has begun to take a snapshot that is not whole; None if it is whole or does not say.

    It is a ``SnapshotReason``, or begins with ``ASKED``.
    """
    with suppress(FileNotFoundError, ValueError):
        return None if (place / MANIFEST).exists() else (place / _CLAIM).read_text(encoding="utf-8")
    return None


def verify(place: Place) -> Snapshot:
    """Compare every file of a snapshot with its manifest, and return that.

    Raises:
        MillraceError: there is no whole snapshot; a file is missing or changed, which is named.
        OSError: a file cannot be read.
    """
    snapshot = Snapshot.read(place)
    for file in snapshot.files:
        try:
            found = _described(file.place(place), file.name)
        except FileNotFoundError:
            raise damaged_snapshot(place, f"{file.name} is gone") from None
        if found.bytes != file.bytes:
            raise damaged_snapshot(place, f"{file.name} has {found.bytes} bytes, and had {file.bytes}")
        if found.digest.partition(":")[0] != file.digest.partition(":")[0]:
            message = f"the snapshot {place} cannot be compared: it was moved between a folder and an object store"
            raise MillraceError(Problem(message, "move it by millrace snapshot restore"))
        if found.digest != file.digest:
            raise damaged_snapshot(place, f"{file.name} has other content than when it was taken")
    return snapshot


def is_being_restored(root: Place) -> bool:
    """Whether a checkpoint is being made of a snapshot there, or a process that did so has died."""
    return not (root / MARKER).exists() and (root / RESTORING).exists()


def require_no_snapshot(root: Place) -> None:
    """Refuse to run a query on a snapshot, or on a checkpoint of which a part is missing since it is being restored.

    Raises:
        MillraceError: the place is one of these.
    """
    if (root / MANIFEST).exists():
        hint = "make a checkpoint of it, by millrace snapshot restore"
        raise MillraceError(Problem(f"{root} is a snapshot, which never changes", hint, field="spec.checkpoint"))
    if is_being_restored(root):
        message = f"the checkpoint {root} is being restored from a snapshot, or that was interrupted"
        hint = "wait for its end, or run millrace snapshot restore again"
        raise MillraceError(Problem(message, hint, field="spec.checkpoint"))


def restore(place: Place, target: Place) -> Snapshot:
    """Make a checkpoint of a snapshot, in a place where there is nothing, or where an earlier attempt was interrupted.

    It has the id of the original: one of the two can be continued.

    Raises:
        MillraceError: the snapshot is not whole or damaged, a later version has written it, or there is something in
            ``target``.
        OSError: a place cannot be read or written.
    """
    snapshot, marker = verify(place), Marker.read(place)
    assert marker is not None, "the manifest has it"
    if not is_being_restored(target) and next(files_below(target), None) is not None:
        raise MillraceError(Problem(f"{target} is not empty", "name another place"))
    fill(place, target, marker, target / "spark")
    return snapshot


def fill(place: Place, target: Place, marker: Marker, spark: Place) -> None:
    """Make a checkpoint with this marker of a verified snapshot; what an interrupted attempt has left is removed.

    ``spark`` is the place of Spark's part in the checkpoint. Raises OSError if a place cannot be read or written.
    """
    write_durably(target / RESTORING, str(place).encode())
    (target / MARKER).unlink(missing_ok=True)
    for folder in (spark, *(target / name for name in KEPT)):
        remove_all(folder)
    for file in Snapshot.read(place).files:
        first, _, rest = file.name.partition("/")
        if file.name != MARKER:
            goal = within(spark, rest) if first == "spark" else within(target, file.name)
            write_durably(goal, file.place(place).read_bytes(), ".restored")
    marker.write(target)
    (target / RESTORING).unlink(missing_ok=True)


def remove(place: Place) -> None:
    """Remove a snapshot, whole or not.

    Raises:
        MillraceError: there is nothing.
        OSError: it cannot be removed.
    """
    if next(files_below(place), None) is None:
        raise MillraceError(Problem(f"there is no snapshot {place}", "millrace snapshot ls shows those that there are"))
    remove_files(place)


def remove_files(place: Place) -> None:
    """Remove what there is of a snapshot. Raises OSError if it cannot be removed."""
    (place / MANIFEST).unlink(missing_ok=True)  # first: what has it is whole
    remove_all(place)
    remove_unshared(place.parent)


def outdated(snapshots: Sequence[Snapshot], keep: int, age: timedelta | None, now: datetime) -> list[Snapshot]:
    """Return the snapshots before the newest ``keep``, with ``age`` only those that are older than that.

    ``snapshots`` are in the order of ``snapshots_of``.
    """
    beyond = snapshots[: max(0, len(snapshots) - keep)]
    return [each for each in beyond if age is None or now - each.taken > age]


def _keep(source: Place, target: Place, name: str, shared: SharedObjects | None) -> StoredFile:
    """Link a file that is never changed, or let the store copy it; one of the state may be ``shared``."""
    kept = within(target, name)
    if isinstance(source, ObjectPath):
        assert isinstance(kept, ObjectPath)
        if shared is not None and name.startswith("spark/state/"):
            return shared.keep(source, name)
        source.copy_to(kept)
    else:
        assert isinstance(kept, Path)
        kept.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, kept)
        except (FileNotFoundError, FileExistsError):
            raise
        except OSError:  # a file system without links, or another device
            shutil.copy2(source, kept)
            with kept.open("rb") as file:
                os.fsync(file.fileno())
    return _described(kept, name)


def _copy(source: Place, target: Place, name: str) -> StoredFile:
    """Copy a file that may grow or be replaced."""
    kept = within(target, name)
    write_durably(kept, source.read_bytes(), ".partial")
    return _described(kept, name)


def _written(target: Place, name: str, content: bytes) -> StoredFile:
    write_durably(within(target, name), content, ".partial")
    return _described(within(target, name), name)


def _described(file: Place, name: str) -> StoredFile:
    """Return a file's size and digest; those of an object are what its store says. Raises FileNotFoundError."""
    if isinstance(file, ObjectPath):
        size, tag = file.size_and_tag()
        return StoredFile(name, size, f"tag:{tag}")
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
        return StoredFile(name, content.tell(), f"sha256:{digest}")


def _sync_folders(root: Path) -> None:
    for folder, _, _ in os.walk(root):
        sync(Path(folder))
    sync(root.parent)
