"""Flink's autoscaler: the required and the possible rate of each vertex, and the new parallelism of each.

Rules of flink-autoscaler 1.10.0. The target rate of a source is its arrival rate. The target rate of another vertex is
what its inputs send at their own target rates. The lag must be worked off within the catch-up time. The true rate is
what a vertex would process if it were always busy.

The proposal for every vertex is the parallelism at which it reaches its target utilization. If a vertex whose change is
due is out of bounds, the job is rescaled, with all proposals applied. A scale-up is due at once; a scale-down is due
``scale_down_interval`` after it was first proposed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from millrace_research.arena.policies.flink_metrics import (
    FlinkMetric,
    FlinkOptions,
    MetricWindow,
    Vertex,
    quotient,
    rounded,
)


@dataclass(frozen=True)
class EvaluatedVertex:
    """Rates of a vertex, records per second, and its ``load``, the share of time it is busy.

    ``target_rate`` is the arrival rate, ``catch_up_rate`` is added to it until the lag is gone, and ``true_rate`` is
    the most that the vertex can process. The vertex is too slow if its true rate is below ``slow_below``, and idle too
    often if it is above ``idle_above``.
    """

    target_rate: float
    catch_up_rate: float
    true_rate: float
    load: float
    slow_below: float
    idle_above: float

    @property
    def out_of_bounds(self) -> bool:
        """Whether the vertex is too slow or idle too often."""
        return self.true_rate < self.slow_below or self.true_rate > self.idle_above


def evaluate(vertices: Sequence[Vertex], window: MetricWindow, options: FlinkOptions) -> dict[str, EvaluatedVertex]:
    """Evaluate all vertices, which come in topological order.

    Raises:
        ValueError: if the input rate of a source or the change of its lag is unknown.
    """
    if _behind(vertices, window, options):
        high, low = 1.0, 0.0
    else:
        high = options.target_utilization + options.utilization_boundary
        low = options.target_utilization - options.utilization_boundary
    found: dict[str, EvaluatedVertex] = {}
    for vertex in vertices:
        target, catch_up = (rounded(rate) for rate in _targets(vertex, vertices, window, found, options))
        load = _busy(vertex, window, options) / 1000
        found[vertex.name] = EvaluatedVertex(
            target_rate=target,
            catch_up_rate=catch_up,
            true_rate=rounded(_true_rate(vertex, window, load, options)),
            load=rounded(load),
            slow_below=capacity(target, catch_up, high, options, restart=False),
            idle_above=capacity(target, catch_up, low, options, restart=True),
        )
    return found


def capacity(target: float, catch_up: float, utilization: float, options: FlinkOptions, *, restart: bool) -> float:
    """Return the true rate at which a vertex is busy ``utilization`` of the time and catches up with its lag in time.

    With ``restart``, this includes the records that arrive while the job restarts for the rescaling. The result is a
    whole number of records per second.
    """
    if math.isnan(target) or math.isnan(catch_up):
        return math.nan
    if utilization <= 0:
        return math.inf
    missed = target * options.restart / options.catch_up if restart and options.catch_up > 0 else 0.0
    return float(math.floor(catch_up + missed + target / min(1.0, utilization) + 0.5))


def _behind(vertices: Iterable[Vertex], window: MetricWindow, options: FlinkOptions) -> bool:
    """Return whether a source is so far behind that only catching up counts."""
    sources = [vertex.name for vertex in vertices if not vertex.inputs]
    return any(
        quotient(window.latest(name, FlinkMetric.LAG, 0.0), window.rate(name, FlinkMetric.RECORDS_IN))
        > options.backlog_lag
        for name in sources
    )


def _targets(
    vertex: Vertex,
    vertices: Sequence[Vertex],
    window: MetricWindow,
    found: Mapping[str, EvaluatedVertex],
    options: FlinkOptions,
) -> tuple[float, float]:
    """Return the target rate and the catch-up rate of a vertex, unrounded."""
    if not vertex.inputs:
        arriving = window.rate(vertex.name, FlinkMetric.RECORDS_IN) + window.rate(vertex.name, FlinkMetric.LAG)
        if math.isnan(arriving):
            raise ValueError(f"unknown arrival rate of source {vertex.name}")
        lag = window.latest(vertex.name, FlinkMetric.LAG, 0.0)
        return max(0.0, arriving), lag / options.catch_up if options.catch_up > 0 else 0.0
    shares = [(found[name], _outputs_per_record(name, vertex, vertices, window)) for name in vertex.inputs]
    return (
        sum(before.target_rate * share for before, share in shares),
        sum(before.catch_up_rate * share for before, share in shares),
    )


def _outputs_per_record(source: str, to: Vertex, vertices: Sequence[Vertex], window: MetricWindow) -> float:
    """Return the records that ``to`` receives per record that ``source`` reads; 0 without a flow."""
    taken = window.rate(source, FlinkMetric.RECORDS_IN)
    sent = _edge_rate(source, to, vertices, window)
    return sent / taken if taken > 0 and sent > 0 else 0.0


def _edge_rate(source: str, to: Vertex, vertices: Sequence[Vertex], window: MetricWindow) -> float:
    """Return the records per second from one vertex to another, since metrics count by vertex and not by edge.

    The rate is the input of ``to`` less the output of its other inputs. If one of those also sends elsewhere, or is
    unknown, the rate is the whole output of ``source``.
    """
    sent_by_others = 0.0
    for name in to.inputs:
        if name != source:
            sends_elsewhere = sum(name in vertex.inputs for vertex in vertices) > 1
            sent_by_others += math.nan if sends_elsewhere else window.rate(name, FlinkMetric.RECORDS_OUT)
    if math.isnan(sent_by_others):
        return window.rate(source, FlinkMetric.RECORDS_OUT)
    return window.rate(to.name, FlinkMetric.RECORDS_IN) - sent_by_others


def _busy(vertex: Vertex, window: MetricWindow, options: FlinkOptions) -> float:
    """Return the busy time of the subtasks of a vertex, milliseconds per second."""
    if options.busy_from_total:
        return window.rate(vertex.name, FlinkMetric.BUSY) / vertex.parallelism
    return window.average(vertex.name, FlinkMetric.LOAD) * 1000


def _true_rate(vertex: Vertex, window: MetricWindow, load: float, options: FlinkOptions) -> float:
    """Return the true rate of the vertex by its busy time, or the observed one if that is clearly lower."""
    rate = window.rate(vertex.name, FlinkMetric.RECORDS_IN)
    by_busy_time = math.inf if rate == 0 else quotient(rate, load)
    observed = window.average(vertex.name, FlinkMetric.OBSERVED, options.observed_samples)
    if math.isnan(observed):
        return by_busy_time
    return by_busy_time if by_busy_time <= observed * (1 + options.observed_switch) else observed


@dataclass(frozen=True)
class VertexRescale:
    """A rescale of a vertex at ``time``, with its true rate then and its expected rate, records per second."""

    time: float
    before: int
    after: int
    true_rate: float
    expected_rate: float


@dataclass(frozen=True)
class FlinkMemory:
    """What the autoscaler remembers of each vertex: its last rescale, and since when a scale-down has been pending."""

    rescaled: Mapping[str, VertexRescale] = field(default_factory=dict)
    waiting: Mapping[str, float] = field(default_factory=dict)


def decide(
    vertices: Sequence[Vertex],
    found: Mapping[str, EvaluatedVertex],
    memory: FlinkMemory,
    options: FlinkOptions,
    now: float,
) -> tuple[dict[str, int], FlinkMemory]:
    """Return the new parallelism of every vertex and the new memory; ``now`` is in seconds."""
    waiting = dict(memory.waiting)
    proposed: dict[str, VertexRescale] = {}
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
        proposed[vertex.name] = VertexRescale(now, vertex.parallelism, after, seen.true_rate, expected)
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


def _factor(seen: EvaluatedVertex, options: FlinkOptions) -> float:
    """Return the factor by which a vertex must grow to reach its target utilization, within limits; NaN if unknown."""
    needed = capacity(seen.target_rate, seen.catch_up_rate, options.target_utilization, options, restart=True)
    factor = quotient(needed, seen.true_rate)
    if math.isnan(factor):
        return math.nan
    return min(max(factor, 1 - options.max_scale_down), 1 + options.max_scale_up)


def _even(wanted: int, groups: int, high: int) -> int:
    """Return the parallelism near ``wanted`` that splits ``groups`` best.

    This is the next divisor of ``groups`` from ``wanted`` up to ``high``, but at most half of the groups unless
    ``wanted`` is above that half. Without such a divisor it is the smallest parallelism p for which ``groups // p`` is
    still ``groups // wanted``, or one less if that splits the groups evenly.
    """
    top = min(groups if wanted > groups // 2 else groups // 2, high)
    divisor = next((tasks for tasks in range(wanted, top + 1) if groups % tasks == 0), None)
    if divisor is not None:
        return divisor
    fewer = groups // (groups // wanted + 1)  # the most tasks with one more group each
    return fewer if groups % fewer == 0 else fewer + 1


def _ineffective(
    vertex: Vertex, seen: EvaluatedVertex, past: VertexRescale | None, options: FlinkOptions, now: float
) -> bool:
    """Return whether the last scale-up gained too little of its expected rate to allow another one."""
    if not options.block_ineffective or past is None or now - past.time > options.history_age:
        return False
    if not past.before < past.after == vertex.parallelism:
        return False
    gained = quotient(seen.true_rate - past.true_rate, past.expected_rate - past.true_rate)
    return not gained >= options.effectiveness
