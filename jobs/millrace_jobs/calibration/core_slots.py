"""Fewer cores than local Spark has: tasks that sleep keep slots for tasks, and so the JVM stays warm between plans.

On Linux, the process and its children are also restricted to as many processors, so that they have the time of a
container of that size: Spark's Python processes run beside the threads of their tasks.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import uuid
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.process.processors import bind

_LONGEST_MS = 24 * 3600 * 1000
_PATIENCE, _POLL = 20.0, 0.05
"""Seconds to wait until tasks that keep slots have started, and between two looks."""


class CoreSlots:
    """The cores that the batches of a session have; all of them in the beginning."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.total = int(spark.sparkContext.defaultParallelism)
        self._group = ""
        self._taken = 0
        self._processors = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []

    @property
    def free(self) -> int:
        """Cores that are left for batches."""
        return self.total - self._taken

    def leave(self, cores: int) -> None:
        """Leave so many cores for batches from now on; no batch runs meanwhile."""
        if cores == self.free:
            return
        self.release()
        self._taken = self.total - cores
        if self._taken:
            self._group = f"millrace-cores-{uuid.uuid4().hex}"
            threading.Thread(target=self._keep, args=(self._group, self._taken), daemon=True).start()
            self._wait()
        if self._processors:
            bind(self._processors[:cores])

    def release(self) -> None:
        """Leave all cores for batches."""
        if self._taken:
            self._spark.sparkContext.cancelJobGroup(self._group)
            self._taken = 0
            if self._processors:
                bind(self._processors)

    def _keep(self, group: str, slots: int) -> None:
        """Run tasks that sleep until their group is cancelled, which fails the job."""
        try:
            self._spark.sparkContext.setJobGroup(group, "cores that batches do not have", interruptOnCancel=True)
            sleeping = f"java_method('java.lang.Thread', 'sleep', {_LONGEST_MS}L)"
            self._spark.range(0, slots, 1, slots).selectExpr(sleeping).collect()
        except (PySparkException, Py4JError, ConnectionError, AttributeError):
            pass  # PySpark raises the last one where the session has stopped meanwhile

    def _wait(self) -> None:
        """Wait until the tasks run: the scheduler says so at once, unlike Spark's status store.

        Raises:
            MillraceError: they do not, so that batches would have more cores than the measurements say.
        """
        context: Any = self._spark.sparkContext
        scheduler = context._jsc.sc().taskScheduler()
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            running = scheduler.runningTasksByExecutors().values().toSeq().mkString(",")
            if sum(int(count) for count in running.split(",") if count) >= self._taken:
                return
            time.sleep(_POLL)
        message = f"{self._taken} of {self.total} cores could not be kept from batches within {_PATIENCE:.0f} s"
        raise MillraceError(Problem(message, "run this again when the machine has less other work"))
