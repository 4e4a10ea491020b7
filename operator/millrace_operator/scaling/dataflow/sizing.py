"""The fewest tasks and smallest batches that one operator needs: paper 002, sections 4.2.1 and 4.2.2."""

from __future__ import annotations

import math

from .cost_model import TOLERANCE, BusyTasks
from .flow import FlowOperator


def least_tasks(divided: float, repeated: float, *, exclusive: bool) -> int | None:
    """Return the fewest tasks that can share ``divided`` if each also bears all of ``repeated``; None if none suffice.

    Both are shares of a task's time, or of its network: 1 fills one task. ``repeated`` comes from broadcasts, which
    reach every task. Without broadcasts this is equation 4.19. With ``exclusive``, which lets no task be filled
    completely, it is equation 4.20.
    """
    free = 1 - repeated
    if free <= (TOLERANCE if exclusive or divided else -TOLERANCE):
        return None
    if exclusive:
        return math.floor(divided / (free - TOLERANCE)) + 1
    return max(1, math.ceil(divided / (free + TOLERANCE)))


def tasks_for(divided: BusyTasks, repeated: BusyTasks, *, exclusive: bool = False) -> int | None:
    """Return the fewest tasks for processor and network (equation 4.22); ``exclusive`` applies to the processor (4.23).

    None if no number of tasks is enough.
    """
    bounds = (
        least_tasks(divided.processing, repeated.processing, exclusive=exclusive),
        least_tasks(divided.input, repeated.input, exclusive=False),
        least_tasks(divided.output, repeated.output, exclusive=False),
    )
    return None if None in bounds else max(filter(None, bounds))


def least_input_batch(operator: FlowOperator, task_rate: float) -> int:
    """Return b_in*, the fewest records of an input batch for which some output batch is large enough (equation 4.25).

    ``task_rate`` is r_in, the records per second of one task. It must leave the task time beyond ``cpu_seconds``.
    """
    if not operator.fetch_seconds or not task_rate:
        return 1
    least = operator.fetch_seconds / (1 / task_rate - operator.cpu_seconds)
    return math.floor(least * (1 + TOLERANCE)) + 1  # the bound is exclusive: a whole number itself is too small


def least_output_batch(operator: FlowOperator, task_rate: float, input_batch: float) -> int:
    """Return b_out, the fewest records of an output batch, given input batches of at least b_in* (equation 4.27)."""
    emitting = operator.selectivity * operator.emit_seconds
    if not emitting or not task_rate:
        return 1
    left = (1 + TOLERANCE) / task_rate - operator.cpu_seconds - operator.fetch_seconds / input_batch
    return max(1, math.ceil(emitting / left))
