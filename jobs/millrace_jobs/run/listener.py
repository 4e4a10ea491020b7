"""The listener that puts Spark's events into a queue, and the protocol of a watcher, which receives them.

``loop.RunLoop`` takes them from the queue.
"""

from __future__ import annotations

import json
import queue
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from py4j.java_gateway import JavaObject, java_import
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import QueryTerminatedEvent

from millrace_jobs.pipeline.progress import BatchReport
from millrace_jobs.plan.control import Pin

Event = dict[str, Any] | QueryTerminatedEvent | None
"""Progress of a batch, the end of the query, or None if a trigger found nothing to do."""


class Watcher(Protocol):
    """A receiver of the events of a run."""

    def batch(self, report: BatchReport) -> None:
        """Handle a finished batch."""

    def message(self, text: str) -> None:
        """Handle a message for the user."""

    def idle(self, pin: Pin) -> None:
        """Handle an idle query: it is alive, and its next records will be processed under this pin."""


class Listener:
    """A listener of the JVM's own interface that puts Spark's events into a queue.

    PySpark's listener reads every field of a progress report in a separate call, about a hundred for each batch.
    """

    def __init__(self, events: queue.Queue[Event]) -> None:
        self._events = events

    def register(self, spark: SparkSession) -> Callable[[], None]:
        """Listen to the queries of a session; return a function that stops listening."""
        context = spark.sparkContext
        gateway, virtual_machine = context._gateway, context._jvm
        assert gateway is not None
        assert virtual_machine is not None
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        java_import(virtual_machine, "org.apache.spark.sql.streaming.*")
        listener = virtual_machine.PythonStreamingQueryListenerWrapper(self)
        manager = spark._jsparkSession.streams()
        manager.addListener(listener)
        return lambda: manager.removeListener(listener)

    def onQueryStarted(self, event: JavaObject) -> None:  # noqa: N802
        """Ignore the start of a query (Spark's hook)."""

    def onQueryProgress(self, event: JavaObject) -> None:  # noqa: N802
        """Enqueue the progress of a committed batch (Spark's hook)."""
        self._events.put(json.loads(event.progress().json()))

    def onQueryIdle(self, event: JavaObject) -> None:  # noqa: N802
        """Enqueue None: a trigger found nothing to do (Spark's hook)."""
        self._events.put(None)

    def onQueryTerminated(self, event: JavaObject) -> None:  # noqa: N802
        """Enqueue the end of the query, which stopped or failed; no event of it follows (Spark's hook)."""
        self._events.put(QueryTerminatedEvent.fromJObject(event))

    class Java:
        """The declaration that Py4J needs of an object that the JVM calls."""

        implements: ClassVar = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]
