"""A flow simulated record by record as bounded queues: back pressure without the model's equations.

Every task of a consumer has a queue for each of its producers, with room for some batches. A task takes a batch,
processes it, and puts completed batches into queues: into those of a consumer's tasks in turn, or into all of them for a
broadcast. While a queue is full, the task waits and takes nothing. If several queues have batches, the next one is drawn
with its producer's offered rate as the weight, which is how equation 4.11 divides a consumer. Sources produce records at
their rate, or as fast as back pressure allows.
"""

import heapq
from collections import deque
from dataclasses import dataclass, field
from itertools import cycle

import numpy as np

from millrace_operator.capacity.bottleneck import loads
from millrace_operator.capacity.flow import StreamConnection

ROOM = 8
"""Capacity of a queue, in batches."""


@dataclass(eq=False)
class Task:
    operator: object
    batch: int
    interval: float = 0.0  # of a source: from record to record, seconds
    ready: float = 0.0  # of a source: when the next record is there
    queues: dict[str, deque] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    producers: dict[str, list] = field(default_factory=dict)
    consumers: list = field(default_factory=list)  # for each, an endless iterator over the groups of tasks to send to
    made: float = 0.0  # output records that are in no batch yet
    leaving: deque = field(default_factory=deque)  # tasks that completed batches go to
    busy: bool = False
    processed: int = 0

    def seconds(self, records):
        emitted = records * self.operator.selectivity / self.batch
        fetch = self.operator.fetch_seconds if self.operator.inputs else 0.0
        return fetch + records * self.operator.cpu_seconds + emitted * self.operator.emit_seconds

    def finish(self, records):
        self.busy = False
        self.processed += records
        self.made += records * self.operator.selectivity
        while self.made >= self.batch:
            self.made -= self.batch
            for groups in self.consumers:
                self.leaving.extend(next(groups))


def simulate(flow, configuration, rates, seconds, seed=0):
    """Return the records per second that each operator processes, over the second half of the time."""
    rng = np.random.default_rng(seed)
    tasks = _network(flow, configuration, rates)
    events, number, middle = [], 0, None
    waiting = deque(task for each in tasks.values() for task in each)
    now = 0.0
    while True:
        while waiting:
            task = waiting.popleft()
            if task.busy or not _leave(task, waiting):
                continue
            records = _take(task, rng, waiting)
            if records:
                task.busy = True
                start = max(now, task.ready)
                task.ready = start + task.interval
                number += 1
                heapq.heappush(events, (start + task.seconds(records), number, task, records))
        now, _, task, records = heapq.heappop(events)
        if middle is None and now >= seconds / 2:
            middle = _processed(tasks)
        if now >= seconds:
            return {name: (end - middle[name]) / (seconds / 2) for name, end in _processed(tasks).items()}
        task.finish(records)
        waiting.append(task)


def _network(flow, configuration, rates):
    tasks = {}
    offered = loads(flow, configuration, rates)
    for operator in flow.order:
        given = configuration[operator.name]
        interval = given.tasks / rates[operator.name] if not operator.inputs else 0.0
        tasks[operator.name] = own = [Task(operator, given.batch, interval) for _ in range(given.tasks)]
        for producer, connection in operator.inputs.items():
            groups = [own] if connection is StreamConnection.BROADCAST else [[task] for task in own]
            for index, task in enumerate(tasks[producer]):
                task.consumers.append(cycle(groups[index % len(groups) :] + groups[: index % len(groups)]))
            for task in own:
                task.queues[producer] = deque()
                task.producers[producer] = tasks[producer]
                task.weights[producer] = offered[producer].sent / configuration[producer].batch
    return tasks


def _leave(task, waiting):
    """Put completed batches into queues, and return whether all of them fit."""
    while task.leaving:
        to = task.leaving[0]
        queue = to.queues[task.operator.name]
        if len(queue) >= ROOM:
            return False
        queue.append(task.batch)
        task.leaving.popleft()
        waiting.append(to)
    return True


def _take(task, rng, waiting):
    """Take the next batch, and return its number of records, or 0 if the queues are empty."""
    if not task.operator.inputs:
        return 1
    names = [name for name, queue in task.queues.items() if queue]
    if not names:
        return 0
    weights = np.array([task.weights[name] for name in names])
    name = names[0] if len(names) == 1 else names[rng.choice(len(names), p=weights / weights.sum())]
    waiting.extend(task.producers[name])
    return task.queues[name].popleft()


def _processed(tasks):
    return {name: sum(task.processed for task in each) for name, each in tasks.items()}
