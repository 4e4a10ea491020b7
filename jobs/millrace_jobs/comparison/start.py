"""Where a comparison begins: with a snapshot of the old version's checkpoint, or at the beginning of the sources."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.checkpoint.checkpoint import checkpoint_root
from millrace_jobs.checkpoint.evolution import changes_on
from millrace_jobs.checkpoint.marker import Marker
from millrace_jobs.checkpoint.snapshot_manifest import MANIFEST, SnapshotReason
from millrace_jobs.checkpoint.snapshots import place_of_snapshot, restore, snapshots_of
from millrace_jobs.comparison.report import BEGINNING
from millrace_jobs.comparison.scratch_query import named
from millrace_jobs.places import Place
from millrace_jobs.run.checkpoints import reported
from millrace_jobs.stores.spark import use

_SPARK = "spark"


class SnapshotGoneError(MillraceError):
    """A snapshot does not exist any more: the retention of the query may have removed it before it was copied."""


def obstacle(old: StreamQuery, new: StreamQuery, place: Place) -> str:
    """Return why the new version cannot go on from the state of the old one in a place; empty if it can.

    Args:
        old: the version that runs.
        new: the version that is to follow it.
        place: a checkpoint of the old version or a snapshot of one, which may just have been removed.

    Raises:
        MillraceError: the place has a damaged marker.
        OSError: it cannot be read.
    """
    marker = Marker.read(place)
    if marker is None:
        return ""  # who reads more of it finds that it is gone
    before = marker.query.model_copy(update={"metadata": old.metadata})  # a snapshot may be of an earlier version
    forbidden, _ = changes_on(marker.layout, before, named(new, old.name))
    if not forbidden:
        return ""
    return f"the new version cannot go on from the state of the old one ({forbidden[0].field}: {forbidden[0]})"


def from_beginning_since(why: str) -> str:
    """Return the note of a comparison that begins with the sources."""
    return f"{why}: both read the records from the beginning, and windows that began before are not compared"


def start_of(old: StreamQuery, new: StreamQuery, wanted: str | None) -> tuple[str | None, str]:
    """Return the snapshot that a comparison begins with, and why there is none, if that is worth a note.

    Args:
        old: the version whose checkpoint has the snapshots.
        new: the version that is to go on from the same state.
        wanted: the name of a snapshot, or BEGINNING; None for the newest one that the new version can go on from.

    Raises:
        MillraceError: the new version cannot go on from the wanted one, or the checkpoint cannot be read.
    """
    checkpoint = old.spec.checkpoint
    on_volume = checkpoint is not None and checkpoint.uri is None  # which only the pods of the query have
    if wanted == BEGINNING or (wanted is None and on_volume):
        return None, ""
    use(old.spec.s3, old.spec.azure)
    root = checkpoint_root(old)
    with reported(root):
        found = [each.name for each in snapshots_of(root) if each.reason is not SnapshotReason.COMPARISON]
        name = wanted or (found[-1] if found else None)
        why = "" if name is None else obstacle(old, new, place_of_snapshot(root, name))
    if not why:
        return name, ""
    if wanted is not None:
        hint = f"write --from {BEGINNING}"
        raise MillraceError(Problem(f"{why}, so both cannot begin with the snapshot {wanted}", hint))
    return None, from_beginning_since(why)


def copy_snapshot(old: StreamQuery, name: str, target: Path) -> None:
    """Make a checkpoint of a snapshot of the old version's, once for all runs: retention may remove it meanwhile.

    Raises:
        SnapshotGoneError: it does not exist, as if it was removed before it was copied.
        MillraceError: it is damaged, or cannot be read.
    """
    place = place_of_snapshot(checkpoint_root(old), name)
    try:
        with reported(place):
            restore(place, target)
    except MillraceError as error:
        with reported(place):
            if not (place / MANIFEST).exists():
                raise SnapshotGoneError(*error.problems) from None
        raise


def continue_from(start: Path, checkpoint: Path) -> None:
    """Make the checkpoint of a run, of links to Spark's files, which are replaced and never changed in place."""
    shutil.copytree(start, checkpoint, ignore=lambda folder, _: [_SPARK] if Path(folder) == start else [])
    shutil.copytree(start / _SPARK, checkpoint / _SPARK, copy_function=os.link)
