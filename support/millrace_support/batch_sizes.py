"""The least batch sizes with which a task keeps up with its records (paper 002, section 4.2.2 and Algorithm 3).

A task spends ``fetch_seconds`` on an input batch, ``cpu_seconds`` on a record, and ``emit_seconds`` on an output batch.
Planning of a data flow and partitioners that size their batches while they run both compute with these.
"""

from __future__ import annotations

import math

TOLERANCE = 1e-9
"""Share by which a rate may exceed a capacity and still fit: sums of costs are rounded, and costs are not that exact.

Without it, the order of an addition would decide whether tasks that are exactly busy (Example 13: 90 + 900 + 10 ms for
one record a second) are overloaded.
"""


def least_input_batch(fetch_seconds: float, cpu_seconds: float, task_rate: float) -> int:
    """Return b_in*, the fewest records of an input batch for which some output batch is large enough (equation 4.25).

    ``task_rate`` is r_in, the records per second of one task. It must leave the task time beyond ``cpu_seconds``.
    """
    if not fetch_seconds or not task_rate:
        return 1
    least = fetch_seconds / (1 / task_rate - cpu_seconds)
    return math.floor(least * (1 + TOLERANCE)) + 1  # the bound is exclusive: a whole number itself is too small


def least_output_batch(emit_seconds: float, other_seconds: float, task_rate: float) -> int:
    """Return b_out, the fewest records of an output batch with which the task keeps up (equation 4.27).

    Args:
        emit_seconds: s * c_emit, seconds of an output batch times output records per input record.
        other_seconds: seconds of an input record without emitting: c_cpu + c_fetch / b_in.
        task_rate: r_in, as above. It must leave the task time beyond ``other_seconds``.
    """
    if not emit_seconds or not task_rate:
        return 1
    return max(1, math.ceil(emit_seconds / ((1 + TOLERANCE) / task_rate - other_seconds)))
