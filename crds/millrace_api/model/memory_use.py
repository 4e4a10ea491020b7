"""How much memory a driver and its executors use, as it reports it: an entry of the plan's ConfigMap.

It names the pod that it is about, so it means nothing to a later one. The driver measures and the operator judges: it
raises memory before it runs out.
"""

from __future__ import annotations

from enum import StrEnum
from itertools import pairwise
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field

from millrace_api.model.base import Model

MEMORY_KEY = "memory.json"
"""Entry of the ConfigMap with the memory in use; the driver writes and removes it."""

MUCH = 0.75
"""Share of its limit from which on a part of the memory is reported, and judged."""

MOST_SAMPLES = 60
"""Measurements of a part of the memory that are reported, the newest ones."""


class MemoryPart(StrEnum):
    """What of a pod's memory is measured."""

    HEAP = "heap"
    """What of the JVM's heap is still in use after a garbage collection, of the generation that keeps it."""
    BESIDE_HEAP = "beside-heap"
    """What the container's processes use beside the JVM's heap, of what the container's limit leaves for them."""
    CONTAINER = "container"
    """What the container's processes use and the kernel cannot take back, of the container's limit."""


class MemorySample(Model):
    """One measurement."""

    model_config = ConfigDict(extra="ignore")

    time: Annotated[int, Field(ge=0, le=1 << 40, description="Seconds since 1970.")]
    used: Annotated[int, Field(ge=0, le=1 << 50, description="Bytes in use.")]


def _rising(samples: tuple[MemorySample, ...]) -> tuple[MemorySample, ...]:
    if any(after.time <= before.time for before, after in pairwise(samples)):
        raise ValueError("samples are in the order of their times")
    return samples


class MemorySeries(Model):
    """The measurements of one part of the memory of one role's pods."""

    model_config = ConfigDict(extra="ignore")

    part: MemoryPart = Field(description="What is measured.")
    limit: Annotated[int, Field(ge=1, le=1 << 50)] = Field(description="Bytes that it may use.")
    samples: Annotated[tuple[MemorySample, ...], Field(max_length=MOST_SAMPLES), AfterValidator(_rising)] = Field(
        description="Measurements, the oldest first."
    )


class ExecutorSeries(Model):
    """The memory in use of one executor."""

    model_config = ConfigDict(extra="ignore")

    executor: Annotated[str, Field(max_length=64)] = Field(description="Spark's id of the executor.")
    series: Annotated[tuple[MemorySeries, ...], Field(max_length=len(MemoryPart))] = Field(
        description="What was measured, one for each part."
    )


class MemoryReport(Model):
    """The memory in use of the driver in a pod, and of the executor that is nearest to its limit."""

    model_config = ConfigDict(extra="ignore")

    pod: Annotated[str, Field(max_length=64)] = Field(description="The uid of the driver's pod.")
    series: Annotated[tuple[MemorySeries, ...], Field(max_length=len(MemoryPart))] = Field(
        default=(), description="What was measured, one for each part."
    )
    executor: ExecutorSeries | None = Field(
        default=None, description="The executor nearest to its limit; None where none has reported."
    )
