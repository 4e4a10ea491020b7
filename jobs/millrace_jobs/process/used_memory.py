"""Memory in use of this process's container, and its way from an executor to the driver.

A Python worker reads its executor's memory, and an accumulator of Spark takes the reading along with the results of its
task: there is no port, job or thread for it. An executor reports while it has tasks that run Python.

What the heap of the executor's JVM keeps is not reported. The JVM shows what its old generation uses after any
collection. Most of that is garbage, unless it was a full one, which an executor may never have.
"""

from __future__ import annotations

import mmap
import re
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NamedTuple

from pyspark.accumulators import Accumulator, AccumulatorParam

_PERIOD = 30.0
"""Seconds from one reading of an executor to the next: the kernel counts all pages of the heap, 16 ms for a GiB."""

EXECUTORS_MEMORY = -1000
"""Id of the accumulator: PySpark counts its own up from 0, and has two special ones, -1 and -2."""

_GROUPS, _PROCESSES = Path("/sys/fs/cgroup"), Path("/proc")

_HELD = {
    "memory.stat": ("anon", "shmem", "slab_unreclaimable", "kernel_stack", "pagetables", "sock"),
    "memory/memory.stat": ("total_rss", "total_shmem"),
}
"""Entries of the statistics of control groups v2 and v1 that count memory which cannot be taken back, without swap."""

_LIMITS = {"memory.stat": "memory.max", "memory/memory.stat": "memory/memory.limit_in_bytes"}
"""The file with the limit, by that with the statistics."""

_NO_LIMIT = 1 << 60
"""Least number that means no limit in v1, where it is the largest multiple of a page."""

_COMPRESSED = 1 << 35
"""Address below which HotSpot places a heap of less than 32 GiB, so that its pointers take four bytes each."""

_MAPPING = re.compile(r"([0-9a-f]+)-[0-9a-f]+ ")
_LARGEST_HEAP = re.compile(r"-Xmx([0-9]+)([kmg]?)", re.IGNORECASE)
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30}


class UsedMemory(NamedTuple):
    """Bytes in use of a part of the memory, and its limit."""

    used: int
    limit: int


class ExecutorReading(NamedTuple):
    """The memory of an executor.

    Attributes:
        executor: Spark's id of the executor.
        container: the memory of its container.
        heap: what its JVM has touched of its heap, and the most that it may.
    """

    executor: str
    container: UsedMemory
    heap: UsedMemory


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


def touched_heap(jvm: int, largest: int, processes: Path = _PROCESSES) -> int:
    """Return the bytes that a JVM has touched of its heap; all of it where that cannot be read.

    HotSpot places a heap with compressed pointers before all other memory, and the kernel lists mappings by address. An
    executor's JVM holds all of its heap from the start (``-Xms``), so that what it holds is no measure.

    Args:
        jvm: id of the JVM's process.
        largest: the largest size of its heap in bytes.
        processes: the file system of processes.
    """
    used, end = 0, None
    try:
        with (processes / str(jvm) / "smaps").open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if (mapping := _MAPPING.match(line)) is not None:
                    begin = int(mapping[1], 16)
                    end = begin + largest if end is None else end
                    if end > _COMPRESSED:
                        return largest
                    if begin >= end:
                        break
                elif line.startswith("Rss:"):
                    used += int(line.split()[1]) << 10
    except (OSError, ValueError):
        return largest
    return largest if end is None else min(used, largest)


class ExecutorMemory:
    """The memory of the executor that this process belongs to, for its Python workers.

    It is made before the first of them is forked: they share when the next reading is due.

    Args:
        executor: Spark's id of the executor.
        jvm: id of its JVM's process.
        largest_heap: the largest size of the JVM's heap in bytes.
    """

    def __init__(self, executor: str, jvm: int, largest_heap: int) -> None:
        self._executor, self._jvm, self._largest_heap = executor, jvm, largest_heap
        self._due = mmap.mmap(-1, 8)

    def read(self) -> ExecutorReading | None:
        """Return a reading; None if one was made not long ago, or there is no limit."""
        now = time.monotonic()  # which all processes share
        if now < struct.unpack("d", self._due)[0]:
            return None
        self._due[:] = struct.pack("d", now + _PERIOD)
        if (container := container_memory()) is None:
            return None
        heap = UsedMemory(touched_heap(self._jvm, self._largest_heap), self._largest_heap)
        return ExecutorReading(self._executor, container, heap)


def memory_of_executor(jvm: int, processes: Path = _PROCESSES) -> ExecutorMemory | None:
    """Return the memory of the executor whose JVM has this process id; None if it is no executor's."""
    try:
        words = (processes / str(jvm) / "cmdline").read_text(encoding="utf-8", errors="replace").split("\0")
    except OSError:
        return None
    sizes = [size for word in words if (size := _LARGEST_HEAP.fullmatch(word)) is not None]
    if "--executor-id" not in words[:-1] or not sizes:
        return None
    largest = int(sizes[-1][1]) << _UNITS[sizes[-1][2].lower()]
    return ExecutorMemory(words[words.index("--executor-id") + 1], jvm, largest)


def reporting(send_updates: Callable[[IO[Any]], None], memory: ExecutorMemory) -> Callable[[IO[Any]], None]:
    """Wrap the function by which a worker sends a task's accumulators; add the executor's memory when it is due."""

    def send(connection: IO[Any]) -> None:
        if (reading := memory.read()) is not None:
            Accumulator(EXECUTORS_MEMORY, reading, _Newest())  # which PySpark keeps until the next task
        send_updates(connection)

    return send


class _Newest(AccumulatorParam[Any]):
    """Keeps the newest reading of each executor, in place of a sum."""

    def zero(self, value: Any) -> dict[str, ExecutorReading]:
        return {}

    def addInPlace(self, value1: dict[str, ExecutorReading], value2: ExecutorReading) -> dict[str, ExecutorReading]:  # noqa: N802
        value1[value2.executor] = value2
        return value1


class ReceivedReadings:
    """The readings that executors have reported to this driver since it was made; one replaces the one before it."""

    def __init__(self) -> None:
        self._readings: dict[str, ExecutorReading] = {}
        Accumulator(EXECUTORS_MEMORY, self._readings, _Newest())

    def take(self) -> list[ExecutorReading]:
        """Return and forget the newest reading of each executor; PySpark adds others meanwhile, in a thread."""
        return [self._readings.pop(executor) for executor in list(self._readings)]
