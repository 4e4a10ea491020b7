"""Pace of status writes: changes that follow each other closely, and that nothing depends on, are written together."""

from __future__ import annotations

import time
from collections.abc import Callable

from millrace_api.model.status import Status

from .observe import QueryKey

_DESCRIPTIVE = ("conditions", "driver", "partitioner", "load", "chain")
"""Fields that only describe what the next step observes again; all others are the operator's memory, or the phase."""


class StatusPace:
    """Pauses between status writes of a query that change nothing but descriptions.

    A driver's start changes them several times a second: objects applied, pod created, pod scheduled. Each write costs
    the API server as much as an object. A query must not be used by two threads at a time.
    """

    SECONDS = 2.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._written: dict[QueryKey, float] = {}

    def wait(self, key: QueryKey, before: Status, now: Status) -> float:
        """Return the seconds until the status may be written; 0 if it may be written now, or need not be."""
        kept = {name: getattr(before, name) for name in _DESCRIPTIVE}
        if now == before or now.model_copy(update=kept) != before:
            return 0.0
        return max(self._written.get(key, 0.0) + self.SECONDS - self._clock(), 0.0)

    def written(self, key: QueryKey) -> None:
        """Remember that the status was written now."""
        self._written[key] = self._clock()

    def forget(self, key: QueryKey) -> None:
        """Drop what is known of a query."""
        self._written.pop(key, None)
