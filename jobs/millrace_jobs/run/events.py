"""What Spark tells of a running query, and who wants to know."""

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


class Listener:
    """Puts Spark's events into a queue, as an object of the JVM's own listener interface.

    PySpark's listener reads every field of a progress report by a call of its own, about a hundred for each batch.
    """

    def __init__(self, events: queue.Queue[Event]) -> None:
        self._events = events

    def register(self, spark: SparkSession) -> Callable[[], None]:
        """Listen to the queries of a session; returns what ends that."""
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
        """Spark's hook."""

    def onQueryProgress(self, event: JavaObject) -> None:  # noqa: N802
        """Spark's hook: a batch has been committed."""
        self._events.put(json.loads(event.progress().json()))

    def onQueryIdle(self, event: JavaObject) -> None:  # noqa: N802
        """Spark's hook: a trigger found nothing to do."""
        self._events.put(None)

    def onQueryTerminated(self, event: JavaObject) -> None:  # noqa: N802
        """Spark's hook: the query has stopped or failed; no event of it comes after this one."""
        self._events.put(QueryTerminatedEvent.fromJObject(event))

    class Java:
        """What Py4J looks for in an object that the JVM calls."""

        implements: ClassVar = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]
