"""Memory in use against its limit: of the driver's heap and its container, and of the containers of executors.

Only figures that mean something are read. The used heap is none: between two garbage collections it grows up to the
maximum in any healthy JVM. What is left *after* a collection of the old generation is what the driver really keeps. In
a pod, Spark asks for a collection every five minutes; elsewhere every half an hour, and there is no figure before.

Of a container, the page cache does not count, since the kernel takes it back. What is beside the heap is the rest after
what the driver's JVM holds for its heap, or an executor's JVM has touched of it. Pages that are held and not touched
make that too small, never too large. The sum of what each process has resident is no figure: pages that Python
processes share after a fork would count once for each of them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from millrace_api.model.memory_use import MOST_SAMPLES, ExecutorSeries, MemoryPart, MemorySample, MemorySeries
from millrace_jobs.process.used_memory import ReceivedReadings, UsedMemory, container_memory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PERIOD = 10.0
"""Seconds from one reading to the next."""

_SPACING = 60
"""Seconds from one sample that is kept to the next; each is the highest reading since the one before."""

_HOTSPOT = "com.sun.management.HotSpotDiagnosticMXBean"
"""Java's bean that knows the options of its JVM, given or default."""

Readings = Mapping[MemoryPart, UsedMemory]
"""What the parts of one pod's memory use."""


class MemoryUse:
    """The memory in use of the driver and its executors, read at most every ten seconds, and how it went lately.

    Executors report theirs with their tasks, as far as they run Python (``process.used_memory``).

    Args:
        spark: the session.
        clock: monotonic clock, in seconds.
        wall_clock: seconds since 1970.
        container: returns the memory of this container; None without a limit.
    """

    def __init__(
        self,
        spark: SparkSession,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        container: Callable[[], UsedMemory | None] = container_memory,
    ) -> None:
        self._spark, self._clock, self._wall_clock, self._container = spark, clock, wall_clock, container
        self._next = clock() + _PERIOD  # the first batches have enough to do
        self._jvm: _Jvm | None = None
        self._driver = _PodReadings()
        self._received, self._executors = ReceivedReadings(), dict[str, _PodReadings]()

    def read(self) -> Mapping[str, Readings]:
        """Return what each part uses, by role; empty if that was read not long ago, or nothing can be read.

        Of all executors, the one that is nearest to its limit counts.
        """
        if self._clock() < self._next:
            return {}
        self._next = self._clock() + _PERIOD
        now = int(self._wall_clock())
        self._driver.add(now, dict(self._readings()))
        self._add_executors(now)
        pods = {"driver": self._driver, "executors": self._nearest()[1]}
        return {role: pod.newest for role, pod in pods.items() if pod.newest}

    def series(self) -> Sequence[MemorySeries]:
        """Return the readings of the driver of the last hour or more, by part."""
        return self._driver.series()

    def executor(self) -> ExecutorSeries | None:
        """Return the readings of the executor that is nearest to its limit; None before any has reported."""
        id, memory = self._nearest()
        return ExecutorSeries(executor=id, series=memory.series()) if id else None

    def _nearest(self) -> tuple[str, _PodReadings]:
        return max(self._executors.items(), key=lambda each: each[1].share, default=("", _PodReadings()))

    def _readings(self) -> Iterator[tuple[MemoryPart, UsedMemory]]:
        """Yield what can be read now of the driver."""
        try:
            if self._jvm is None:
                self._jvm = _Jvm(self._spark)
            if (kept := self._jvm.kept()) is not None:
                yield MemoryPart.HEAP, kept
            if (container := self._container()) is not None:
                yield from _of_container(container, self._jvm.heap())
        except (Py4JError, OSError):  # the JVM has ended, as the run loop finds out, or has no such beans
            return

    def _add_executors(self, now: int) -> None:
        """Add what executors have reported. One that is gone is forgotten; Spark gives its successor another id."""
        new = self._received.take()
        if not new and not self._executors:
            return
        try:
            context: Any = self._spark.sparkContext._jsc
            alive = set(context.sc().getExecutorIds().mkString(",").split(","))
        except (Py4JError, OSError):  # as above
            return
        self._executors = {id: memory for id, memory in self._executors.items() if id in alive}
        for executor, container, heap in new:
            if executor in alive:
                found = dict(_of_container(container, heap))
                self._executors.setdefault(executor, _PodReadings()).add(now, found)


