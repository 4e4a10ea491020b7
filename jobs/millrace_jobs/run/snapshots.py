"""The commands on snapshots by the place of their checkpoint: what they do, and the line that each prints."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.values import Duration
from millrace_jobs.checkpoint import snapshots
from millrace_jobs.checkpoint.marker import MARKER
from millrace_jobs.checkpoint.snapshot_manifest import Snapshot, SnapshotReason
from millrace_jobs.checkpoint.snapshots import names_of_snapshots, place_of_snapshot, snapshots_of
from millrace_jobs.places import Place, place_of
from millrace_jobs.run.checkpoints import reported

_TAKEN = {
    SnapshotReason.REQUEST: "",
    SnapshotReason.SCHEDULE: ", taken by the clock",
    SnapshotReason.CHANGE: ", taken before a change",
    SnapshotReason.COMPARISON: ", taken for a comparison",
}


def create(checkpoint: str, name: str) -> str:
    """Take a snapshot. Raises MillraceError if that is not possible; no whole snapshot is left then."""
    root = place_of(checkpoint)
    with reported(root):
        taken = snapshots.take(root, name)
    return f"snapshot {name}: {_described(taken)}"


def listed(checkpoint: str) -> list[str]:
    """Return a line for each snapshot: the whole ones, the oldest first, and then the others."""
    root = _checkpoint(checkpoint)
    with reported(root):
        found, names = snapshots_of(root), names_of_snapshots(root)
    width = max(map(len, names), default=0)
    lines = [f"{each.name:<{width}}  {each.taken:%Y-%m-%d %H:%M:%S}  {_described(each)}" for each in found]
    return lines + [f"{name:<{width}}  not whole" for name in names if name not in {each.name for each in found}]


def verified(checkpoint: str, name: str) -> str:
    """Compare a snapshot with its manifest. Raises MillraceError if it is not as it was taken."""
    place = place_of_snapshot(place_of(checkpoint), name)
    with reported(place):
        found = snapshots.verify(place)
    return f"snapshot {name} is as it was taken: {_described(found)}"


def restored(checkpoint: str, name: str, target: str) -> str:
    """Make a checkpoint of a snapshot. Raises MillraceError if it is damaged, or there is one in the target."""
    place, goal = place_of_snapshot(place_of(checkpoint), name), place_of(target)
    with reported(goal):
        found = snapshots.restore(place, goal)
    return f"restored batch {found.batch} of {found.query} to {target}: continue only one of the two checkpoints"


def removed(checkpoint: str, name: str) -> str:
    """Remove a snapshot. Raises MillraceError if it does not exist."""
    place = place_of_snapshot(place_of(checkpoint), name)
    with reported(place):
        snapshots.remove(place)
    return f"removed {name}"


def pruned(checkpoint: str, keep: int, older_than: str | None) -> Iterator[str]:
    """Remove the whole snapshots beyond the newest, and yield a line for each.

    Raises:
        MillraceError: there is no such checkpoint, or the duration is wrong.
    """
    root = _checkpoint(checkpoint)
    try:
        age = None if older_than is None else Duration(older_than).timedelta
    except ValueError as error:
        raise MillraceError(Problem(f"--older-than: {error}")) from None
    with reported(root):
        for each in snapshots.outdated(snapshots_of(root), keep, age, datetime.now(UTC)):
            snapshots.remove(place_of_snapshot(root, each.name))
            yield f"removed {each.name}"


def _checkpoint(text: str) -> Place:
    """Return the place of a checkpoint. Raises MillraceError if there is none."""
    root = place_of(text)
    with reported(root):
        if not (root / MARKER).exists():
            hint = "millrace checkpoint ls shows those in a place"
            raise MillraceError(Problem(f"there is no checkpoint {root}", hint))
    return root


def _described(snapshot: Snapshot) -> str:
    size = f"{snapshot.bytes / (1 << 20):,.1f} MiB in {len(snapshot.files):,} files"
    return f"batch {snapshot.batch} of {snapshot.query}, {size}{_TAKEN[snapshot.reason]}"
