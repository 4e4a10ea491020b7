"""``oracle``, ``fixed-mean`` and ``fixed-peak``: what knows the load and the time of a batch under every plan.

The oracle is a bound, not a policy that is simulated. It knows the load, the noise of every batch, and how long a batch
takes on each number of executors with the best parallelism and replicas for it. Dynamic programming over the batches
finds the executors with the fewest batches over the interval, and among those the fewest core-hours, with what changes
cost: executors are paid for while they start and drain, the first batch on new ones has to warm up, and a batch is
slower while others drain. A batch is over the interval in it only if it would be on every number of executors.

No policy that has as few batches over the interval can do with less, up to these approximations: tasks take their mean
over draws of noise, parallelism and replicas are some multiples of the cores, starts take their mean, and executors are
released only at a trigger. A policy with more late batches may cost less. Lost executors, and what a batch over the
interval leaves for the next one, are left out: they only add to what a policy needs.

A fixed plan for the mean load of the trace, or for its peak, is the choice of a user who has measured the job and knows
the load. The plan for the peak keeps batches within the interval as long as the keys do not change. The plan for the
mean is the cheapest that can ever catch up.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from millrace_operator.scaling.decision.decision import Situation
from millrace_operator.scaling.observation import Answer
from millrace_operator.scaling.shape import Shape
from millrace_research.arena.known_job import KnownJob
from millrace_research.arena.simulation.record import LATE_INTERVALS, Rescale, SimulatedBatch, SimulatedRun
from millrace_research.arena.simulation.run import Scenario, batch_noise, streams

ORACLE = "oracle"
"""Name of the bound among the policies."""

_LATE = 1e9
"""Core-seconds that a batch over the interval counts as: more than any run takes."""


class FixedPolicy:
    """A policy that keeps one plan throughout."""

    period = 60.0

    def __init__(self, name: str, plan: Shape) -> None:
        self.name = name
        self._plan = plan

    def step(self, answer: Answer | None, situation: Situation) -> Shape | None:
        """Return the fixed plan; it changes a job only once, if the job started with another plan."""
        return self._plan


def bound(scenario: Scenario, job: KnownJob, seed: int) -> SimulatedRun:
    """Return the run of the oracle, which has the least core-hours with the fewest batches over the interval.

    ``seed`` is that of the runs to compare it with, whose batches have the same noise.
    """
    batches = Batches(scenario, job, seed)
    sizes, seconds = batches.cheapest()
    return _record(scenario, batches, sizes, seconds)


class Batches:
    """The batches of a run in which none is over the interval: one at each trigger, with the records of an interval.

    Attributes:
        starts: when they start, seconds; shape (batches,).
        rows: their records, of the same shape; a batch without any takes no time.
        executors: numbers of executors, shape (sizes,).
        shapes: the plans, by the index of its number of executors and one of the plans with so many.
        best: index of the plan with the shortest batch, shape (batches, sizes).
        seconds: time of that batch, of the same shape.
        warming, draining: the same on new executors, and while others drain.
        starting: mean seconds from the request for an executor until it is ready.
        missing: share of the time for which one or more of so many executors are lost and not replaced yet, shape
            (sizes,), without the first two batches of each loss, which may be in time; 0 if none is lost.
        interval: seconds of a batch interval.
        core_seconds: core-seconds of each number of executors over an interval, shape (sizes,).
        paid: core-seconds of a change, from one number of executors, in rows, to another.
    """

    def __init__(self, scenario: Scenario, job: KnownJob, seed: int) -> None:
        interval, duration = scenario.job.interval, scenario.trace.duration
        triggers = np.arange(math.ceil(duration / interval - 1e-9))
        arrived = np.array([int(scenario.trace.arrived(number * interval)) for number in triggers.tolist()])
        rows = np.diff(arrived, prepend=0)
        noise = batch_noise(scenario, streams(seed)[0])
        factors, delays = (
            np.array(each)[triggers][:, None] * (rows > 0)[:, None] for each in (noise.factors, noise.delays)
        )
        self.starts, self.rows = triggers * interval, rows
        limits, quota = scenario.bounds.executors, scenario.cluster.quota
        most = limits.high if quota is None else max(min(limits.high, quota), limits.low)
        self.executors = np.arange(limits.low, most + 1)
        self.shapes = [job.plans(size) for size in self.executors.tolist()]
        bare, self.best = self._shortest(scenario, job)
        cluster, fixed = scenario.cluster, scenario.job.fixed
        self.seconds = bare * factors + delays
        self.warming = self.seconds + cluster.warm_up_seconds * (rows > 0)[:, None]
        self.draining = self.seconds + np.maximum(bare - fixed, 0.0) * factors * cluster.drain_slowdown
        self.interval = interval
        self.core_seconds = interval * self.executors * scenario.bounds.executor_cores
        self.starting = cluster.start_seconds * math.exp(cluster.start_scatter**2 / 2)
        lasting = math.inf if cluster.lost_every is None else cluster.lost_every
        absent = max(self.starting - LATE_INTERVALS * interval, 0.0)
        self.missing = 1 - (1 + absent / lasting) ** -self.executors.astype(np.float64)
        added = np.subtract.outer(-self.executors, -self.executors)  # from a row to a column
        paid = np.where(added > 0, added * self.starting, -added * cluster.drain_seconds)
        self.paid = paid * scenario.bounds.executor_cores

    def _shortest(self, scenario: Scenario, job: KnownJob) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
        """Return the seconds of each batch under the best plan of each size, and that plan."""
        seconds = np.empty((len(self.rows), len(self.executors)))
        best = np.empty(seconds.shape, dtype=np.intp)
        keys = [scenario.keys.at(start) for start in self.starts.tolist()]
        for one in dict.fromkeys(keys):
            among = np.array([each == one for each in keys])
            for size, shapes in enumerate(self.shapes):
                times = np.stack([job.seconds(shape, self.rows[among], one) for shape in shapes])
                best[among, size], seconds[among, size] = times.argmin(axis=0), times.min(axis=0)
        return seconds, best

    def cheapest(self) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """Return the index of the executors for each batch, and the seconds of the batch; shapes (batches,)."""
        sizes = np.arange(len(self.executors))
        up, down = sizes[:, None] < sizes, sizes[:, None] > sizes
        come = np.empty((len(self.rows), len(sizes)), dtype=np.intp)  # the size before, by the size now
        cost = np.zeros(len(sizes))
        for number in range(len(self.rows)):
            seconds = self._seconds(number, up, down)
            moved = cost[:, None] + self.paid + _LATE * (seconds > self.interval)
            come[number] = moved.argmin(axis=0)
            cost = moved[come[number], sizes] + self.core_seconds
        found = np.empty(len(self.rows), dtype=np.intp)
        took = np.empty(len(self.rows))
        now = int(cost.argmin())
        for number in range(len(self.rows) - 1, -1, -1):
            before = int(come[number, now]) if number else now
            found[number], took[number] = now, self._seconds(number, up, down)[before, now]
            now = before
        return found, took

    def _seconds(self, number: int, up: NDArray[np.bool_], down: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return the seconds of a batch by the size before, in rows, and the size now, in columns.

        The first batch has the executors that it needs.
        """
        if not number:
            return np.broadcast_to(self.seconds[0], up.shape)
        staying = np.where(down, self.draining[number], self.seconds[number])
        return np.asarray(np.where(up, self.warming[number], staying))