def _of_container(container: UsedMemory, heap: UsedMemory) -> Iterator[tuple[MemoryPart, UsedMemory]]:
    """Yield what a container uses, and what of that is beside the heap of its JVM, if the limit leaves any room."""
    yield MemoryPart.CONTAINER, container
    if heap.limit < container.limit:
        beside = max(container.used - heap.used, 0)
        yield MemoryPart.BESIDE_HEAP, UsedMemory(beside, container.limit - heap.limit)


class _Jvm:
    """The heap of the driver's JVM, by the beans with which Java manages it."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark.sparkContext._jvm
        factory = jvm.java.lang.management.ManagementFactory
        pools = [pool for pool in factory.getMemoryPoolMXBeans() if pool.getType().name() == "HEAP"]
        # what lives long is in the only pool of the heap whose usage Java can watch
        self._old: Any = next((pool for pool in pools if pool.isUsageThresholdSupported()), None)
        self._memory: Any = factory.getMemoryMXBean()
        options = factory.getPlatformMXBean(jvm.java.lang.Class.forName(_HOTSPOT))
        self._largest = int(options.getVMOption("MaxHeapSize").getValue())
        survivors = (pool for pool in pools if "Survivor" in pool.getName())
        leaves_out = self._memory.getHeapMemoryUsage().getMax() < self._largest
        self._left_out: Any = next(survivors, None) if leaves_out else None

    def kept(self) -> UsedMemory | None:
        """Return what the old generation kept in its last collection; None before the first, or without a maximum."""
        usage = None if self._old is None else self._old.getCollectionUsage()
        if usage is None:
            return None
        used, limit = usage.getUsed(), usage.getMax()
        return UsedMemory(used, limit) if used > 0 and limit > 0 else None

    def heap(self) -> UsedMemory:
        """Return the memory that the JVM holds for its heap, used or not, and the most that it may hold.

        Java itself leaves one of two survivor spaces out, which for some collectors is up to a ninth of the heap.
        """
        held = self._memory.getHeapMemoryUsage().getCommitted()
        if self._left_out is not None:
            held += self._left_out.getUsage().getCommitted()
        return UsedMemory(held, self._largest)


class _PodReadings:
    """The memory of one pod: its newest readings, and how they went lately."""

    def __init__(self) -> None:
        self.newest: Readings = {}
        self._kept: dict[MemoryPart, _KeptSeries] = {}

    @property
    def share(self) -> float:
        """The share of its limit that says how near the pod is to it; a container is full in good health."""
        found = self.newest.get(MemoryPart.BESIDE_HEAP) or self.newest.get(MemoryPart.CONTAINER)
        return 0.0 if found is None else found.used / found.limit

    def add(self, now: int, readings: Readings) -> None:
        """Add readings."""
        self.newest = readings
        for part, each in readings.items():
            self._kept.setdefault(part, _KeptSeries()).add(now, each)

    def series(self) -> tuple[MemorySeries, ...]:
        """Return the readings of each part."""
        return tuple(kept.series(part) for part, kept in self._kept.items())


class _KeptSeries:
    """The newest samples of one part of the memory; a reading that repeats the last one is none of its own."""

    def __init__(self) -> None:
        self._samples: deque[MemorySample] = deque(maxlen=MOST_SAMPLES)
        self._last: UsedMemory | None = None

    def add(self, now: int, reading: UsedMemory) -> None:
        """Add a reading; that of a heap stays the same until the next collection."""
        was_set_back = bool(self._samples) and now < self._samples[-1].time
        if was_set_back or (self._last is not None and reading.limit != self._last.limit):
            self._samples.clear()
        if reading == self._last:
            return
        self._last = reading
        newest = self._samples[-1] if self._samples else None
        if newest is None or now >= newest.time + _SPACING:
            self._samples.append(MemorySample(time=now, used=reading.used))
        elif reading.used > newest.used:
            self._samples[-1] = newest.model_copy(update={"used": reading.used})

    def series(self, part: MemoryPart) -> MemorySeries:
        """Return the samples as they are reported."""
        limit = 1 if self._last is None else self._last.limit
        return MemorySeries(part=part, limit=limit, samples=tuple(self._samples))
