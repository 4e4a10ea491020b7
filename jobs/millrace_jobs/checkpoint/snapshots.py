"""Snapshots of a checkpoint: named copies as of a committed batch, taken while the query runs.

A snapshot is in ``snapshots/NAME`` of its checkpoint, with the files of a checkpoint that no driver holds, and
``snapshot.json``, which has the size and the digest of every other file. It is written last: without it, a snapshot is
not whole. In a folder, Spark's files are hard links: Spark replaces files, and never changes one in place. In an object
store, the store copies them.

What sources, tables and policies record belongs to no batch. It is copied first, and counts only if the batch is still
the last one committed afterwards: a driver that died in that moment would have left the same.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.checkpoint.evolution import check_changes
from millrace_jobs.checkpoint.marker import MARKER, Marker, Versions
from millrace_jobs.checkpoint.object_lease import begun_entries, spark_place
from millrace_jobs.checkpoint.snapshot_files import files_at
from millrace_jobs.checkpoint.spark_folder import SparkLog
from millrace_jobs.disk import sync
from millrace_jobs.places import Place, files_below, folders_in, place_of, remove_all, within, write_durably
from millrace_jobs.stores.objects import ObjectPath

SNAPSHOTS = "snapshots"
"""The folder of a checkpoint that has its snapshots."""

MANIFEST = "snapshot.json"

RESTORING = "restoring"
"""File of a checkpoint that is being made of a snapshot, with the place of that; a process that died has left it."""

FIELD = "fromSnapshot"
"""The field of ``spec.checkpoint`` that names the snapshot of a new query."""

_KEPT = ("sources", "policies", "tables")
"""What a query goes on from beside Spark's part and the marker."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")
_ATTEMPTS = 20
"""How often the newest batch is tried, while Spark commits the next one, or removes what this one needs."""


@dataclass(frozen=True)
class StoredFile:
    """A file of a snapshot: its name from there on, its size in bytes, and its SHA-256, or the tag of its object."""

    name: str
    bytes: int
    digest: str


@dataclass(frozen=True)
class Snapshot:
    """What a whole snapshot says of itself; ``checkpoint`` is the id of the one that it was taken of."""

    name: str
    query: str
    checkpoint: str
    batch: int
    taken: datetime
    versions: Versions | None
    files: tuple[StoredFile, ...]

    @property
    def bytes(self) -> int:
        """The size of all files, of which a folder stores only those that no other snapshot has."""
        return sum(file.bytes for file in self.files)

    @classmethod
    def read(cls, place: Place) -> Self:
        """Return what the snapshot in a place says of itself.

        Raises:
            MillraceError: there is no whole snapshot, or its manifest is damaged.
            OSError: the place cannot be read.
        """
        try:
            content = json.loads((place / MANIFEST).read_text(encoding="utf-8"))
            versions = content["versions"]
            return cls(
                content["name"],
                content["query"],
                content["checkpoint"],
                int(content["batch"]),
                datetime.fromisoformat(content["taken"]),
                None if versions is None else Versions(**versions),
                tuple(StoredFile(**file) for file in content["files"]),
            )
        except (FileNotFoundError, NotADirectoryError):
            message = f"there is no snapshot {place}, or it is not whole: it has no {MANIFEST}"
            raise MillraceError(Problem(message, "millrace snapshot ls shows the snapshots of a checkpoint")) from None
        except (ValueError, KeyError, TypeError):
            raise _damaged(place, f"{MANIFEST} is not what Millrace writes there") from None

    def write(self, place: Place) -> None:
        """Write the manifest, by which the snapshot becomes whole."""
        content: dict[str, Any] = asdict(self) | {"taken": self.taken.isoformat()}
        write_durably(place / MANIFEST, json.dumps(content, indent=1).encode())


def place_of_snapshot(root: Place, name: str) -> Place:
    """Return the place of a checkpoint's snapshot.

    Raises:
        MillraceError: the name cannot be that of a snapshot.
    """
    if not _NAME.fullmatch(name):
        hint = "write at most 63 of the characters a-z, 0-9, - and ., with a letter or digit at both ends"
        raise MillraceError(Problem(f"{name!r} cannot be the name of a snapshot", hint))
    return root / SNAPSHOTS / name