def _record(
    scenario: Scenario, batches: Batches, sizes: NDArray[np.intp], seconds: NDArray[np.float64]
) -> SimulatedRun:
    """Return the run as if it had been simulated; executors are requested as long before as a start takes."""
    interval, trace = scenario.job.interval, scenario.trace
    executors = batches.executors[sizes]
    shapes = [
        batches.shapes[size][plan] for size, plan in zip(sizes, batches.best[np.arange(len(sizes)), sizes], strict=True)
    ]
    epochs = np.cumsum(np.diff(executors, prepend=executors[:1]) != 0)
    done = np.cumsum(batches.rows)
    finished = [
        SimulatedBatch(
            planned=start,
            seconds=seconds[number],
            rows=int(batches.rows[number]),
            oldest=start - interval,
            newest=start,
            backlog=max(int(trace.arrived(start + seconds[number]) - done[number]), 0),
            distinct=max(round(scenario.keys.at(start).appearing(float(batches.rows[number]))), 1),
            epoch=int(epochs[number]),
            plan=shapes[number],
            executors=int(executors[number]),
        )
        for number, start in enumerate(batches.starts.tolist())
        if batches.rows[number]
    ]
    rescales = [
        Rescale(start - (batches.starting if after.executors > before.executors else 0.0), before, after)
        for start, before, after in zip(batches.starts[1:].tolist(), shapes, shapes[1:], strict=False)
        if before.executors != after.executors
    ]
    arrived = int(trace.arrived(trace.duration))
    lasting = np.diff(np.append(batches.starts, trace.duration))
    core_seconds = executors @ lasting * scenario.bounds.executor_cores + batches.paid[sizes[:-1], sizes[1:]].sum()
    return SimulatedRun(
        policy=ORACLE,
        duration=trace.duration,
        interval=interval,
        batches=tuple(finished),
        rescales=tuple(rescales),
        core_seconds=float(core_seconds),
        arrived=arrived,
        unfinished=arrived - int(done[-1]),
        unfinished_since=float(batches.starts[-1]),
    )
