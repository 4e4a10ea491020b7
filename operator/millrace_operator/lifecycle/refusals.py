"""What the API server has refused of queries: it is tried again, since quotas, policies and names change."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from millrace_api.errors import MillraceError, Problem
from millrace_support.backoff import Backoff

from .conditions import ReadyReason
from .observed_query import ObservedQuery

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


class LastRefusal:
    """What was last refused of a query, until a change of its spec."""

    def __init__(self) -> None:
        self._version: object = None
        self._refusal: Refusal | None = None
        self._backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)

    def of(self, observed: ObservedQuery) -> Refusal | None:
        """Return what was refused of this version of the query; it is over if its time has passed."""
        return self._refusal if self._version == observed.version else None

    def shown(self, observed: ObservedQuery) -> tuple[str, datetime] | None:
        """Return the message of what was refused of this version of the query, and when it is tried again."""
        found = self.of(observed)
        return None if found is None else (str(found.error), found.until)

    def add(self, observed: ObservedQuery, error: RefusedError, now: datetime) -> None:
        """Store a refusal; further ones of the same version of the query have longer and longer pauses."""
        if self._refusal is None or self._version != observed.version:
            self._backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        self._version = observed.version
        self._refusal = Refusal(error, now + timedelta(seconds=self._backoff.next()))

    def forget(self) -> None:
        """Forget what was refused."""
        self._refusal = None