def take(root: Place, name: str, now: datetime | None = None) -> Snapshot:
    """Take a snapshot of a checkpoint as of its newest committed batch; its query may run, and is not stopped.

    What an earlier attempt under this name has left is removed first.

    Raises:
        MillraceError: there is no checkpoint or no finished batch, the name is taken, or several batches in turn ended
            or lost their files before they could be kept.
        OSError: the place cannot be written. No whole snapshot is left.
    """
    target = place_of_snapshot(root, name)
    if (target / MANIFEST).exists():
        raise MillraceError(Problem(f"there is a snapshot {target}", "give this one another name, or remove that one"))
    missing: FileNotFoundError | None = None
    for _ in range(_ATTEMPTS):
        remove_all(target)
        try:
            return _take(root, target, name, now or datetime.now(UTC))
        except FileNotFoundError as error:
            missing = error
        except BaseException:
            remove_all(target)
            raise
    remove_all(target)
    message = f"no snapshot of {root} could be taken: its files are replaced faster than they are kept ({missing})"
    raise MillraceError(Problem(message, "try again; if it fails again, millrace checkpoint show says what is there"))


def _take(root: Place, target: Place, name: str, now: datetime) -> Snapshot:
    marker = Marker.read(root)
    if marker is None:
        raise MillraceError(Problem(f"there is no checkpoint {root}", "millrace checkpoint ls shows those in a place"))
    spark = root / "spark" if isinstance(root, Path) else spark_place(root)
    batch = SparkLog(spark).last_batch().committed
    if batch is None:
        raise MillraceError(Problem(f"no batch of {root} is finished", "take the snapshot after its first results"))
    files: list[StoredFile] = []
    for folder in _KEPT:
        kept = root / folder
        files += [_copy(within(kept, each), target, f"{folder}/{each}") for each, _ in files_below(kept)]
    if SparkLog(spark).last_batch().committed != batch:
        raise FileNotFoundError(f"{root}: batch {batch} is not the last one any more")
    begun = begun_entries(root) if isinstance(root, ObjectPath) else {}
    for name_in_spark in files_at(spark, batch):
        if name_in_spark == f"offsets/{batch}" and batch in begun:  # an old driver may have replaced that in the log
            write_durably(within(target, f"spark/{name_in_spark}"), begun[batch].encode())
            files.append(_described(within(target, f"spark/{name_in_spark}"), f"spark/{name_in_spark}"))
        else:
            files.append(_keep(within(spark, name_in_spark), target, f"spark/{name_in_spark}"))
    files.append(_written(target, MARKER, marker))
    if isinstance(target, Path):
        _sync_folders(target)
    snapshot = Snapshot(name, marker.query.name, marker.id, batch, now, marker.versions, tuple(files))
    snapshot.write(target)
    return snapshot


def snapshots_of(root: Place) -> list[Snapshot]:
    """Return the whole snapshots of a checkpoint, the oldest first.

    Raises:
        MillraceError: a manifest is damaged.
        OSError: the place cannot be read.
    """
    places = (root / SNAPSHOTS / name for name in names_of_snapshots(root))
    found = [Snapshot.read(place) for place in places if (place / MANIFEST).exists()]
    return sorted(found, key=lambda snapshot: (snapshot.taken, snapshot.name))


def names_of_snapshots(root: Place) -> list[str]:
    """Return the names of a checkpoint's snapshots, also of those that are not whole."""
    try:
        return [folder.name for folder in folders_in(root / SNAPSHOTS)]
    except FileNotFoundError:
        return []


def verify(place: Place) -> Snapshot:
    """Compare every file of a snapshot with its manifest, and return that.

    Raises:
        MillraceError: there is no whole snapshot; a file is missing or changed, which is named.
        OSError: a file cannot be read.
    """
    snapshot = Snapshot.read(place)
    for file in snapshot.files:
        try:
            found = _described(within(place, file.name), file.name)
        except FileNotFoundError:
            raise _damaged(place, f"{file.name} is gone") from None
        if found.bytes != file.bytes:
            raise _damaged(place, f"{file.name} has {found.bytes} bytes, and had {file.bytes}")
        if found.digest != file.digest:
            raise _damaged(place, f"{file.name} has other content than when it was taken")
    return snapshot


