"""Runs of a data flow: every task in a process of its own, connected over TCP."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Any

import pandas as pd  # noqa: F401 - Arrow imports it when it makes its first array, which each task would do again

from bench.batching.tasks import BufferKind, Task, TaskFigures, TaskPlan
from bench.batching.wire import Inbox, connected, listener
from millrace_operator.capacity.flow import Configuration, Flow, FlowOperator, Workload

_FORK = get_context("fork")  # so that tasks start with everything imported
_PATIENCE = 30.0

_PAUSE, _PAUSE_OF_WAITING_TASKS = 0.005, 0.02
"""Seconds until a task without input looks again; longer where many tasks share few processors."""


@dataclass(frozen=True)
class FlowRun:
    """How a flow runs.

    Attributes:
        flow: its operators.
        configuration: their tasks and batches.
        workload: records per second of each source, which its tasks share.
        seconds, warmup: length of the run, and of the part at its beginning that is not measured.
        slowdown: factor of the flow's costs; 0: tasks have none and process as fast as they can.
        share: part of the costs that is processor time; tasks wait for the rest.
        kind: output buffers of tasks with several consumers.
        flush_every: seconds after which sources flush their buffers; None never.
        live: whether sources set b_out themselves whenever they flush, as partitioners do.
        timed: whether sinks note when batches come, and how long their records waited.
        queue: bytes that each side of a connection holds; None leaves it to the system.
    """

    flow: Flow
    configuration: Configuration
    workload: Workload
    seconds: float
    warmup: float
    slowdown: float = 0.0
    share: float = 0.0
    kind: BufferKind = BufferKind.DISTINCT
    flush_every: float | None = None
    live: bool = False
    timed: bool = False
    queue: int | None = None

    def run(self) -> dict[str, list[TaskFigures]]:
        """Run it and return what the tasks of each operator did."""
        servers = {
            operator.name: [listener(self.queue) for _ in range(self.configuration[operator.name].tasks)]
            for operator in self.flow.order
            if operator.inputs
        }
        tasks = [
            (operator, number)
            for operator in self.flow.order
            for number in range(self.configuration[operator.name].tasks)
        ]
        together = _FORK.Barrier(len(tasks))
        started = [self._start(operator, number, servers, together) for operator, number in tasks]
        for server in (one for several in servers.values() for one in several):
            server.close()
        results: dict[str, list[TaskFigures]] = {name: [] for name in self.flow.operators}
        try:
            for (operator, number), (_, receiver) in zip(tasks, started, strict=True):
                if not receiver.poll(self.seconds + 2 * _PATIENCE):
                    raise TimeoutError(f"task {number} of {operator.name} does not end")
                results[operator.name].append(receiver.recv())
        finally:
            for process, _ in started:
                process.join(1.0)
                process.kill()
        return results

    def _start(
        self, operator: FlowOperator, number: int, servers: Mapping[str, list[socket.socket]], together: Barrier
    ) -> tuple[Any, Connection]:
        receiver, sender = _FORK.Pipe(duplex=False)
        process = _FORK.Process(target=self._work, args=(operator, number, servers, together, sender.send))
        process.start()
        sender.close()
        return process, receiver

    def _work(
        self,
        operator: FlowOperator,
        number: int,
        servers: Mapping[str, list[socket.socket]],
        together: Barrier,
        report: Callable[[TaskFigures], None],
    ) -> None:
        """Be one task: connect to all consumers, accept all producers, and work."""
        consumers = [
            (how, [connected(server, self.queue, self.seconds + _PATIENCE) for server in servers[name]])
            for name, how in self.flow.consumers[operator.name].items()
        ]
        producers = sum(self.configuration[name].tasks for name in operator.inputs)
        accepted = [servers[operator.name][number].accept()[0] for _ in range(producers)]
        sizing = self.configuration[operator.name]
        together.wait(_PATIENCE)
        begin = time.monotonic()
        plan = TaskPlan(
            operator=operator,
            batch=sizing.batch,
            consumers=consumers,
            begin=begin,
            end=begin + self.seconds,
            warmup=self.warmup,
            rate=0.0 if operator.inputs else self.workload[operator.name] / sizing.tasks,
            slowdown=self.slowdown,
            share=self.share,
            kind=self.kind,
            flush_every=None if operator.inputs else self.flush_every,
            timed=self.timed,
            live=self.live and not operator.inputs,
        )
        pause = _PAUSE_OF_WAITING_TASKS if self.slowdown else _PAUSE
        figures = Task(plan, Inbox(accepted, pause) if operator.inputs else None).run()
        for connection in accepted:
            connection.close()  # producers that wait to send then end, too
        report(figures)
