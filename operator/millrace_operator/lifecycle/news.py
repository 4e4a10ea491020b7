"""What of a changed status people are told by an event: pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from millrace_api.model.status import Condition, ConditionStatus, ConditionType, Status

from .conditions import ReadyReason, condition_of


class News(NamedTuple):
    """An event, as ``kubectl describe`` shows it."""

    warning: bool
    reason: str
    message: str


def news(before: Status, now: Status) -> Iterator[News]:
    """A query that is ready or not for another reason; something that is wrong now; a decision of scaling."""
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
    """The condition as it is now, where its reason is another one than before."""
    old, new = condition_of(before, type), condition_of(now, type)
    return new if new is not None and (old is None or old.reason != new.reason) else None
