"""Snapshots that a driver takes by itself: when the next one is due, which ones are removed, and how one is taken.

The reason in its manifest makes a snapshot the driver's own, not its name.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.checkpoint.object_lease import spark_place
from millrace_jobs.checkpoint.snapshot_manifest import Snapshot, SnapshotReason
from millrace_jobs.checkpoint.snapshots import (
    SNAPSHOTS,
    claim_on,
    names_of_snapshots,
    place_of_snapshot,
    remove,
    snapshots_of,
    take,
)
from millrace_jobs.checkpoint.spark_folder import SparkLog
from millrace_jobs.places import Place, files_below

_RETRY = timedelta(minutes=10)
"""Time after a failure until the next attempt, at most."""

_WAIT = timedelta(seconds=10)
"""Time until the next look for a first finished batch, at most."""


class SnapshotSchedule:
    """When the next periodic snapshot is due, by the wall clock, which each method is given.

    Args:
        every: time from one snapshot to the next.
        newest: when the newest automatic snapshot was taken; None if there is none, which makes one due at once.
        now: the present time. A snapshot that was taken later by a clock that was wrong counts as taken now.
    """

    def __init__(self, every: timedelta, newest: datetime | None, now: datetime) -> None:
        self._every = every
        self.due = now if newest is None else min(newest, now) + every
        """When the next one is due."""

    def seconds_left(self, now: datetime) -> float:
        """Return the seconds until one is due, 0 if it is; never more than the time between two of them."""
        self.due = min(self.due, now + self._every)  # the clock was set back
        return max(0.0, (self.due - now).total_seconds())

    def taken(self, now: datetime) -> None:
        """Note that one was taken, or that the newest one is of the newest batch."""
        self.due = now + self._every

    def failed(self, now: datetime) -> None:
        """Note that an attempt failed: the next one follows sooner than after a snapshot."""
        self.due = now + min(self._every, _RETRY)

    def waits(self, now: datetime) -> None:
        """Note that no batch is finished yet."""
        self.due = now + min(self._every, _WAIT)


def expired(found: Sequence[Snapshot], keep: int, max_age: timedelta | None, now: datetime) -> list[Snapshot]:
    """Return the automatic snapshots that are beyond the newest ``keep``, or older than ``max_age``.

    The newest one stays in any case, and so does each that a person asked for. ``found`` begins with the oldest.
    """
    own = [each for each in found if each.reason.is_automatic]
    last = max(0, len(own) - keep)
    return [
        each
        for number, each in enumerate(own[:-1])
        if number < last or (max_age is not None and now - each.taken > max_age)
    ]


@dataclass(frozen=True)
class SnapshotAttempt:
    """What an attempt to take an automatic snapshot has come to.

    Attributes:
        snapshot: the one that was taken, or an earlier one of the same batch; None if no batch is finished.
        is_new: whether it was taken now.
        removed: names of the snapshots that were removed since they are too many or too old.
    """

    snapshot: Snapshot | None
    is_new: bool = False
    removed: tuple[str, ...] = ()


def take_automatically(
    root: Place, reason: SnapshotReason, keep: int, max_age: timedelta | None, now: datetime
) -> SnapshotAttempt:
    """Take a snapshot, unless there is one of the newest finished batch, and remove those that are expired.

    Parts of earlier attempts, of drivers that died, are removed first. Only the driver of a checkpoint may call it.

    Raises:
        MillraceError: it cannot be taken; in a folder, also if its volume may become full of it.
        OSError: the place cannot be read or written.
    """
    for name in names_of_snapshots(root):
        place = root / SNAPSHOTS / name
        if claim_on(place) in (SnapshotReason.SCHEDULE, SnapshotReason.CHANGE):
            remove(place)
    spark = spark_place(root)
    batch, found = SparkLog(spark).last_batch().committed, snapshots_of(root)
    if batch is None:
        return SnapshotAttempt(None)
    newest = next((each for each in reversed(found) if each.reason.is_automatic and each.batch == batch), None)
    is_new = newest is None
    if newest is None:
        require_room(root)
        name, names = name_at(now, reason), names_of_snapshots(root)
        same = sum(each.startswith(name) for each in names)  # of an earlier batch in this second
        newest = take(root, f"{name}-{same + 1}" if same else name, now, reason)
        found = [*found, newest]
    outdated = expired(found, keep, max_age, now)
    for each in outdated:
        remove(place_of_snapshot(root, each.name))
    return SnapshotAttempt(newest, is_new, tuple(each.name for each in outdated))


def name_at(now: datetime, reason: SnapshotReason) -> str:
    """Return the name of an automatic snapshot that is taken now: names of one reason are in the order of time."""
    what = "before-change" if reason is SnapshotReason.CHANGE else "periodic"
    return timed_name(what, now)


def timed_name(what: str, now: datetime) -> str:
    """Return the name of a snapshot that is taken now."""
    return f"{what}-{now.astimezone(UTC):%Y%m%d-%H%M%S}"


def require_room(root: Place) -> None:
    """Check that the volume has room for all that Spark has stored; an object store has.

    A link keeps what Spark would remove, so the snapshot may come to take as much beside what Spark then stores.

    Raises:
        MillraceError: it has not.
    """
    if not isinstance(root, Path):
        return
    needed, free = sum(size for _, size in files_below(spark_place(root))), shutil.disk_usage(root).free
    if free < needed:
        message = (
            f"no snapshot of {root} is taken, since its volume could become full: the snapshot may come to take "
            f"{_mebibytes(needed)}, and {_mebibytes(free)} are free"
        )
        hint = "write a smaller snapshots.keep, remove snapshots by millrace snapshot rm, or enlarge the volume"
        raise MillraceError(Problem(message, hint, field="spec.snapshots"))


def _mebibytes(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MiB"
