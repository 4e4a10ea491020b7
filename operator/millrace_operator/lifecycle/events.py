"""Kubernetes events for changes of a query's status; pure functions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterator
from typing import NamedTuple

from millrace_api.model.status import Condition, ConditionStatus, ConditionType, Status

from .conditions import ReadyReason, condition_of


class News(NamedTuple):
    """Event as shown by ``kubectl describe``."""

    warning: bool
    reason: str
    message: str


def news(before: Status, now: Status) -> Iterator[News]:
    """Yield events for a new reason of Ready, a new Degraded condition, and a new scaling decision."""
    ready = _changed(before, now, ConditionType.READY)
    if ready is not None:
        yield News(ready.reason in (ReadyReason.INVALID_QUERY, ReadyReason.FAILED), ready.reason, ready.message)
    degraded = _changed(before, now, ConditionType.DEGRADED)
    if degraded is not None and degraded.status is ConditionStatus.TRUE:
        yield News(True, degraded.reason, degraded.message)
    scaling = now.last_scaling
    if scaling is not None and (before.last_scaling is None or before.last_scaling.time != scaling.time):
        yield News(False, scaling.reason, scaling.message)


def _changed(before: Status, now: Status, type: ConditionType) -> Condition | None:
    """Return the current condition if its reason has changed."""
    old, new = condition_of(before, type), condition_of(now, type)
    return new if new is not None and (old is None or old.reason != new.reason) else None


class EventBudget:
    """Token bucket per key; thread-safe."""

    BURST, SECONDS_EACH = 25, 60.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._left: dict[Hashable, tuple[float, float]] = {}

    def take(self, key: Hashable) -> bool:
        """Take a token and return whether another event is allowed now."""
        with self._lock:
            now = self._clock()
            left, since = self._left.get(key, (float(self.BURST), now))
            left = min(left + (now - since) / self.SECONDS_EACH, float(self.BURST))
            self._left[key] = (max(left - 1, 0.0) if left >= 1 else left, now)
            return left >= 1

    def forget(self, key: Hashable) -> None:
        """Drop the bucket of a deleted query."""
        with self._lock:
            self._left.pop(key, None)
