"""What an operator can process: Sax's cost model, paper 002, chapter 3. Rates are records per second.

An operator's processor and its network in both directions each limit the records per second that it takes in. Keys
are taken to be spread evenly over the tasks of an operator (Definition 33).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from .flow import Configuration, Flow, FlowOperator, StreamConnection

TOLERANCE = 1e-9
"""Share by which a rate may be over a capacity and still fit: sums of costs are rounded, and nobody knows them better.

Without it, tasks that are exactly busy (Example 13: 90 + 900 + 10 ms for one record a second) would be overloaded or
not by the order of an addition.
"""


@dataclass(frozen=True, slots=True)
class Inflow:
    """What arrives at all tasks of an operator together, per second; a broadcast record counts once for each task.

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
        """b_in: records over which the cost of one fetch is shared (3.21); 1 if no batch arrives."""
        return self.records / self.batches if self.batches else 1.0

    @property
    def record_bytes(self) -> float:
        """rs_in: mean size of an arriving record (3.27); 0 if nothing arrives."""
        return self.bytes / self.records if self.records else 0.0


@dataclass(frozen=True, slots=True)
class Capacity:
    """Records per second that all tasks of an operator together can take in (3.3), by what limits them.

    Attributes:
        input: C_i, what the network can bring; infinite at a source.
        processing: C_p, what the processor can do.
        output: C_o, so that the network can carry off what comes out of it; infinite at a sink.
    """

    input: float
    processing: float
    output: float

    @property
    def total(self) -> float:
        """C: the least of the three (3.4)."""
        return min(self.input, self.processing, self.output)


@dataclass(frozen=True, slots=True)
class BusyTasks:
    """How many tasks some records per second keep busy: with processing, and each task's network in and out."""

    processing: float
    input: float
    output: float


def inflow(flow: Flow, configuration: Configuration, operator: FlowOperator, sent: Mapping[str, float]) -> Inflow:
    """What arrives at an operator with producers, where each producer emits ``sent`` records per second (R_out)."""
    divided, repeated = parts(flow, configuration, operator, sent)
    tasks = configuration[operator.name].tasks
    return Inflow(
        divided.records + tasks * repeated.records,
        divided.batches + tasks * repeated.batches,
        divided.bytes + tasks * repeated.bytes,
    )


def parts(
    flow: Flow, configuration: Configuration, operator: FlowOperator, sent: Mapping[str, float]
) -> tuple[Inflow, Inflow]:
    """What the tasks of an operator divide among them, and what is repeated to each (broadcasts, counted once)."""
    totals = {False: [0.0, 0.0, 0.0], True: [0.0, 0.0, 0.0]}
    for producer, connection in operator.inputs.items():
        total = totals[connection is StreamConnection.BROADCAST]
        total[0] += sent[producer]
        total[1] += sent[producer] / configuration[producer].batch
        total[2] += sent[producer] * flow.operators[producer].record_bytes
    return Inflow(*totals[False]), Inflow(*totals[True])


def work(flow: Flow, configuration: Configuration, operator: FlowOperator, arriving: Inflow) -> BusyTasks:
    """Tasks that ``arriving`` keeps busy. Unlike capacities, work of several streams adds up (terms of 4.22)."""
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
    """Capacity of an operator, which depends on the batches and sizes of what arrives (3.3 to 3.33)."""
    given = configuration[operator.name]
    copies = operator.selectivity * fan_out(flow, configuration, operator.name)
    seconds = processing_seconds(operator, arriving.batch_records, given.batch)
    return Capacity(
        input=given.tasks * network_capacity(flow.bandwidth, arriving.record_bytes),
        processing=given.tasks / seconds if seconds else math.inf,
        output=given.tasks * network_capacity(flow.bandwidth, operator.record_bytes * copies),
    )


def processing_seconds(operator: FlowOperator, input_batch: float, output_batch: float) -> float:
    """c_p: seconds of a task for one record (3.8; 3.6 is that with batches of 1)."""
    fetching = operator.fetch_seconds / input_batch
    return fetching + operator.cpu_seconds + operator.selectivity * operator.emit_seconds / output_batch


def network_capacity(bandwidth: float | None, record_bytes: float) -> float:
    """C_N: records of this size that ``bandwidth``, in bit/s, carries in a second (3.22); None is no limit."""
    return math.inf if bandwidth is None or not record_bytes else bandwidth / (8 * record_bytes)


def fan_out(flow: Flow, configuration: Configuration, name: str) -> int:
    """f: how many times an output record is sent (3.30): to every consumer, and to every task of a broadcast one."""
    return sum(
        connection.copies(configuration[consumer].tasks) for consumer, connection in flow.consumers[name].items()
    )


def exceeds(rate: float, limit: float) -> bool:
    """Whether a rate is over a capacity (4.3), beyond rounding."""
    return rate > limit * (1 + TOLERANCE)
