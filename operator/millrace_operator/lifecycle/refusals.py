"""What the API server has refused of queries: it is tried again, since quotas, policies and names change."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from millrace_api.errors import MillraceError, Problem
from millrace_support.backoff import Backoff

from .conditions import ReadyReason
from .observe import ObservedQuery, QueryKey

FIRST_PAUSE, LONGEST_PAUSE = 15.0, 600.0
"""Seconds until a refused change is tried again: at first, and at most."""


class RefusedError(MillraceError):
    """A change to a query's objects cannot be made as things are; ``reason`` is that of Ready."""

    reason = ReadyReason.INVALID_QUERY


class ObjectRefusedError(RefusedError):
    """The API server rejects an object; the message says why."""


class QuotaExceededError(ObjectRefusedError):
    """A ResourceQuota of the namespace leaves no room for an object."""

    reason = ReadyReason.QUOTA_EXCEEDED


class PodRefusedError(ObjectRefusedError):
    """The API server would not create a pod, for a reason other than a quota."""

    reason = ReadyReason.POD_REFUSED


class NameTakenError(RefusedError):
    """An object that is not the query's has a name that the query needs."""

    reason = ReadyReason.NAME_TAKEN

    def __init__(self, kind: str, name: str) -> None:
        hint = "rename or delete it, or give the query another name"
        super().__init__(Problem(f"{kind} {name} exists and is not this query's", hint))


@dataclass(frozen=True)
class Refusal:
    """What was refused, and when it is tried again."""

    error: RefusedError
    until: datetime


class Refusals:
    """The last refusal of each query, until a change of its spec. A query must not be used by two threads at a time."""

    def __init__(self) -> None:
        self._known: dict[QueryKey, tuple[object, Refusal, Backoff]] = {}

    def of(self, key: QueryKey, observed: ObservedQuery) -> Refusal | None:
        """Return the last refusal of this version of a query; it is over if its time has passed."""
        version, refusal, _ = self._known.get(key, (None, None, None))
        return refusal if version == observed.version else None

    def add(self, key: QueryKey, observed: ObservedQuery, error: RefusedError, now: datetime) -> None:
        """Store a refusal; further ones of the same version of a query have longer and longer pauses."""
        version, _, backoff = self._known.get(key, (None, None, None))
        if backoff is None or version != observed.version:
            backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        until = now + timedelta(seconds=backoff.next())
        self._known[key] = observed.version, Refusal(error, until), backoff

    def forget(self, key: QueryKey) -> None:
        """Forget what was refused of a query."""
        self._known.pop(key, None)
