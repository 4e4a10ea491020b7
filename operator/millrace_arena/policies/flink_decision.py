"""Decision of Flink's autoscaler: the new parallelism of each vertex, and whether the job is rescaled at all.

Rules of flink-autoscaler 1.10.0. The proposal for every vertex is the parallelism at which it reaches its target
utilization. If a vertex whose change is due is out of bounds, the job is rescaled, with all proposals applied. A
scale-up is due at once; a scale-down is due ``scale_down_interval`` after it was first proposed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from millrace_arena.policies.flink_evaluation import Evaluated, capacity
from millrace_arena.policies.flink_metrics import Vertex, quotient, rounded
from millrace_arena.policies.flink_options import FlinkOptions


@dataclass(frozen=True)
class Rescaled:
    """A vertex that was rescaled at ``time``, with its true rate then and its expected rate, records per second."""

    time: float
    before: int
    after: int
    true_rate: float
    expected_rate: float


@dataclass(frozen=True)
class FlinkMemory:
    """State kept for each vertex: its last rescale, and the time since which a scale-down is pending."""

    rescaled: Mapping[str, Rescaled] = field(default_factory=dict)
    waiting: Mapping[str, float] = field(default_factory=dict)


def decide(
    vertices: Sequence[Vertex], found: Mapping[str, Evaluated], memory: FlinkMemory, options: FlinkOptions, now: float
) -> tuple[dict[str, int], FlinkMemory]:
    """Return the new parallelism of every vertex and the new memory; ``now`` is in seconds."""
    waiting = dict(memory.waiting)
    proposed: dict[str, Rescaled] = {}
    needed = False
    for vertex in vertices:
        seen = found[vertex.name]
        factor = _factor(seen, options)
        if vertex.name in options.excluded or math.isnan(factor):
            continue
        after = scaled(vertex, factor, options)
        if after < vertex.parallelism:
            delay = options.scale_down_interval
            due = delay <= 0 or now - waiting.setdefault(vertex.name, now) >= delay
        else:
            waiting.pop(vertex.name, None)
            past = memory.rescaled.get(vertex.name)
            due = after > vertex.parallelism and not _ineffective(vertex, seen, past, options, now)
            if not due:
                continue
        expected = rounded(seen.true_rate * factor)
        proposed[vertex.name] = Rescaled(now, vertex.parallelism, after, seen.true_rate, expected)
        needed = needed or (due and seen.out_of_bounds)
    parallelism = {vertex.name: vertex.parallelism for vertex in vertices}
    if not needed:
        return parallelism, FlinkMemory(memory.rescaled, waiting)
    changed = {name: step.after for name, step in proposed.items()}
    return parallelism | changed, FlinkMemory({**memory.rescaled, **proposed}, {})


def scaled(vertex: Vertex, factor: float, options: FlinkOptions) -> int:
    """Return the parallelism times ``factor``, within limits, splitting keys and partitions evenly if possible."""
    low = min(vertex.parallelism, options.min_parallelism)
    high = min(vertex.max_parallelism, max(vertex.parallelism, options.max_parallelism))
    wanted = min(max(low, math.ceil(factor * vertex.parallelism)), high)
    if not vertex.keyed and vertex.partitions <= 0:
        return wanted
    groups = vertex.partitions if vertex.partitions > 0 else vertex.max_parallelism
    return max(low, _even(wanted, groups, high))


def _factor(seen: Evaluated, options: FlinkOptions) -> float:
    """Return the factor by which a vertex must grow to reach its target utilization, within limits; NaN if unknown."""
    needed = capacity(seen.target_rate, seen.catch_up_rate, options.target_utilization, options, restart=True)
    factor = quotient(needed, seen.true_rate)
    if math.isnan(factor):
        return math.nan
    return min(max(factor, 1 - options.max_scale_down), 1 + options.max_scale_up)


def _even(wanted: int, groups: int, high: int) -> int:
    """Return the parallelism near ``wanted`` that splits ``groups`` best.

    This is the next divisor of ``groups`` from ``wanted`` up to ``high``, but at most half of the groups unless
    ``wanted`` is above that half. Without such a divisor it is the smallest parallelism with ``groups // wanted``
    groups per task, rounded down, or one less if that splits the groups evenly.
    """
    top = min(groups if wanted > groups // 2 else groups // 2, high)
    divisor = next((tasks for tasks in range(wanted, top + 1) if groups % tasks == 0), None)
    if divisor is not None:
        return divisor
    fewer = groups // (groups // wanted + 1)  # the most tasks with one more group each
    return fewer if groups % fewer == 0 else fewer + 1


def _ineffective(vertex: Vertex, seen: Evaluated, past: Rescaled | None, options: FlinkOptions, now: float) -> bool:
    """Return whether the last scale-up gained too little of its expected rate to allow another one."""
    if not options.block_ineffective or past is None or now - past.time > options.history_age:
        return False
    if not past.before < past.after == vertex.parallelism:
        return False
    gained = quotient(seen.true_rate - past.true_rate, past.expected_rate - past.true_rate)
    return not gained >= options.effectiveness
