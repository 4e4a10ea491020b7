"""Kubernetes events for changes of a query's status; pure functions."""

from __future__ import annotations

from collections.abc import Iterator
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
