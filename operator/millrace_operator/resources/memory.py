"""Memory of the pods of a query: the JVM heap that the query names, plus overhead outside the heap.

The shares are measured values with a margin; docs/operations.md has the measurements. Memory that ran out may have been
raised since (``lifecycle.pods.out_of_memory``): then the heap, or what is beside it, is larger than the spec says.
"""

from __future__ import annotations

from typing import NamedTuple

from millrace_api.model.deployment import SparkPod
from millrace_api.model.status import MemoryStatus, RaisedMemory
from millrace_api.model.streamquery import Spec, StreamQuery
from millrace_api.model.values import ByteSize

RAISED_MEMORY = "millrace.io/raised-memory"
"""Annotation of a driver's pod: the result of ``raises_text`` for the memory that it and its executors have."""

_JVM = 256
"""MiB of a JVM outside its heap: classes, threads, compiled code, network buffers."""

_DRIVER_PYTHON = 384
"""MiB of the driver's own Python."""

_SOURCE = 384
"""MiB per source for the Python processes that plan its batches; Spark runs several of them."""

_WORKER = 256
"""MiB of a Python worker for Arrow batches and Numba kernels; an executor has one worker per task slot."""

_STATE = 0.1
"""RocksDB memory of an executor, for all its state stores together, as a fraction of the heap size."""

_LEAST_STATE = 128
"""Minimum RocksDB memory of an executor in MiB."""

AS_SPECIFIED = MemoryStatus()
"""No memory was raised."""


class PodMemory(NamedTuple):
    """Memory of a pod: the JVM's heap, and MiB beside it."""

    heap: ByteSize
    beside: int

    @property
    def limit(self) -> int:
        """Memory limit of the container in MiB."""
        return mebibytes(self.heap) + self.beside


def mebibytes(size: ByteSize) -> int:
    """Return a size in whole MiB."""
    return size.bytes >> 20


def driver_memory(spec: Spec, raised: MemoryStatus = AS_SPECIFIED) -> PodMemory:
    """Return the memory of the driver's pod."""
    heap, added = _heap(spec.driver, raised.driver)
    return PodMemory(heap, _JVM + _DRIVER_PYTHON + _SOURCE * len(spec.sources) + added)


def executor_memory(spec: Spec, raised: MemoryStatus = AS_SPECIFIED) -> PodMemory:
    """Return the memory of an executor's pod."""
    heap, added = _heap(spec.executors, raised.executors)
    return PodMemory(heap, _JVM + _WORKER * spec.executors.cores.slots + state_store(heap) + added)


def state_store(heap: ByteSize) -> int:
    """Return the memory for RocksDB's blocks and write buffers in one executor with this heap, in MiB."""
    return max(_LEAST_STATE, int(_STATE * mebibytes(heap)))


def raises_text(raised: MemoryStatus) -> str:
    """Return what is raised, as a text that differs whenever pods have other memory; empty if nothing is."""
    more = {part: each for part, each in raised.by_part.items() if each.memory.bytes > each.from_.bytes}
    return ", ".join(f"{part} {each.memory}, heap {each.heap}" for part, each in more.items())


def at_most(query: StreamQuery) -> StreamQuery:
    """Return the query with as much memory as it may be raised to."""
    driver, executors = query.spec.driver, query.spec.executors
    sizes = {
        "driver": driver.model_copy(update={"memory": driver.max_memory or driver.memory}),
        "executors": executors.model_copy(update={"memory": executors.max_memory or executors.memory}),
    }
    return query.model_copy(update={"spec": query.spec.model_copy(update=sizes)})


def _heap(pod: SparkPod, raised: RaisedMemory | None) -> tuple[ByteSize, int]:
    """Return the heap of a pod, and the MiB that were added beside it."""
    return (pod.memory, 0) if raised is None else (raised.heap, mebibytes(raised.memory) - mebibytes(raised.heap))
