"""Memory of the pods of a query: the JVM heap that the query names, plus overhead outside the heap.

The shares are measured values with a margin; docs/operations.md has the measurements.
"""

from __future__ import annotations

from millrace_api.model.streamquery import Spec

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


def driver_limit(spec: Spec) -> int:
    """Return the memory limit of the driver's pod in MiB."""
    return (spec.driver.memory.bytes >> 20) + _JVM + _DRIVER_PYTHON + _SOURCE * len(spec.sources)


def executor_overhead(spec: Spec) -> int:
    """Return the memory of an executor's pod outside the JVM heap, in MiB."""
    return _JVM + _WORKER * spec.executors.cores.slots + state_store(spec)


def state_store(spec: Spec) -> int:
    """Return the memory for RocksDB's blocks and write buffers in one executor, in MiB."""
    return max(_LEAST_STATE, int(_STATE * (spec.executors.memory.bytes >> 20)))
