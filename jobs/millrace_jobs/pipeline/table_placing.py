"""The plan and the watermark of a batch for the tasks of its joins, which read them from properties of Spark's job."""

from __future__ import annotations

import json

from pyspark import SparkContext, TaskContext

from millrace_jobs.partitioners.registry import is_routed
from millrace_jobs.partitioners.units import UnitPlacement
from millrace_jobs.plan.control import Pin

_PIN = "millrace.pin"
"""Local property of Spark's jobs with the pin of their batch."""


_WATERMARK = "millrace.watermark"
"""Local property of Spark's jobs with the watermark of their batch, in milliseconds since 1970."""


def announce(pin: Pin | None, watermark: int, context: SparkContext) -> None:
    """Let the tasks of the jobs that this thread runs know the plan and the watermark of their batch."""
    if pin is not None:
        context.setLocalProperty(_PIN, json.dumps(pin.to_json()))
    context.setLocalProperty(_WATERMARK, str(watermark))


def watermark_of_task() -> int:
    """Return the watermark of the running task's batch, in milliseconds since 1970; 0 without one."""
    context = TaskContext.get()
    text = context.getLocalProperty(_WATERMARK) if context is not None else None
    assert text is not None, "the task's job was not announced"
    return int(text)


def placement_of_task(tasks: int) -> UnitPlacement | None:
    """Return the placement of the running task, one of ``tasks``; None if its batch has no plan that places units."""
    context = TaskContext.get()
    text = context.getLocalProperty(_PIN) if context is not None else None
    if context is None or text is None:
        return None
    pin = Pin.from_json(json.loads(text))
    if not is_routed(pin.algorithm):
        return None
    return UnitPlacement(
        pin.algorithm,
        workers=pin.workers,
        task=context.partitionId() % tasks,
        tasks=tasks,
        seed=pin.seed,
        parameters=pin.parameters,
    )
