"""Memory in use against its limit: of the driver's heap, and of its container.

Only figures that mean something are read. The used heap is none: between two garbage collections it grows up to the
maximum in any healthy JVM. What is left *after* a collection of the old generation is what the driver really keeps. In
a pod, Spark asks for a collection every five minutes; elsewhere every half an hour, and there is no figure before.

Of a container, the page cache does not count, since the kernel takes it back. What is beside the heap is the rest after
what the JVM holds for its heap. Pages of the heap that the JVM holds and has not touched make that too small, never too
large. The sum of what each process has resident is no figure: pages that Python processes share after a fork would
count once for each of them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from py4j.protocol import Py4JError

from millrace_api.model.memory_use import MOST_SAMPLES, MemoryPart, MemorySample, MemorySeries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PERIOD = 10.0
"""Seconds from one reading to the next."""

_SPACING = 60
"""Seconds from one sample that is kept to the next; each is the highest reading since the one before."""

_GROUPS = Path("/sys/fs/cgroup")

_HELD = {
    "memory.stat": ("anon", "shmem", "slab_unreclaimable", "kernel_stack", "pagetables", "sock"),
    "memory/memory.stat": ("total_rss", "total_shmem"),
}
"""Entries of the statistics of control groups v2 and v1 that count memory which cannot be taken back, without swap."""

_LIMITS = {"memory.stat": "memory.max", "memory/memory.stat": "memory/memory.limit_in_bytes"}
"""The file with the limit, by that with the statistics."""

_NO_LIMIT = 1 << 60
"""Least number that means no limit in v1, where it is the largest multiple of a page."""


_HOTSPOT = "com.sun.management.HotSpotDiagnosticMXBean"
"""Java's bean that knows the options of its JVM, given or default."""


class UsedMemory(NamedTuple):
    """Bytes in use of a part of the memory, and its limit."""

    used: int
    limit: int


def container_memory(groups: Path = _GROUPS) -> UsedMemory | None:
    """Return the memory of this process's container; None without a limit, or where it cannot be read."""
    for statistics, names in _HELD.items():
        try:
            limit = (groups / _LIMITS[statistics]).read_text(encoding="ascii").strip()
            words = (groups / statistics).read_text(encoding="ascii").split()
        except OSError:
            continue
        if not limit.isdecimal() or not 0 < int(limit) < _NO_LIMIT:
            return None
        found = dict(zip(words[::2], words[1::2], strict=False))
        return UsedMemory(sum(int(found[name]) for name in names if found.get(name, "").isdecimal()), int(limit))
    return None


class MemoryUse:
    """The driver's memory in use, read at most every ten seconds, and how it went lately.

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
        self._kept: dict[MemoryPart, _KeptSeries] = {}

    def read(self) -> Mapping[MemoryPart, UsedMemory]:
        """Return what each part uses; empty if that was read not long ago, or nothing can be read."""
        if self._clock() < self._next:
            return {}
        self._next = self._clock() + _PERIOD
        found = dict(self._readings())
        for part, each in found.items():
            self._kept.setdefault(part, _KeptSeries()).add(int(self._wall_clock()), each)
        return found

    def series(self) -> Sequence[MemorySeries]:
        """Return the readings of the last hour or more, by part."""
        return tuple(kept.series(part) for part, kept in self._kept.items())

    def _readings(self) -> Iterator[tuple[MemoryPart, UsedMemory]]:
        """Yield what can be read now."""
        try:
            if self._jvm is None:
                self._jvm = _Jvm(self._spark)
            if (kept := self._jvm.kept()) is not None:
                yield MemoryPart.HEAP, kept
            if (container := self._container()) is None:
                return
            yield MemoryPart.CONTAINER, container
            heap = self._jvm.heap()
            if heap.limit < container.limit:
                beside = max(container.used - heap.used, 0)
                yield MemoryPart.BESIDE_HEAP, UsedMemory(beside, container.limit - heap.limit)
        except (Py4JError, OSError):  # the JVM has ended, as the run loop finds out, or has no such beans
            return


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
