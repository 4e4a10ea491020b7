"""Sax's cost model of one operator (paper 002, chapter 3): what it can process, and the fewest tasks that it needs.

An operator's processor and its network in both directions each limit the records per second that it takes in. Keys are
assumed to spread evenly over the tasks of an operator (Definition 33). All rates are records per second.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from millrace_support import batch_sizes
from millrace_support.batch_sizes import TOLERANCE

from .flow import Configuration, Flow, FlowOperator, StreamConnection, Workload


@dataclass(frozen=True, slots=True)
class Inflow:
    """The input of all tasks of an operator together, per second; a broadcast record counts once for each task.

    Attributes:
        records: R_in (equation 3.16).
        batches: R_in^b (3.20); 0 at a source, which fetches none.
        bytes: R_in^B (3.26).
    """

    records: float
    batches: float = 0.0
    bytes: float = 0.0

    @property
    def batch_records(self) -> float:
        """Records that share the cost of one fetch, b_in (3.21); 1 if no batch arrives."""
        return self.records / self.batches if self.batches else 1.0

    @property
    def record_bytes(self) -> float:
        """Mean size of an arriving record, rs_in (3.27); 0 if nothing arrives."""
        return self.bytes / self.records if self.records else 0.0


@dataclass(frozen=True, slots=True)
class Capacity:
    """Records per second that all tasks of an operator together can take in (3.3), by limiting resource.

    Attributes:
        input: C_i, the limit of the input network; infinite at a source.
        processing: C_p, the limit of the processor.
        output: C_o, the limit of the output network, in input records; infinite at a sink.
    """

    input: float
    processing: float
    output: float

    @property
    def total(self) -> float:
        """The least of the three limits, C (3.4)."""
        return min(self.input, self.processing, self.output)


@dataclass(frozen=True, slots=True)
class BusyTasks:
    """The number of tasks that a rate keeps busy with processing, and with each task's network in and out."""

    processing: float
    input: float
    output: float


def inflow(
    flow: Flow, configuration: Configuration, operator: FlowOperator, sent: Mapping[str, float], workload: Workload
) -> Inflow:
    """Return what arrives at an operator: the workload at a source, otherwise what its producers send.

    ``sent`` holds the records per second that each producer emits (R_out).
    """
    divided, repeated = parts(flow, configuration, operator, sent, workload)
    tasks = configuration[operator.name].tasks
    return Inflow(
        divided.records + tasks * repeated.records,
        divided.batches + tasks * repeated.batches,
        divided.bytes + tasks * repeated.bytes,
    )


def parts(
    flow: Flow, configuration: Configuration, operator: FlowOperator, sent: Mapping[str, float], workload: Workload
) -> tuple[Inflow, Inflow]:
    """Return the input that an operator's tasks divide, and the broadcasts that each task gets (counted once)."""
    if not operator.inputs:
        return Inflow(workload[operator.name]), Inflow(0.0)
    totals = {False: [0.0, 0.0, 0.0], True: [0.0, 0.0, 0.0]}
    for producer, connection in operator.inputs.items():
        total = totals[connection is StreamConnection.BROADCAST]
        total[0] += sent[producer]
        total[1] += sent[producer] / configuration[producer].batch
        total[2] += sent[producer] * flow.operators[producer].record_bytes
    return Inflow(*totals[False]), Inflow(*totals[True])


def work(flow: Flow, configuration: Configuration, operator: FlowOperator, arriving: Inflow) -> BusyTasks:
    """Return the tasks that ``arriving`` keeps busy (terms of 4.22); unlike capacities, work adds up over streams."""
    sent = operator.selectivity * arriving.records
    emitted = sent / configuration[operator.name].batch
    task_share = 8 / flow.bandwidth if flow.bandwidth else 0.0
    return BusyTasks(
        processing=arriving.batches * operator.fetch_seconds
        + arriving.records * operator.cpu_seconds
        + emitted * operator.emit_seconds,
        input=arriving.bytes * task_share,
        output=sent * fan_out(flow, configuration, operator.name) * operator.record_bytes * task_share,
    )


