"""``flink``: the autoscaler of the Flink Kubernetes operator with its defaults, and our job as a Flink job.

Rules and defaults: module ``flink-autoscaler`` of apache/flink-kubernetes-operator, release 1.10.0. Evaluation and
decision (``flink_autoscaler``) are tested against the output of that release for random states.

The stages route, combine and merge are vertices, and route is the source. They share slots, as is Flink's default. A
slot is a core: a vertex has as many subtasks as it has concurrent tasks, and the job has the slots of its widest
vertex. State partitions are the key groups of merge. The parallelism of route is the number of replicas, and that of
combine the number of combine tasks. If either exceeds the slots, Flink sees the slots.

A Flink subtask is busy while it waits for neither input nor output. The stages of a batch take turns on the same
cores, which do nothing else until the batch ends. All stages are therefore busy while a batch is processed. If only a
stage's own tasks counted, no stage would ever be fully busy, and Flink, whose vertices run side by side, would see
spare capacity that does not exist. Partitioners in pods of their own do run beside the batches. They have their own
slots and are busy for their CPU time. Flink treats the rest of their time as back pressure from the batches.

The simulation is kinder than reality: a rescale restarts a Flink job from its last checkpoint, while here batches
continue. Two effects of a restart remain: the autoscaler allows for five minutes of restart, and it drops the metrics
of the former plan. The autoscaler runs once a minute.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from millrace_operator.scaling.decision.decision import Situation
from millrace_operator.scaling.observation import Answer
from millrace_operator.scaling.shape import Bounds, Shape
from millrace_research.arena.policies.flink_autoscaler import FlinkMemory, decide, evaluate
from millrace_research.arena.policies.flink_metrics import (
    Collector,
    FlinkMetric,
    FlinkOptions,
    MetricWindow,
    Sample,
    Vertex,
    observed_rate,
)


class FlinkPolicy:
    """A policy that sets the parallelism of each stage by its busy time, and executors for the widest stage."""

    name = "flink"
    period = 60.0

    def __init__(self, bounds: Bounds, state_partitions: int, arrived: Callable[[float], float]) -> None:
        """Limit plans by ``bounds`` and read arrivals from a broker.

        The broker received ``arrived(time)`` records until ``time``, seconds; the merge has ``state_partitions`` tasks.
        """
        self._bounds = bounds
        self._state_partitions = state_partitions
        self._backlog = _Backlog(arrived)
        self._options = FlinkOptions(max_parallelism=bounds.executors.high * bounds.executor_cores)
        self._memory = FlinkMemory()
        self._execution: _Execution | None = None

    def step(self, answer: Answer | None, situation: Situation) -> Shape | None:
        """Return the plan of the rescaled job, or None to keep the present plan.

        The plan is kept while the job restarts or settles, without a new batch, and if metrics are unusable.
        The job restarts until a batch has run under the plan and executors are ready. It restarts again whenever the
        number of ready executors changes.
        """
        plan, epoch = situation.plan, situation.epoch
        executors = min(situation.executors_ready, plan.executors)
        if answer is None or answer.epoch != epoch or executors < 1:
            return None
        reading = _Reading.of(answer, dedicated=self._bounds.dedicated)
        if reading is None:
            return None
        lag = self._backlog.at(reading)
        if self._execution is None or not self._execution.includes(reading, epoch, executors):
            self._execution = _Execution(reading, epoch, executors, self._options)
            return None
        window = self._execution.add(reading, lag, plan)
        if window is None:
            return None
        stages = _vertices(plan, executors, self._bounds, self._state_partitions)
        found = evaluate(stages, window, self._options)
        parallelism, self._memory = decide(stages, found, self._memory, self._options, situation.now)
        current = {stage.name: stage.parallelism for stage in stages}
        return None if parallelism == current else _rescaled(plan, current, parallelism, self._bounds)


class _Execution:
    """One execution of a job, from one restart to the next."""

    def __init__(self, first: _Reading, epoch: int, executors: int, options: FlinkOptions) -> None:
        self._epoch_executors = (epoch, executors)
        self._last = first
        self._options = options
        self._collector = Collector(first.time, options)

    def includes(self, reading: _Reading, epoch: int, executors: int) -> bool:
        """Return whether ``reading`` belongs to this execution: nothing restarted it, and its counters continue."""
        return self._epoch_executors == (epoch, executors) and reading.batches >= self._last.batches

    def add(self, reading: _Reading, lag: float, plan: Shape) -> MetricWindow | None:
        """Return the window that ends with ``reading``; None until the window is full, or without a new batch."""
        if reading.batches == self._last.batches or reading.time <= self._last.time:
            return None
        observed = self._collector.window.average("route", FlinkMetric.OBSERVED, self._options.observed_samples)
        taken = _samples(self._last, reading, lag, plan, observed, self._options)
        self._last = reading
        return self._collector.add(reading.time, taken)


@dataclass(frozen=True)
class _Reading:
    """The numbers that the autoscaler uses from an answer, valid at ``time``, seconds.

    Attributes:
        batches, rows, partials: finished batches, their records and their partial results.
        processing: seconds spent processing them.
        routing: CPU seconds of partitioner pods; None without such pods.
    """

    time: float
    batches: float
    rows: float
    partials: float
    processing: float
    routing: float | None

    @classmethod
    def of(cls, answer: Answer, *, dedicated: bool) -> _Reading | None:
        """Return the numbers of ``answer``; None if one is missing, negative or not finite."""
        numbers = [answer.batches_total, answer.rows_total, answer.partials_total, answer.processing_seconds_total]
        if dedicated:
            numbers.append(answer.dedicated_busy_seconds_total)
        known = [number for number in numbers if number is not None and math.isfinite(number) and number >= 0]
        if len(known) < len(numbers):
            return None
        batches, rows, partials, processing, *routing = known
        return cls(answer.time, batches, rows, partials, processing, routing[0] if dedicated else None)


class _Backlog:
    """Records that arrived at the source and are in no finished batch; Flink reads this lag from the broker."""

    def __init__(self, arrived: Callable[[float], float]) -> None:
        """Read arrivals from a broker that received ``arrived(time)`` records until ``time``, seconds."""
        self._arrived = arrived
        self._batches = 0.0
        self._lag = 0.0
        self._by_earlier_drivers = 0.0

    def at(self, reading: _Reading) -> float:
        """Return the backlog at the time of ``reading``; a restarted driver continues where the last one stopped."""
        uncounted = self._arrived(reading.time) - reading.rows
        if reading.batches < self._batches:
            self._by_earlier_drivers = uncounted - self._lag
        self._batches = reading.batches
        self._lag = max(0.0, uncounted - self._by_earlier_drivers)
        return self._lag


def _vertices(plan: Shape, executors: int, bounds: Bounds, state_partitions: int) -> list[Vertex]:
    """Return the stages of a job on ``executors`` executors, in the order in which records pass through them."""
    slots = executors * bounds.executor_cores
    replicas = plan.replicas if bounds.dedicated else min(plan.replicas, slots)
    return [
        Vertex("route", (), False, replicas, bounds.replicas.high),
        Vertex("combine", ("route",), False, min(plan.parallelism, slots), bounds.parallelism.high),
        Vertex("merge", ("combine",), True, min(state_partitions, slots), state_partitions),
    ]


def _samples(
    before: _Reading, now: _Reading, lag: float, plan: Shape, observed: float, options: FlinkOptions
) -> dict[str, Sample]:
    """Return the metrics of the vertices over the time since ``before``.

    ``lag`` is the number of waiting records, and ``observed`` the mean observed true rate of the source so far.
    """
    seconds = now.time - before.time
    busy, held_up = (now.processing - before.processing) / seconds, 0.0
    routing = busy
    if now.routing is not None and before.routing is not None:
        routing = (now.routing - before.routing) / (seconds * plan.replicas)
        held_up = max(0.0, 1 - routing)
    taken = (now.rows - before.rows) / seconds
    return {
        "route": {
            FlinkMetric.RECORDS_IN: now.rows,
            FlinkMetric.LAG: lag,
            FlinkMetric.LOAD: routing,
            FlinkMetric.OBSERVED: observed_rate(taken, lag, held_up, observed, options),
        },
        "combine": {FlinkMetric.RECORDS_IN: now.rows, FlinkMetric.LOAD: busy},
        "merge": {FlinkMetric.RECORDS_IN: now.partials, FlinkMetric.LOAD: busy},
    }


def _rescaled(plan: Shape, current: Mapping[str, int], parallelism: Mapping[str, int], bounds: Bounds) -> Shape:
    """Return the plan with ``parallelism`` instead of ``current``; vertices that do not change keep their tasks."""
    replicas = plan.replicas if parallelism["route"] == current["route"] else parallelism["route"]
    combine = plan.parallelism if parallelism["combine"] == current["combine"] else parallelism["combine"]
    sharing = [count for name, count in parallelism.items() if name != "route" or not bounds.dedicated]
    return bounds.nearest(Shape(math.ceil(max(sharing) / bounds.executor_cores), combine, replicas))
