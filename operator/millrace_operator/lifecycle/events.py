"""Kubernetes events of a query: the status changes that deserve one, and the rate limit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from millrace_api.model.snapshots import SnapshotRequestState
from millrace_api.model.status import Condition, ConditionStatus, ConditionType, MemoryStatus, Status

from .chains.chain_status import UpstreamReason
from .conditions import ReadyReason, condition_of
from .token_buckets import TokenBucket

_WARNINGS = (
    ReadyReason.INVALID_QUERY,
    ReadyReason.NOT_ALLOWED,
    ReadyReason.NAME_TAKEN,
    ReadyReason.QUOTA_EXCEEDED,
    ReadyReason.POD_REFUSED,
    ReadyReason.FAILED,
)
"""Reasons of Ready that are warnings."""


class StatusEvent(NamedTuple):
    """Event as shown by ``kubectl describe``; one that is only ``logged`` is not posted."""

    warning: bool
    reason: str
    message: str
    logged: bool = False


def events_of(before: Status, now: Status) -> Iterator[StatusEvent]:
    """Yield events for a new reason of Ready, of Degraded or of a cycle, a scaling decision and a snapshot's end.

    Also for a cause that keeps more executors from helping, for memory that was raised, and for a comparison that lets
    a changed spec take over. One that does not degrades the query.

    That a new query is deployed is no news to its user, and only logged.
    """
    ready = _changed(before, now, ConditionType.READY)
    if ready is not None:
        begins = before.phase is None and ready.reason == ReadyReason.DEPLOYING
        yield StatusEvent(ready.reason in _WARNINGS, ready.reason, ready.message, logged=begins)
    degraded = _changed(before, now, ConditionType.DEGRADED)
    if degraded is not None and degraded.status is ConditionStatus.TRUE:
        yield StatusEvent(True, degraded.reason, degraded.message)
    ineffective = _changed(before, now, ConditionType.SCALING_INEFFECTIVE)
    if ineffective is not None and ineffective.status is ConditionStatus.TRUE:
        yield StatusEvent(True, ineffective.reason, ineffective.message)
    upstream = _changed(before, now, ConditionType.UPSTREAM_READY)
    if upstream is not None and upstream.reason == UpstreamReason.CYCLE:
        yield StatusEvent(True, upstream.reason, upstream.message)
    if (upgrade := now.upgrade) is not None and now.rejected is None and upgrade != before.upgrade and upgrade.verdict:
        yield StatusEvent(False, "UpgradeFollowed", f"{upgrade.verdict}: {upgrade.message}")
    scaling = now.last_scaling
    if scaling is not None and (before.last_scaling is None or before.last_scaling.time != scaling.time):
        yield StatusEvent(False, scaling.reason, scaling.message)
    yield from _of_memory(before, now)
    yield from _of_requested_snapshot(before, now)


def _of_memory(before: Status, now: Status) -> Iterator[StatusEvent]:
    """Yield the event for memory that was raised, a warning if it had run out, and for a raise that was undone."""
    had, has = before.memory or MemoryStatus(), now.memory or MemoryStatus()
    for raised in has.raised_since(had).values():
        yield StatusEvent(not raised.predicted, "MemoryRaised", raised.message)
    for part, each in has.by_part.items():
        before_it = had.by_part.get(part)
        if each.no_room_for not in (None, before_it and before_it.no_room_for):
            yield StatusEvent(True, "MemoryRaiseUndone", each.message)


def _of_requested_snapshot(before: Status, now: Status) -> Iterator[StatusEvent]:
    """Yield the event for the end of a snapshot, or of its removal, that was asked for."""
    request = None if now.snapshots is None else now.snapshots.request
    if request is None or not request.state.is_final:
        return
    earlier = None if before.snapshots is None else before.snapshots.request
    if earlier is not None and earlier.identity == request.identity and earlier.state.is_final:
        return
    failed = request.state is SnapshotRequestState.FAILED
    ended = "SnapshotRemoved" if request.removes else "SnapshotTaken"
    yield StatusEvent(failed, "SnapshotFailed" if failed else ended, request.message)


def _changed(before: Status, now: Status, type: ConditionType) -> Condition | None:
    old, new = condition_of(before, type), condition_of(now, type)
    return new if new is not None and (old is None or old.reason != new.reason) else None


EVENTS_OF_NAMESPACE, SECONDS_EACH_OF_NAMESPACE = 500, 1.0
"""Events of all queries of a namespace together: in a burst, and seconds for each one after it."""


def event_bucket() -> TokenBucket:
    """Return the limit of a query's events, which is that of client-go's event recorder."""
    return TokenBucket(25, 60.0)
