"""Our job as one of Flink's: stages as vertices, answers as samples of their metrics, and parallelism as a plan.

The stages route, combine and merge are vertices, and route is the source. They share slots, as is Flink's default, and
a slot is a core: a vertex has as many subtasks as it has tasks at the same time, and the job has the slots of its
widest vertex. State partitions are the key groups of merge. The parallelism of route is the number of replicas, that
of combine the number of combine tasks; where either is more than the slots, Flink sees the slots.

A subtask of Flink is busy while it waits for neither input nor output. The stages of a batch take turns on the same
cores, and until it ends they take nothing else; so all of them are busy while a batch is processed. If only a stage's
own tasks counted, none would ever be busy all the time, and Flink, whose vertices run side by side, would see room
where there is none.

Partitioners in pods of their own do run beside the batches: they have slots of their own and are busy by their
processor time. What they wait beyond that, Flink takes for being held up by the batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...scaling.observation import Answer
from ...scaling.plans import Bounds, Shape
from .flink_metrics import FlinkMetric, Sample, Vertex, observed_rate
from .flink_options import FlinkOptions


@dataclass(frozen=True)
class FlinkReading:
    """The numbers that are used of an answer, true at ``time``, seconds.

    Attributes:
        batches, rows, partials: batches that ended, their records and their partial results.
        processing: seconds in which they were processed.
        routing: processor seconds of partitioner pods; None without such pods.
    """

    time: float
    batches: float
    rows: float
    partials: float
    processing: float
    routing: float | None

    @classmethod
    def of(cls, answer: Answer, *, dedicated: bool) -> FlinkReading | None:
        """The numbers of ``answer``; None if one is missing, or is none that a job can have."""
        numbers = [answer.batches_total, answer.rows_total, answer.partials_total, answer.processing_seconds_total]
        if dedicated:
            numbers.append(answer.dedicated_busy_seconds_total)
        known = [number for number in numbers if number is not None and math.isfinite(number) and number >= 0]
        if len(known) < len(numbers):
            return None
        batches, rows, partials, processing, *routing = known
        return cls(answer.time, batches, rows, partials, processing, routing[0] if dedicated else None)


class Backlog:
    """Records that came to the source and are in no finished batch: Flink asks the broker for them."""

    def __init__(self, arrived: Callable[[float], float]) -> None:
        """Ask a broker that got ``arrived(time)`` records until ``time``, in seconds."""
        self._arrived = arrived
        self._batches = 0.0
        self._lag = 0.0
        self._by_earlier_drivers = 0.0

    def at(self, reading: FlinkReading) -> float:
        """Those at the time of ``reading``; a driver that starts anew goes on where the one before it was."""
        uncounted = self._arrived(reading.time) - reading.rows
        if reading.batches < self._batches:
            self._by_earlier_drivers = uncounted - self._lag
        self._batches = reading.batches
        self._lag = max(0.0, uncounted - self._by_earlier_drivers)
        return self._lag


def vertices(plan: Shape, executors: int, bounds: Bounds, state_partitions: int) -> list[Vertex]:
    """The stages of a job that runs on so many ``executors``, in the order in which records go through them."""
    slots = executors * bounds.executor_cores
    replicas = plan.replicas if bounds.dedicated else min(plan.replicas, slots)
    return [
        Vertex("route", (), False, replicas, bounds.replicas.high),
        Vertex("combine", ("route",), False, min(plan.parallelism, slots), bounds.parallelism.high),
        Vertex("merge", ("combine",), True, min(state_partitions, slots), state_partitions),
    ]


def samples(
    before: FlinkReading, now: FlinkReading, lag: float, plan: Shape, observed: float, options: FlinkOptions
) -> dict[str, Sample]:
    """Metrics of the vertices, with what happened since ``before``.

    ``lag`` are the records that wait now, ``observed`` is the mean of what was observed of the source so far.
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


def rescaled(plan: Shape, current: Mapping[str, int], parallelism: Mapping[str, int], bounds: Bounds) -> Shape:
    """The plan in which the vertices have ``parallelism`` instead of ``current``; tasks of the others stay."""
    replicas = plan.replicas if parallelism["route"] == current["route"] else parallelism["route"]
    combine = plan.parallelism if parallelism["combine"] == current["combine"] else parallelism["combine"]
    sharing = [count for name, count in parallelism.items() if name != "route" or not bounds.dedicated]
    return bounds.nearest(Shape(math.ceil(max(sharing) / bounds.executor_cores), combine, replicas))
