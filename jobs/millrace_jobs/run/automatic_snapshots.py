"""The snapshots that a driver takes: before a change, and then by the clock and as asked, beside its batches.

Each is taken by a process of its own (``checkpoint.snapshot_process``). One that fails never ends the query.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Event, Lock, Thread
from typing import Any

from millrace_api.errors import MillraceError
from millrace_api.model.changes import Effect, effects
from millrace_api.model.deployment import SnapshotsSpec
from millrace_api.model.streamquery import Spec, StreamQuery
from millrace_jobs.checkpoint.automatic_snapshots import SnapshotSchedule
from millrace_jobs.checkpoint.marker import Marker, Versions
from millrace_jobs.checkpoint.snapshot_manifest import SnapshotReason
from millrace_jobs.checkpoint.snapshot_process import SnapshotOrder, SnapshotOutcome, SnapshotProcess
from millrace_jobs.checkpoint.snapshots import snapshots_of
from millrace_jobs.places import Place
from millrace_jobs.run.requested_snapshots import POLL_SECONDS, RequestedSnapshots, SnapshotRequests

WAIT_SECONDS = 120.0
"""Longest that a start waits for the snapshot before a change: a pod that has not started after 300 s is restarted."""

_OWN = "snapshots"
"""The field of a spec whose change needs no snapshot: it changes no result."""


@dataclass(frozen=True)
class SnapshotFigures:
    """The automatic snapshots as metrics show them.

    Attributes:
        current_at: when the newest one was taken, or found to be of the newest batch, in seconds since 1970; None
            before the first.
        interval: seconds between two of them; None if none is taken by the clock.
        seconds: time that the last one took; None if this run has taken none.
        failures: attempts that have failed.
    """

    current_at: float | None = None
    interval: float | None = None
    seconds: float | None = None
    failures: int = 0


class AutomaticSnapshots:
    """The snapshots of one run, as far as its query asks for them.

    Args:
        root: the place of the checkpoint, which this process holds.
        spec: what the query asks for; None for no snapshots.
        message: shows the user a message, from any thread.
        is_lost: returns whether another process is the driver now.
        requests: who asks for other snapshots while the query runs; None where nothing does.
    """

    def __init__(
        self,
        root: Place,
        spec: SnapshotsSpec | None,
        message: Callable[[str], None],
        is_lost: Callable[[], bool] = lambda: False,
        requests: SnapshotRequests | None = None,
    ) -> None:
        self.message = message
        self._root, self._spec, self._is_lost = root, spec, is_lost
        self._before: tuple[str, SnapshotProcess] | None = None
        self._ended = Event()
        self._lock = Lock()
        self._requested = None if requests is None else RequestedSnapshots(requests)
        every = None if spec is None else spec.every
        self._state = SnapshotFigures(interval=None if every is None else every.seconds)
        self._thread: Thread | None = None

    @property
    def state(self) -> SnapshotFigures:
        """What metrics show at present."""
        with self._lock:
            return self._state

    def before(self, query: StreamQuery) -> None:
        """Begin the snapshot before a change, if this query is another one than the one that ran last.

        Call it after the checkpoint was opened, and before it is adopted.
        """
        if self._spec is None or not self._spec.before_change:
            return
        try:
            marker = Marker.read(self._root)
            change = None if marker is None else change_of(marker, query)
            if change is not None:
                self._before = change, SnapshotProcess(self._root, self._order(SnapshotReason.CHANGE))
        except (MillraceError, OSError) as error:
            self._failed(f"no snapshot before a change was taken, and the query goes on: {error}")

    @property
    def is_taking_one(self) -> bool:
        """Whether the snapshot before a change is being taken."""
        return self._before is not None and self._before[1].is_running

    def wait(self, is_stopped: Callable[[], bool], seconds: float = WAIT_SECONDS) -> None:
        """Wait for the snapshot before a change, if one was begun; one that takes longer is given up."""
        if self._before is None:
            return
        (change, process), self._before = self._before, None
        until = time.monotonic() + seconds
        outcome = process.outcome(lambda: is_stopped() or time.monotonic() > until)
        if outcome is None and not is_stopped():
            outcome = SnapshotOutcome(error=f"it has taken more than {seconds:.0f} s, and the query starts without it")
        if outcome is not None:
            self._note(outcome, f" before the change of {change}")

    def begin(self) -> None:
        """Begin to take snapshots by the clock and as asked, in a thread that waits for each."""
        if self._requested is not None or self._by_the_clock is not None:
            self._thread = Thread(target=self._follow, name="automatic snapshots", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Take no more snapshots; one that is being taken is given up."""
        self._ended.set()
        if self._before is not None:
            self._before[1].close()
        if self._thread is not None:
            self._thread.join()

    @property
    def _by_the_clock(self) -> timedelta | None:
        """Time from one snapshot to the next; None if none is taken by the clock."""
        return None if self._spec is None or self._spec.every is None else self._spec.every.timedelta

    def _follow(self) -> None:
        """Take what is due or asked for, one after the other, until the run ends."""
        every = self._by_the_clock
        schedule = None if every is None else SnapshotSchedule(every, self._newest(), datetime.now(UTC))
        if self._requested is not None:
            self._requested.begin(self._root)
        while not self._ended.wait(self._pause(schedule)):
            if self._is_lost():
                return
            if self._requested is not None and (order := self._requested.next_order()) is not None:
                outcome = self._outcome(order)
                if outcome is not None and (message := self._requested.ended(outcome)):
                    self.message(message)
            if schedule is not None and schedule.seconds_left(datetime.now(UTC)) == 0:
                self._take_by_the_clock(schedule)

    def _pause(self, schedule: SnapshotSchedule | None) -> float:
        left = POLL_SECONDS if schedule is None else schedule.seconds_left(datetime.now(UTC))
        return left if self._requested is None else min(left, POLL_SECONDS)

    def _take_by_the_clock(self, schedule: SnapshotSchedule) -> None:
        outcome = self._outcome(self._order(SnapshotReason.SCHEDULE))
        if outcome is None:
            return
        self._note(outcome, "")
        if self._requested is not None:
            self._requested.found(outcome)
        follow = schedule.failed if outcome.error else schedule.taken if outcome.name else schedule.waits
        follow(datetime.now(UTC))

    def _outcome(self, order: SnapshotOrder) -> SnapshotOutcome | None:
        """Return what an order has come to; None if the run ends before."""
        try:
            return SnapshotProcess(self._root, order).outcome(self._ended.is_set)
        except OSError as error:  # no process can be started
            return SnapshotOutcome(error=str(error))

    def _newest(self) -> datetime | None:
        """Return when the newest automatic snapshot was taken; None if there is none, or they cannot be read now."""
        try:
            taken = [each.taken for each in snapshots_of(self._root) if each.reason.is_automatic]
        except OSError:
            return None
        if not taken:
            return None
        with self._lock:
            current = self._state.current_at or 0.0  # a snapshot before a change may just have found it current
            self._set(current_at=max(current, taken[-1].timestamp()))
        return taken[-1]

    def _order(self, reason: SnapshotReason) -> SnapshotOrder:
        assert self._spec is not None
        age = self._spec.max_age
        return SnapshotOrder(reason, self._spec.keep, None if age is None else age.seconds)

    def _note(self, outcome: SnapshotOutcome, why: str) -> None:
        """Show what an attempt has come to."""
        if outcome.error is not None:
            self._failed(f"no snapshot{why} was taken, and the query goes on: {outcome.error}")
            return
        if outcome.name is None:
            return
        with self._lock:
            self._set(current_at=time.time())
            if outcome.is_new:
                self._set(seconds=outcome.seconds)
        if outcome.is_new:
            size = f"{outcome.size / (1 << 20):,.1f} MiB in {outcome.seconds:.1f} s"
            removed = f"; removed {', '.join(outcome.removed)}" if outcome.removed else ""
            self.message(f"snapshot {outcome.name}{why}: batch {outcome.batch}, {size}{removed}")

    def _failed(self, text: str) -> None:
        with self._lock:
            self._set(failures=self._state.failures + 1)
        self.message(text)

    def _set(self, **changes: Any) -> None:
        self._state = SnapshotFigures(**vars(self._state) | changes)


def change_of(marker: Marker, query: StreamQuery) -> str | None:
    """Return what differs between the run that left a marker and this query in this version; None if nothing does.

    Only what takes another driver counts: all else may also change while the query runs.
    """
    before, now = _document(marker.query.spec), _document(query.spec)
    replaced = [field for field, change in effects(Spec) if change.effect is Effect.REPLACED and field != _OWN]
    changed = [f"spec.{field}" for field in replaced if _value_at(before, field) != _value_at(now, field)]
    if marker.versions != Versions.present():
        changed.append("the version of Millrace or Spark")
    return ", ".join(changed) or None


def _document(spec: Spec) -> dict[str, Any]:
    return spec.to_short_document()


def _value_at(document: Any, field: str) -> Any:
    for part in field.split("."):
        document = document.get(part) if isinstance(document, dict) else None
    return document
