"""How much memory pods get: what a query names is the heap of their JVM, and other things need some beside it.

The shares were measured on one driver and its executors, on a query with two sources of data types and one with Python
aggregates; docs/operations.md has the figures.
"""

from __future__ import annotations

from millrace_api.model.streamquery import Spec

_JVM = 256
"""MiB of a JVM beside its heap: classes, threads, compiled code, buffers of the network."""

_DRIVER_PYTHON = 384
"""MiB of the driver's own Python."""

_SOURCE = 384
"""MiB of the Python processes that plan the batches of a source: Spark has several for each."""

_WORKER = 256
"""MiB of a Python worker, of which an executor has one per core: Arrow batches, Numba's kernels."""

_STATE = 0.1
"""Share of the heap that RocksDB gets, for all state stores of an executor together."""

_LEAST_STATE = 128
"""MiB that RocksDB gets at least."""


def driver_limit(spec: Spec) -> int:
    """MiB of the driver's pod."""
    return _mebibytes(spec.driver.memory.bytes) + _JVM + _DRIVER_PYTHON + _SOURCE * len(spec.sources)


def executor_overhead(spec: Spec) -> int:
    """MiB of an executor's pod beside the JVM's heap."""
    return _JVM + _WORKER * spec.executors.cores + state_store(spec)


def state_store(spec: Spec) -> int:
    """MiB for the blocks and the writes that RocksDB holds, in one executor."""
    return max(_LEAST_STATE, int(_STATE * _mebibytes(spec.executors.memory.bytes)))


def _mebibytes(size: int) -> int:
    return size >> 20
