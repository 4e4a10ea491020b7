"""``flink``: the autoscaler of the Flink Kubernetes operator, with its defaults.

Rules and defaults: module ``flink-autoscaler`` of apache/flink-kubernetes-operator, release 1.10.0. Evaluation and
decision are tested against the output of that release for random states. ``flink_job`` maps our job to a Flink job.

The simulation is kinder than reality: a rescale restarts a Flink job from its last checkpoint, while here batches go
on. Two effects of a restart remain: the autoscaler allows for five minutes of restart, and it drops the metrics of the
former plan. The operator runs it once a minute.
"""

from __future__ import annotations

from collections.abc import Callable

from millrace_arena.policies.flink_decision import FlinkMemory, decide
from millrace_arena.policies.flink_evaluation import evaluate
from millrace_arena.policies.flink_job import Backlog, FlinkReading, rescaled, samples, vertices
from millrace_arena.policies.flink_metrics import FlinkMetric, MetricWindow
from millrace_arena.policies.flink_options import FlinkOptions
from millrace_arena.policies.flink_window import Collector
from millrace_arena.simulation.run import ClusterView
from millrace_operator.scaling.observation import Answer
from millrace_operator.scaling.shape import Bounds, Shape


class Flink:
    """A policy that sets the parallelism of each stage by its busy time, and executors for the widest stage."""

    name = "flink"
    period = 60.0

    def __init__(self, bounds: Bounds, state_partitions: int, arrived: Callable[[float], float]) -> None:
        """Limit plans by ``bounds`` and read arrivals from a broker.

        The broker received ``arrived(time)`` records until ``time``, seconds; the merge has ``state_partitions`` tasks.
        """
        self._bounds = bounds
        self._state_partitions = state_partitions
        self._backlog = Backlog(arrived)
        self._options = FlinkOptions(max_parallelism=bounds.executors.high * bounds.executor_cores)
        self._memory = FlinkMemory()
        self._runs: _Running | None = None

    def step(self, answer: Answer | None, now: float, plan: Shape, epoch: int, cluster: ClusterView) -> Shape | None:
        """Return the plan of the rescaled job; None while the job restarts or settles, or if its metrics are unusable.

        The job restarts until a batch has run under the plan and executors are ready. It restarts again whenever the
        number of ready executors changes.
        """
        executors = min(cluster.executors_ready, plan.executors)
        if answer is None or answer.epoch != epoch or executors < 1:
            return None
        reading = FlinkReading.of(answer, dedicated=self._bounds.dedicated)
        if reading is None:
            return None
        lag = self._backlog.at(reading)
        if self._runs is None or not self._runs.goes_on(reading, epoch, executors):
            self._runs = _Running(reading, epoch, executors, self._options)
            return None
        window = self._runs.add(reading, lag, plan)
        if window is None:
            return None
        stages = vertices(plan, executors, self._bounds, self._state_partitions)
        found = evaluate(stages, window, self._options)
        parallelism, self._memory = decide(stages, found, self._memory, self._options, now)
        current = {stage.name: stage.parallelism for stage in stages}
        return None if parallelism == current else rescaled(plan, current, parallelism, self._bounds)


class _Running:
    """One execution of a job, from one restart to the next."""

    def __init__(self, first: FlinkReading, epoch: int, executors: int, options: FlinkOptions) -> None:
        self._form = (epoch, executors)
        self._last = first
        self._options = options
        self._collector = Collector(first.time, options)

    def goes_on(self, reading: FlinkReading, epoch: int, executors: int) -> bool:
        """Return whether ``reading`` belongs to this execution: nothing restarted it, and its counters continue."""
        return self._form == (epoch, executors) and reading.batches >= self._last.batches

    def add(self, reading: FlinkReading, lag: float, plan: Shape) -> MetricWindow | None:
        """Return the window that ends with ``reading``; None until the window is full, or without a new batch."""
        if reading.batches == self._last.batches or reading.time <= self._last.time:
            return None
        observed = self._collector.window.average("route", FlinkMetric.OBSERVED, self._options.observed_samples)
        taken = samples(self._last, reading, lag, plan, observed, self._options)
        self._last = reading
        return self._collector.add(reading.time, taken)
