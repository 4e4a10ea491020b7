"""The snapshot from which a verified upgrade begins: one of the query's, or one of its own, which it removes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta

from millrace_api.errors import MillraceError
from millrace_jobs.checkpoint.automatic_snapshots import require_room, timed_name
from millrace_jobs.checkpoint.object_lease import spark_place
from millrace_jobs.checkpoint.snapshot_manifest import Snapshot, SnapshotReason
from millrace_jobs.checkpoint.snapshots import (
    claim_on,
    names_of_snapshots,
    place_of_snapshot,
    remove,
    snapshots_of,
    take,
)
from millrace_jobs.checkpoint.spark_folder import SparkLog
from millrace_jobs.places import Place
from millrace_jobs.run.checkpoints import reported

OLDEST = timedelta(days=1)
"""Age of the oldest snapshot to begin with: a topic may not have the records since an older one any more."""

_NAME = "comparison"
"""First part of the names of the snapshots that comparisons take."""


def usable_snapshot(found: Sequence[Snapshot], duration: timedelta, now: datetime) -> Snapshot | None:
    """Return the newest snapshot since which ``duration`` has passed; None if it is too old, or does not exist.

    Those that comparisons have taken do not count: the one that took it removes it. ``found`` begins with the oldest.
    """
    oldest = max(OLDEST, 2 * duration)
    for each in reversed(found):
        if each.reason is not SnapshotReason.COMPARISON and now - each.taken >= duration:
            return each if now - each.taken <= oldest else None
    return None


def has_state(root: Place) -> bool:
    """Whether a checkpoint has a finished batch."""
    try:
        return SparkLog(spark_place(root)).last_batch().committed is not None
    except FileNotFoundError:
        return False


def remove_left_over(root: Place) -> list[str]:
    """Remove the snapshots of comparisons that were killed, whole or not; return their names."""
    whole = {each.name: each.reason for each in snapshots_of(root)}
    found = [
        name
        for name in names_of_snapshots(root)
        if (whole[name] if name in whole else _reason_of_rest(root, name)) == SnapshotReason.COMPARISON
    ]
    for name in found:
        remove(place_of_snapshot(root, name))
    return found


def _reason_of_rest(root: Place, name: str) -> str | None:
    """Return why a snapshot that is not whole was taken; of one that was being removed, only its name says that."""
    reason = claim_on(place_of_snapshot(root, name))
    return SnapshotReason.COMPARISON if reason is None and name.startswith(f"{_NAME}-") else reason


@contextmanager
def own_snapshot(root: Place, now: datetime) -> Iterator[Snapshot]:
    """Take a snapshot of a checkpoint for the time of a block, and remove it in any case.

    Raises:
        MillraceError: it cannot be taken; in a folder, also if the volume may become full of it.
    """
    name = timed_name(_NAME, now)
    with reported(root):
        require_room(root)
    try:
        with reported(root):
            taken = take(root, name, now, SnapshotReason.COMPARISON)
        yield taken
    finally:
        try:
            _remove(root, name)
        except SystemExit:  # a signal while it is removed
            _remove(root, name)
            raise


def _remove(root: Place, name: str) -> None:
    with suppress(MillraceError, OSError):  # it was not taken, or the next comparison removes it
        remove(place_of_snapshot(root, name))