def start_from(snapshot: str, root: Place, query: StreamQuery) -> None:
    """Make a new query's checkpoint of a snapshot, with an id of its own, since the query has sinks of its own.

    Raises:
        MillraceError: the snapshot is not whole or damaged, or the query cannot go on from its state.
        OSError: a place cannot be read or written.
    """
    place = place_of(snapshot)
    try:
        found, marker = Snapshot.read(place), Marker.read(place)
        if marker is None:
            raise _damaged(place, f"{MARKER} is gone")
        # Of two drivers that begin at once, both write the same.
        own = str(uuid.uuid5(uuid.UUID(found.checkpoint), f"{found.name} {found.taken} {root}"))
        marker = replace(marker, id=own, query=marker.query.model_copy(update={"metadata": query.metadata}))
        check_changes(marker.query, query, SparkLog(place / "spark"))
        restore(place, root, marker)
    except MillraceError as error:
        raise MillraceError(*(replace(each, field=f"spec.checkpoint.{FIELD}") for each in error.problems)) from None


def is_being_restored(root: Place) -> bool:
    """Whether a checkpoint is being made of a snapshot there, or a process that did so has died."""
    return not (root / MARKER).exists() and (root / RESTORING).exists()


def restore(place: Place, target: Place, own: Marker | None = None) -> Snapshot:
    """Make a checkpoint of a snapshot, in a place where there is nothing.

    Args:
        place: the snapshot.
        target: the checkpoint to be.
        own: its marker. None is that of the original, of whose id one checkpoint can be continued.

    Raises:
        MillraceError: the snapshot is not whole or damaged, or there is a checkpoint in ``target``.
        OSError: a place cannot be read or written.
    """
    snapshot = verify(place)
    unfinished = (target / RESTORING).read_text(encoding="utf-8") if is_being_restored(target) else None
    if (target / MARKER).exists() or (unfinished is None and next(files_below(target / "spark"), None) is not None):
        raise MillraceError(Problem(f"{target} has a checkpoint", "name another place"))
    if unfinished not in (None, str(place)):  # what an attempt with this snapshot has left is written over
        for folder in ("spark", *_KEPT):
            remove_all(target / folder)
    write_durably(target / RESTORING, str(place).encode())
    for file in snapshot.files:
        if file.name != MARKER:
            write_durably(within(target, file.name), within(place, file.name).read_bytes(), ".restored")
    marker = own or Marker.read(place)
    assert marker is not None, "the manifest has it"
    marker.write(target)
    (target / RESTORING).unlink(missing_ok=True)
    return snapshot


def remove(place: Place) -> None:
    """Remove a snapshot, whole or not.

    Raises:
        MillraceError: there is nothing.
        OSError: it cannot be removed.
    """
    if next(files_below(place), None) is None:
        raise MillraceError(Problem(f"there is no snapshot {place}", "millrace snapshot ls shows those that there are"))
    (place / MANIFEST).unlink(missing_ok=True)  # first: what has it is whole
    remove_all(place)


def outdated(snapshots: Sequence[Snapshot], keep: int, age: timedelta | None, now: datetime) -> list[Snapshot]:
    """Return the snapshots before the newest ``keep``, with ``age`` only those that are older than that.

    ``snapshots`` are in the order of ``snapshots_of``.
    """
    beyond = snapshots[: max(0, len(snapshots) - keep)]
    return [each for each in beyond if age is None or now - each.taken > age]


def _keep(source: Place, target: Place, name: str) -> StoredFile:
    """Link a file that is never changed, or let the store copy it."""
    kept = within(target, name)
    if isinstance(source, ObjectPath):
        assert isinstance(kept, ObjectPath)
        source.copy_to(kept)
    else:
        assert isinstance(kept, Path)
        kept.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, kept)
        except (FileNotFoundError, FileExistsError):  # gone, or another process takes a snapshot of this name
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


def _written(target: Place, name: str, marker: Marker) -> StoredFile:
    marker.write(target)
    return _described(target / name, name)


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


def _damaged(place: Place, why: str) -> MillraceError:
    message = f"the snapshot {place} is damaged: {why}"
    return MillraceError(Problem(message, "use another snapshot: millrace snapshot ls shows those that there are"))
