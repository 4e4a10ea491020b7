"""What Spark tells of a running query, and who wants to know."""

from __future__ import annotations

import json
import queue
from typing import Any, Protocol

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from millrace_jobs.agent.progress import BatchReport
from millrace_jobs.plan.pin import Pin

Event = dict[str, Any] | QueryTerminatedEvent | None
"""Progress of a batch, the end of the query, or None: a trigger found nothing to do."""


class Watcher(Protocol):
    """Who is told what goes on."""

    def batch(self, report: BatchReport) -> None:
        """A batch has been finished."""
        ...

    def message(self, text: str) -> None:
        """Something the user should know has happened."""
        ...

    def idle(self, pin: Pin) -> None:
        """The query is alive and has nothing to do; what comes is going to be processed under this pin."""
        ...


class Listener(StreamingQueryListener):
    """Hands Spark's events to a queue."""

    def __init__(self, events: queue.Queue[Event]) -> None:
        self._events = events

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Spark's hook."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Spark's hook: a batch has been committed."""
        self._events.put(json.loads(event.progress.json))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Spark's hook: a trigger found nothing to do."""
        self._events.put(None)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Spark's hook: the query has stopped or failed; no event of it comes after this one."""
        self._events.put(event)
