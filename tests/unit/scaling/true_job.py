"""A job of known costs whose batches are scheduled task by task, and observed as through metrics."""

import heapq
from dataclasses import dataclass

import numpy as np

from millrace_operator.scaling.observation import Observation, Stage
from millrace_operator.scaling.shape import Bounds, Range, Shape

BOUNDS = Bounds(Range(1, 16), Range(1, 64), Range(1, 16), executor_cores=1)
INTERVAL = 10.0
PARTITIONS = 4


def list_schedule(seconds, cores):
    """Return the end of the last task. Tasks start in order, each on the core that is free first."""
    free = [0.0] * cores
    for length in seconds:
        heapq.heapreplace(free, free[0] + length)
    return max(free)


@dataclass
class TrueJob:
    fixed: float = 0.5
    schedule: float = 0.004
    contention: float = 0.02
    launch: float = 0.02
    route_task: float = 0.0
    route_record: float = 1e-6
    combine_record: float = 5e-6
    combine_group: float = 2e-6
    merge_task: float = 0.05
    merge_group: float = 8e-6
    hot: float = 0.0
    groups: float = 40_000
    noise: float = 0.0
    seed: int = 0

    def __post_init__(self):
        self.rng = np.random.default_rng(self.seed)
        self.epoch, self.plan, self.time = 0, None, 0.0

    def partials(self, rows):
        return self.groups * -np.expm1(-rows / self.groups)

    def imbalance(self, n):
        return self.hot * (n - 1)

    def stages(self, plan, rows):
        """Return the seconds of each task by stage, and the launch times. Busy cores slow each other down."""
        n, m, groups = plan.parallelism, plan.replicas, self.partials(rows)
        shares = np.full(n, (1 - self.hot) / n)
        shares[0] += self.hot
        route = np.full(m, self.route_task + self.route_record * rows / m)
        combine = self.combine_record * rows * shares + self.combine_group * groups / n
        merge = np.full(PARTITIONS, self.merge_task + self.merge_group * groups / PARTITIONS)
        stages = ((route, self.launch), (combine, self.launch), (merge, 0.0))
        slower = [1 + self.contention * (min(len(tasks), plan.executors) - 1) for tasks, _ in stages]
        return [(tasks * slow, launch * slow) for (tasks, launch), slow in zip(stages, slower, strict=True)]

    def seconds(self, plan, rows):
        total = self.fixed + self.schedule * (plan.parallelism + plan.replicas + PARTITIONS)
        for tasks, launch in self.stages(plan, rows):
            total += list_schedule(self.rng.permutation(tasks + launch), plan.executors)
        return total

    def mean_seconds(self, plan, rows, batches=40):
        return np.mean([self.seconds(plan, rows) for _ in range(batches)])

    def observe(self, plan, rows, batches=3, **wrong):
        """Return the observation of some batches, with the values in ``wrong`` instead of the true ones."""
        self.epoch += plan != self.plan
        self.plan = plan
        since, self.time = self.time, self.time + batches * INTERVAL

        def scattered(seconds):
            return float(seconds * np.exp(self.noise * self.rng.standard_normal()))

        seen = [(len(tasks), scattered(tasks.sum())) for tasks, _ in self.stages(plan, rows)]
        true = {
            "seconds": scattered(self.mean_seconds(plan, rows, batches)),
            "partials": self.partials(rows),
            "imbalance": self.imbalance(plan.parallelism),
            "route": Stage(*seen[0]),
            "combine": Stage(*seen[1]),
            "merge_seconds": seen[2][1],
        }
        return Observation(
            since, self.time, self.epoch, plan, batches, INTERVAL, rows=rows, arrival=rows / INTERVAL, lag=0.0,
            **(true | wrong),
        )  # fmt: skip


def plan(executors, parallelism, replicas):
    return Shape(executors, parallelism, replicas)
