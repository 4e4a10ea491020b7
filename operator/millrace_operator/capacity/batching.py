"""The cost of batching: output buffers, the memory they take, and the time records wait (paper 002, section 3.4).

Buffers are counted per task. Records are assumed to spread evenly over the buffers they may go to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from .flow import Configuration, Flow, StreamConnection


class Buffering(StrEnum):
    """The way a task assembles batches for several consumers; those without keys share one buffer in both modes.

    - ``DISTINCT``: each record goes into one buffer per consumer, which has one for each of its tasks.
    - ``SHARED``: each record goes into a single buffer, one for every combination of the consumers' tasks. Each batch
      goes to all consumers, so that even a system that is unaware of batches can do this.
    """

    DISTINCT = "distinct"
    SHARED = "shared"


@dataclass(frozen=True)
class Buffers:
    """The output buffers of one task.

    Attributes:
        count: number of buffers.
        records: records in them when all are full.
        bytes: size of these records.
        fill_records: output records of the task between two batches of one buffer, mean over its consumers.
        wait_seconds: time a record waits for its batch to be complete, mean over its consumers; infinite if batches
            never are.
    """

    count: int
    records: int
    bytes: float
    fill_records: float
    wait_seconds: float


def buffers(flow: Flow, configuration: Configuration, name: str, sent: float, buffering: Buffering) -> Buffers:
    """Return the output buffers of each task of an operator.

    ``sent`` is R_out, the records per second that all its tasks together emit.
    """
    consumers = flow.consumers[name]
    keyed = [configuration[consumer].tasks for consumer, how in consumers.items() if how is StreamConnection.HASH]
    if not consumers:
        count = 0
    elif buffering is Buffering.SHARED:
        count = math.prod(keyed)
    else:
        count = sum(keyed) + (len(keyed) < len(consumers))
    each = [_fill_records(flow, configuration, name, consumer, buffering) for consumer in consumers]
    waits = [_wait_seconds(flow, configuration, name, consumer, sent, buffering) for consumer in consumers]
    records = count * configuration[name].batch
    return Buffers(
        count=count,
        records=records,
        bytes=records * flow.operators[name].record_bytes,
        fill_records=sum(each) / max(1, len(each)),
        wait_seconds=sum(waits) / max(1, len(waits)),
    )


def added_seconds(flow: Flow, configuration: Configuration, sent: Mapping[str, float], buffering: Buffering) -> float:
    """Return the mean seconds that a record and its results wait in buffers, on the slowest path from source to sink.

    ``sent`` holds the records per second that each operator emits (R_out). Paths that no record takes do not count.
    """
    until: dict[str, float] = {}
    for operator in flow.order:
        until[operator.name] = max(
            (
                until[producer] + _wait_seconds(flow, configuration, producer, operator.name, sent[producer], buffering)
                for producer in operator.inputs
                if sent[producer]
            ),
            default=0.0,
        )
    return max(until.values())


def _fill_records(flow: Flow, configuration: Configuration, name: str, consumer: str, buffering: Buffering) -> int:
    """Return the task's output records between two batches of one buffer: number of keyed buffers times b_out."""
    consumers = flow.consumers[name]
    sharing = consumers if buffering is Buffering.SHARED else (consumer,)
    keyed = [configuration[other].tasks for other in sharing if consumers[other] is StreamConnection.HASH]
    return math.prod(keyed) * configuration[name].batch


def _wait_seconds(
    flow: Flow, configuration: Configuration, name: str, consumer: str, sent: float, buffering: Buffering
) -> float:
    """Return the mean wait of a record: half of its batch's other records are there, and half are still to come."""
    given = configuration[name]
    others = _fill_records(flow, configuration, name, consumer, buffering) * (given.batch - 1) / given.batch
    if not others:
        return 0.0
    return others / 2 / (sent / given.tasks) if sent else math.inf
