"""Kubernetes events of a query: the status changes that deserve one, and the rate limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from typing import NamedTuple

from millrace_api.model.status import Condition, ConditionStatus, ConditionType, Status

from .chain_status import UpstreamReason
from .conditions import ReadyReason, condition_of

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
    """Yield events for a new reason of Ready, a new Degraded condition, a cycle, and a new scaling decision.

    That a new query is deployed is no news to its user, and only logged.
    """
    ready = _changed(before, now, ConditionType.READY)
    if ready is not None:
        begins = before.phase is None and ready.reason == ReadyReason.DEPLOYING
        yield StatusEvent(ready.reason in _WARNINGS, ready.reason, ready.message, logged=begins)
    degraded = _changed(before, now, ConditionType.DEGRADED)
    if degraded is not None and degraded.status is ConditionStatus.TRUE:
        yield StatusEvent(True, degraded.reason, degraded.message)
    upstream = _changed(before, now, ConditionType.UPSTREAM_READY)
    if upstream is not None and upstream.reason == UpstreamReason.CYCLE:
        yield StatusEvent(True, upstream.reason, upstream.message)
    scaling = now.last_scaling
    if scaling is not None and (before.last_scaling is None or before.last_scaling.time != scaling.time):
        yield StatusEvent(False, scaling.reason, scaling.message)


def _changed(before: Status, now: Status, type: ConditionType) -> Condition | None:
    """Return the current condition if its reason has changed."""
    old, new = condition_of(before, type), condition_of(now, type)
    return new if new is not None and (old is None or old.reason != new.reason) else None


class EventBudget:
    """Token bucket per query, like client-go's event recorder: a burst, then one event every ``SECONDS_EACH``.

    A query must not be used by two threads at a time.
    """

    BURST, SECONDS_EACH = 25, 60.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left: dict[Hashable, tuple[float, float]] = {}

    def take(self, key: Hashable) -> bool:
        """Take a token and return whether another event is allowed now."""
        now = self._clock()
        left, since = self._left.get(key, (float(self.BURST), now))
        left = min(left + (now - since) / self.SECONDS_EACH, float(self.BURST))
        self._left[key] = (max(left - 1, 0.0) if left >= 1 else left, now)
        return left >= 1

    def forget(self, key: Hashable) -> None:
        """Drop the bucket of a deleted query."""
        self._left.pop(key, None)
