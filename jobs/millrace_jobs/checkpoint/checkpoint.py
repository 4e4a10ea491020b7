"""The checkpoint of a query: the query it belongs to, the driver that holds it, and Spark's logs and state.

Layout: ``millrace.json`` (the query it belongs to), ``lock`` and ``lease.json`` (the driver), ``sources/NAME`` (what a
source records besides its offsets), ``policies`` (what the partitioner replicas have learned), ``tables/NAME`` (the
contents of a static table that batches have joined), ``copies`` (of a run on this machine: local copies of the table in
its topic, which can be made again), ``repartitioned`` (a copy of the state that is being made, see ``handover``), and
``spark`` (Spark's own checkpoint: offsets with plans, commits, state), or ``spark-N`` (``spark_folder``).
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_api.model.status import FailureClass
from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.places import bucket_and_prefix, folder_of
from millrace_jobs.checkpoint.changeable_state import ChangeableState
from millrace_jobs.checkpoint.evolution import check_changes, check_layout
from millrace_jobs.checkpoint.folder_lock import LOCK, FolderLock
from millrace_jobs.checkpoint.forks import begin_from
from millrace_jobs.checkpoint.lease import FolderLease
from millrace_jobs.checkpoint.marker import MARKER, Marker, Versions, checkpoint_above
from millrace_jobs.checkpoint.object_lease import ObjectLease
from millrace_jobs.checkpoint.snapshots import is_being_restored, require_no_snapshot
from millrace_jobs.checkpoint.spark_folder import (
    SparkLog,
    damaged,
    possible_folders,
    recover,
    remove_outdated,
)
from millrace_jobs.checkpoint.state_schemas import point_to_own_schemas
from millrace_jobs.disk import path_for_spark
from millrace_jobs.places import Place, may_be_away, remove_all
from millrace_jobs.plan.log_entries import LogEntries
from millrace_jobs.sinks.base import ResultBatch
from millrace_jobs.stores.clients import AZURE
from millrace_jobs.stores.objects import ObjectPath

COPIES = "copies"
"""The folder for local copies in the checkpoint of a run on this machine."""


class Checkpoint(ChangeableState):
    """A checkpoint; once opened, this process holds it until it ends or calls ``close``."""

    def __init__(self, root: Place) -> None:
        super().__init__(root)
        self.policies = root / "policies"
        self._remarks: tuple[str, ...] = ()
        self._is_new = False
        self._lock: FolderLock | None = None

    def open(self, query: StreamQuery, partitions: int | None = None) -> None:
        """Take the checkpoint for this query, and create it if it does not exist; ``adopt`` completes the takeover.

        If no batch has begun, any query can take the checkpoint: nothing in it depends on the query that created it.

        Args:
            query: the query to run.
            partitions: number of state partitions of a new checkpoint; None: at most one per core of this machine.

        Raises:
            MillraceError: the checkpoint cannot be written, is in use, is damaged, or belongs to a query that this
                one cannot continue. Nothing has been changed then.
        """
        try:
            self._take(query, partitions or query.spec.state_partitions(os.cpu_count() or 2))
        except BaseException:
            if self.may_be_withdrawn():
                self.withdraw()
            self.close()
            raise

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold an existing checkpoint without running its query.

        Raises:
            MillraceError: a driver holds it, or may.
        """
        try:
            self._take_lock()
            self._take_lease()
            if isinstance(self.spark, Path):
                recover(self.spark)
                remove_outdated(self.spark)
            yield
        except BlockingIOError:
            raise _problem(f"another run is using the checkpoint {self.root}", "end that run first") from None
        finally:
            self.close()

    def holder(self) -> str | None:
        """Return which process holds the checkpoint as far as its lease says; None if none does."""
        lease = FolderLease(self.root) if isinstance(self.root, Path) else ObjectLease(self.root)
        held = lease.holder()
        return None if held is None or held.is_dead() else str(held)

    def _take(self, query: StreamQuery, partitions: int) -> None:
        try:
            if isinstance(self.root, Path):
                self._require_no_other_above(self.root)
            self._take_lock()
            self._begin_from_snapshot(query)
            held = Marker.read(self.root)
            require_no_snapshot(self.root)
            if held is None and any((self.spark / log).exists() for log in ("offsets", "commits")):
                raise damaged(self.root / MARKER, "it is gone")
            unused = self.is_unused()
            if held is not None and not unused:
                self._remarks = check_changes(held.query, query, self, held.layout)
                sink = query.spec.sink
                self._sink_has_changed = sink.records_batches and not sink.is_place_of(held.query.spec.sink)
            if self._lease is None:
                self._take_lease()
            if isinstance(self.spark, Path):
                recover(self.spark)
                remove_outdated(self.spark)
            self.check()
            point_to_own_schemas(self.spark)
            self._is_new = held is None
            if held is None:
                self._write_marker(Marker(str(uuid.uuid4()), _without_status(query), partitions))
            elif unused:  # nothing depends on the earlier query
                self._forget_other_sources(held.query, query)
                self._write_marker(Marker(held.id, _without_status(query), partitions))
            else:
                self._marker = held
                self._forget_change_not_made()
        except BlockingIOError:
            raise _problem(f"another run is using the checkpoint {self.root}", "end that run first") from None
        except OSError as error:
            if isinstance(self.root, ObjectPath):
                store = "spec.azure" if self.root.scheme == AZURE else "spec.s3 or AWS_ENDPOINT_URL, the region"
                hint = f"check {store}, and that the login may list, read, write and delete"
                unusable = _problem(f"the checkpoint {self.root} cannot be used: {error.strerror}", hint)
                unusable.failure = FailureClass.STORE
                raise unusable from None
            hint = "free some space there, or write spec.checkpoint.uri with a folder that this user may write to"
            raise _problem(f"the checkpoint {self.root} cannot be written: {error.strerror}", hint) from None

    def _begin_from_snapshot(self, query: StreamQuery) -> None:
        """Make a checkpoint that has had no batch from the snapshot that its query names, if it names one."""
        named = None if query.spec.checkpoint is None else query.spec.checkpoint.from_snapshot
        if named is None or not (is_being_restored(self.root) or self.is_unused()):
            return
        self._take_lease()
        begin_from(named, self.root, self.spark, query)
        if isinstance(self._lease, ObjectLease):
            self._lease.restore()
            self._entries = LogEntries(self.spark)

    def _take_lease(self) -> None:
        """Become the driver, and put right what an old one may have written to Spark's log."""
        if isinstance(self.root, Path):
            folder_lease = FolderLease(self.root)
            folder_lease.take()
            self._lease = folder_lease
            return
        lease = ObjectLease(self.root)
        lease.take()
        self._lease = lease
        self.spark, self._entries = lease.spark, LogEntries(lease.spark)
        lease.restore()

    @staticmethod
    def _require_no_other_above(root: Path) -> None:
        if (other := checkpoint_above(root.parent)) is not None:
            message = f"the checkpoint {root} is within the checkpoint {other}"
            raise MillraceError(Problem(message, "write a folder outside of it", field="spec.checkpoint"))

    def _take_lock(self) -> None:
        """Take this machine's lock on a folder; raise BlockingIOError if another process has it."""
        if isinstance(self.root, Path):
            self._lock = FolderLock(self.root)
            self._lock.take()

    def _forget_other_sources(self, before: StreamQuery, now: StreamQuery) -> None:
        """Remove the folders of sources that have changed: what they record belongs to the old definition."""
        for name, source in before.spec.sources.items():
            if now.spec.sources.get(name) != source:
                remove_all(self.source_folder(name))

    def adopt(self, query: StreamQuery) -> tuple[str, ...]:
        """Record this query as the checkpoint's owner, once it was opened, compiled, and its sink prepared.

        If a query fails before this step, later queries are still compared with the query that ran last.

        Returns:
            What the user should know of changes since the last run; no later run reports them.
        """
        held = self._require_marker()
        adopted = replace(held, query=_without_status(query), versions=Versions.present())
        if adopted != held:
            self._write_marker(adopted)
        remarks, self._remarks, self._sink_has_changed = self._remarks, (), False
        return remarks

    def batch(self, number: int) -> ResultBatch:
        """Return a batch that was begun, with the lease check that its sink may call."""
        return replace(super().batch(number), require_lease=self.require_lease)

    def is_unused(self) -> bool:
        """Whether no batch has ever begun."""
        logs = (SparkLog(place).last_batch() for place in possible_folders(self.spark))
        return all(last.begun is None and last.committed is None for last in logs)

    def exists(self) -> bool:
        """Whether the checkpoint exists."""
        with may_be_away(self.root):
            return (self.root / MARKER).exists()

    @property
    def id(self) -> str:
        """The unique id of the checkpoint, generated when it was created."""
        return self._require_marker().id

    @property
    def layout(self) -> Mapping[str, Any] | None:
        """The state layout of the query that ran last; None if it was not recorded."""
        return self._require_marker().layout

    def record_layout(self, layout: Mapping[str, Any]) -> None:
        """Record the compiled query's state layout, as ``state_layout.layout`` returns it.

        Raises:
            MillraceError: the state in the checkpoint has another layout.
        """
        marker = self._require_marker()
        check_layout(marker.layout, layout, self)
        if marker.layout != layout:
            self._write_marker(replace(marker, layout=layout))

    @property
    def released(self) -> int | None:
        """The batch after which the state was last found to hold no results back; None if it never was."""
        return self._require_marker().released

    def note_released(self, batch: int) -> None:
        """Record that the state holds no results back after a batch."""
        if self.released != batch:
            self._write_marker(replace(self._require_marker(), released=batch))

    def begin(self, batch: int, planned: Callable[[int], str]) -> None:
        """Ensure that this process is still the driver, before the first task of a batch.

        Args:
            batch: number of the batch.
            planned: returns a batch's entry in Spark's offset log as Spark has it in memory.

        Raises:
            MillraceError: another process is the driver, or may be.
            TransientError: the object store does not answer.
        """
        if isinstance(self._lease, ObjectLease):
            with may_be_away(self.root):
                self._lease.begin(batch, planned)
            self._entries.remember("offsets", batch, planned(batch))
        else:
            self.require_lease()

    def require_logged(self, batch: int) -> None:
        """Ensure that Spark's log has a batch as this process began it, for tasks that read it there.

        Raises:
            TransientError: an old driver has written another entry, or the object store does not answer.
        """
        if not isinstance(self._lease, ObjectLease):
            return
        if LogEntries(self.spark).text("offsets", batch) != self._entries.text("offsets", batch):
            message = f"another driver has written batch {batch} to Spark's log"
            error = TransientError(Problem(message, "make sure that only one driver runs", field="spec.checkpoint"))
            error.failure = FailureClass.STORE
            raise error

    def restore_log(self) -> None:
        """Put right what an old driver may have written to Spark's log, before Spark reads it.

        Raises:
            MillraceError: another process is the driver, or may be.
            TransientError: the object store does not answer.
        """
        self.require_lease()
        if isinstance(self._lease, ObjectLease):
            with may_be_away(self.root):
                self._lease.restore()
            self._entries = LogEntries(self.spark)

    def may_be_withdrawn(self) -> bool:
        """Whether this process still holds the checkpoint and no batch has begun."""
        with suppress(MillraceError):
            self.require_lease()
            return self._lease is not None and self.is_unused()
        return False

    @property
    def lost(self) -> MillraceError | None:
        """The reason why this process is no longer the driver, as far as is known; None while it is."""
        return None if self._lease is None else self._lease.lost

    @property
    def failed_writes(self) -> int:
        """The number of writes of the lease that have failed so far."""
        return 0 if self._lease is None else self._lease.failures

    def source_folder(self, name: str) -> Place:
        """Return the place in which a source records what its offsets do not hold."""
        return self.root / "sources" / name

    def withdraw(self) -> None:
        """Remove the checkpoint if this run has created it.

        Call it only if ``may_be_withdrawn`` holds, and before ``close``.
        """
        if not self._is_new:
            return
        for name in (self.spark.name, self.policies.name, "sources", "tables", COPIES):
            remove_all(self.root / name)
        for name in ("millrace.new", MARKER, LOCK):  # the lease keeps other drivers away until ``close``
            (self.root / name).unlink(missing_ok=True)

    def close(self) -> None:
        """Release the lease and the lock, so that another run can take the checkpoint."""
        try:
            if self._lease is not None:
                self._lease.release()
        finally:
            self._lease = None
            if self._lock is not None:
                self._lock.release()


def checkpoint_root(query: StreamQuery) -> Place:
    """Return the place of the query's checkpoint; the default is the folder ``.millrace/NAME``.

    Raises:
        MillraceError: the checkpoint is in no such place, or Spark cannot use a folder of this name.
    """
    spec = query.spec.checkpoint
    if spec is None:
        return path_for_spark(Path(".millrace", query.name), "spec.checkpoint")
    uri = spec.uri or ""
    if bucket_and_prefix(uri) is not None:
        return ObjectPath.of(uri)
    folder = folder_of(uri)
    if folder is None:
        hint = "write spec.checkpoint: {uri: file:///...}, or leave it out"
        raise _problem(f"millrace run cannot use the checkpoint {spec.uri or 'claim'}", hint)
    return path_for_spark(folder, "spec.checkpoint.uri")


def _without_status(query: StreamQuery) -> StreamQuery:
    return query.model_copy(update={"status": None})


def _problem(message: str, hint: str) -> MillraceError:
    return MillraceError(Problem(message, hint, field="spec.checkpoint"))