def capacity(flow: Flow, configuration: Configuration, operator: FlowOperator, arriving: Inflow) -> Capacity:
    """Return the capacity of an operator, which depends on the batches and record sizes that arrive (3.3 to 3.33)."""
    given, at_once = configuration[operator.name], flow.at_once(configuration[operator.name].tasks)
    copies = operator.selectivity * fan_out(flow, configuration, operator.name)
    seconds = processing_seconds(operator, arriving.batch_records, given.batch)
    return Capacity(
        input=at_once * network_capacity(flow.bandwidth, arriving.record_bytes),
        processing=at_once / seconds if seconds else math.inf,
        output=at_once * network_capacity(flow.bandwidth, operator.record_bytes * copies),
    )


def processing_seconds(operator: FlowOperator, input_batch: float, output_batch: float) -> float:
    """Return c_p, the seconds that a task takes for one record (3.8; with batches of 1 that is 3.6)."""
    fetching = operator.fetch_seconds / input_batch
    return fetching + operator.cpu_seconds + operator.selectivity * operator.emit_seconds / output_batch


def network_capacity(bandwidth: float | None, record_bytes: float) -> float:
    """Return C_N, the records of this size that ``bandwidth`` bit/s carries in a second (3.22); None is no limit."""
    return math.inf if bandwidth is None or not record_bytes else bandwidth / (8 * record_bytes)


def fan_out(flow: Flow, configuration: Configuration, name: str) -> int:
    """Return f, how often an output record is sent (3.30): to every consumer, and to every task of a broadcast one."""
    return sum(
        connection.copies(configuration[consumer].tasks) for consumer, connection in flow.consumers[name].items()
    )


def exceeds(rate: float, limit: float) -> bool:
    """Return whether a rate is over a capacity (4.3), beyond rounding."""
    return rate > limit * (1 + TOLERANCE)


def least_tasks(divided: float, repeated: float, *, exclusive: bool) -> int | None:
    """Return the fewest tasks that can share ``divided`` if each also bears all of ``repeated``; None if none suffice.

    Both are shares of a task's time, or of its network: 1 fills one task. ``repeated`` comes from broadcasts, which
    reach every task. Without broadcasts this is equation 4.19. With ``exclusive``, which lets no task be filled
    completely, it is equation 4.20.
    """
    free = 1 - repeated
    if free <= (TOLERANCE if exclusive or divided else -TOLERANCE):
        return None
    if exclusive:
        return math.floor(divided / (free - TOLERANCE)) + 1
    return max(1, math.ceil(divided / (free + TOLERANCE)))


def tasks_for(divided: BusyTasks, repeated: BusyTasks, *, exclusive: bool = False) -> int | None:
    """Return the fewest tasks for processor and network (equation 4.22); ``exclusive`` applies to the processor (4.23).

    None if no number of tasks is enough.
    """
    bounds = (
        least_tasks(divided.processing, repeated.processing, exclusive=exclusive),
        least_tasks(divided.input, repeated.input, exclusive=False),
        least_tasks(divided.output, repeated.output, exclusive=False),
    )
    return None if None in bounds else max(filter(None, bounds))


def least_input_batch(operator: FlowOperator, task_rate: float) -> int:
    """Return b_in*, the fewest records of an input batch for which some output batch is large enough (equation 4.25).

    ``task_rate`` is r_in, the records per second of one task. It must leave the task time beyond ``cpu_seconds``.
    """
    return batch_sizes.least_input_batch(operator.fetch_seconds, operator.cpu_seconds, task_rate)


def least_output_batch(operator: FlowOperator, task_rate: float, input_batch: float) -> int:
    """Return b_out, the fewest records of an output batch, given input batches of at least b_in* (equation 4.27)."""
    others = operator.cpu_seconds + operator.fetch_seconds / input_batch
    return batch_sizes.least_output_batch(operator.selectivity * operator.emit_seconds, others, task_rate)
