"""Spark's part of a checkpoint together with the marker, and the change of both when a copy takes its place.

A copy with another number of state partitions has one batch more than the original. The marker records that before the
copy is in force: whichever of the two a driver then finds, it knows the last batch that the sink has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from millrace_jobs.checkpoint.lease import FolderLease
from millrace_jobs.checkpoint.marker import Marker, Renumbered
from millrace_jobs.checkpoint.object_lease import ObjectLease, spark_place
from millrace_jobs.checkpoint.spark_folder import PARTITIONS, SparkLog, adopt, swap_in_copy
from millrace_jobs.checkpoint.state_schemas import point_to_own_schemas
from millrace_jobs.places import Place, may_be_away
from millrace_jobs.plan.log_entries import LogEntries
from millrace_jobs.sinks.base import LastBatch


class ChangeableState(SparkLog):
    """Spark's part of a checkpoint, whose state a copy may replace while this process is the driver."""

    def __init__(self, root: Place) -> None:
        super().__init__(partial(spark_place, root))
        self.root = root
        self._lease: FolderLease | ObjectLease | None = None
        self._marker: Marker | None = None
        self._sink_has_changed = False

    def last_batch(self) -> LastBatch:
        """Return the last batch begun and the last committed, and whether their results went to another sink.

        While this process holds the lease of an object store, the lease has the batch that was begun last: an old
        driver may have written another entry to Spark's log.
        """
        last = replace(super().last_batch(), elsewhere=self._sink_has_changed)
        renumbered = None if self._marker is None else self._marker.renumbered
        if renumbered is not None and last.committed == renumbered.batch:
            last = replace(last, results=renumbered.results)
        return replace(last, begun=self._lease.begun) if isinstance(self._lease, ObjectLease) else last

    @property
    def state_partitions(self) -> int:
        """The number of state partitions: from Spark's log, or from the marker if no batch has begun."""
        return int(self.settings().get(PARTITIONS, self._require_marker().state_partitions))

    def replace_spark(self, copy: Path) -> None:
        """Replace Spark's part by a changed copy of it: the one beside it, or for an object store any folder.

        Raises:
            MillraceError: another process is the driver, or may be.
            OSError: it cannot be replaced. It is then as before, or the next driver completes the change.
        """
        self._note_renumbered()
        if isinstance(self.spark, Path):
            swap_in_copy(self.spark)
            return
        assert isinstance(self._lease, ObjectLease)
        self._lease.replace_spark(copy)
        self.spark, self._entries = self._lease.spark, LogEntries(self._lease.spark)

    def adopt_spark(self, copy: Path, layout: Mapping[str, Any] | None = None) -> bool:
        """Put a copy of Spark's part in a folder in force, while Spark runs and the query does not.

        ``layout`` is that of the state in the copy, if it is another one: both change in one step.
        The part that was in force stays where it was, until the caller or the next driver removes it.

        Returns:
            False if the copy is gone, and nothing has changed.
        """
        assert isinstance(self.spark, Path)
        before = self._require_marker()
        self._note_renumbered(layout)
        place = adopt(self.spark, copy)
        if place is None:
            self._write_marker(before)
            return False
        self.spark, self._entries, self._marker = place, LogEntries(place), Marker.read(self.root)
        point_to_own_schemas(place)
        return True

    def _note_renumbered(self, layout: Mapping[str, Any] | None = None) -> None:
        """Record that a copy, in which the change of the state is one batch more, is about to be Spark's part."""
        last = self.last_batch()
        assert last.committed is not None, "its last batch is finished"
        numbers = Renumbered(last.committed + 1, last.known)
        self._write_marker(self._require_marker().before_copy(self.spark, numbers, layout))

    def _forget_change_not_made(self) -> None:
        """Take back what a dead process has recorded of a copy that never took the place of the original.

        Otherwise the next batch, which has the number of the copy's last one, would count as the change.
        """
        marker, committed = self._require_marker(), super().last_batch().committed
        numbers = marker.renumbered
        if numbers is None or committed is None or committed >= numbers.batch:
            return
        # an earlier change, which is in force, is the last batch of the log, if sinks have none of that number
        former = Renumbered(committed, numbers.results) if numbers.results < committed else None
        self._write_marker(replace(marker, renumbered=former))

    def note_state_partitions(self, partitions: int) -> None:
        """Record the number of state partitions in the marker, after it has changed in Spark's log."""
        self._write_marker(replace(self._require_marker(), state_partitions=partitions))

    def require_lease(self) -> None:
        """Ensure that this process is still the driver.

        Raises:
            MillraceError: another process is the driver, or may be.
        """
        if self._lease is not None:
            self._lease.check()

    def _write_marker(self, marker: Marker) -> None:
        with may_be_away(self.root):
            marker.write(self.root)
        self._marker = marker

    def _require_marker(self) -> Marker:
        if self._marker is None:
            self._marker = Marker.read(self.root)
        assert self._marker is not None, "the checkpoint has not been opened"
        return self._marker
