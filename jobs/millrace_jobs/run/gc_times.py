"""How long the JVMs of a query have spent on garbage collection, as Spark and the driver's JVM count it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROLES = ("driver", "executors")
"""What has JVMs: the driver, which runs the tasks, too, where there are no executors; and all executors together."""

_DRIVER = "driver"
"""Spark's name of the driver among the executors."""

_PERIOD = 10.0
"""Seconds from one reading to the next, since each executor costs two calls to the JVM."""


class GarbageCollection:
    """The garbage collection of a query's JVMs, read at most every ten seconds.

    Args:
        spark: the session. Executors report their time with each task that ends.
        clock: monotonic clock, in seconds.
    """

    def __init__(self, spark: SparkSession, clock: Callable[[], float] = time.monotonic) -> None:
        self._spark, self._clock = spark, clock
        self._counted: dict[tuple[str, str], float] = {}
        self._next = clock()

    def since(self) -> Mapping[str, float]:
        """Return the seconds of each role since the last reading; nothing if that was not long ago, or fails.

        An executor that is gone counts as far as it was read.
        """
        if self._clock() < self._next:
            return {}
        self._next = self._clock() + _PERIOD
        try:
            now = dict(self._readings())
        except (Py4JError, OSError):  # the JVM has ended, as the run loop will find out by itself
            return {}
        new = dict.fromkeys(ROLES, 0.0)
        for (role, name), seconds in now.items():
            new[role] += max(seconds - self._counted.get((role, name), 0.0), 0.0)
        self._counted = now
        return new

    def _readings(self) -> Iterator[tuple[tuple[str, str], float]]:
        """Yield the seconds so far of each JVM, by role and name."""
        context = self._spark.sparkContext
        jvm = context._jvm
        assert jvm is not None
        collectors = jvm.java.lang.management.ManagementFactory.getGarbageCollectorMXBeans()
        yield ("driver", _DRIVER), sum(each.getCollectionTime() for each in collectors) / 1000
        executors = context._jsc.sc().statusStore().executorList(True)
        for i in range(executors.size()):
            executor = executors.apply(i)
            if (name := executor.id()) != _DRIVER:
                yield ("executors", name), executor.totalGCTime() / 1000
