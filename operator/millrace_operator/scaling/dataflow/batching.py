"""What batching costs: output buffers, the memory of what waits in them, and the time it waits. Paper 002, section 3.4.

All of a task; records are taken to be spread evenly over the buffers they may go to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from .flow import Configuration, Flow, StreamConnection


class Buffering(StrEnum):
    """How a task assembles batches for several consumers.

    ``DISTINCT``: each record is put into one buffer of every consumer, which has one for each of its tasks.
    ``SHARED``: into one buffer in all, of which there is one for every combination of the consumers' tasks; each
    batch goes to all consumers, which a system can do that knows nothing of batches. Consumers without keys (random
    and broadcast) are served from one buffer in both.
    """

    DISTINCT = "distinct"
    SHARED = "shared"


@dataclass(frozen=True)
class Buffers:
    """The output buffers of a task.

    Attributes:
        count: how many.
        records: how many they hold at most, all full.
        bytes: of these records.
        fill_records: output records of the task between two batches of one buffer, mean over its consumers.
        wait_seconds: how long a record waits for its batch to be complete, mean over its consumers; infinite where
            batches never are.
    """

    count: int
    records: int
    bytes: float
    fill_records: float
    wait_seconds: float


def buffers(flow: Flow, configuration: Configuration, name: str, sent: float, buffering: Buffering) -> Buffers:
    """Output buffers of each task of an operator whose tasks emit ``sent`` records per second together (R_out)."""
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
    """Mean time that a record and what comes of it wait in buffers, on the slowest way from a source to a sink.

    ``sent`` are records per second that each operator emits (R_out). Ways that no record goes do not count.
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
    """Output records of a task between two batches of one buffer: it takes one of so many, and b_out make a batch."""
    consumers = flow.consumers[name]
    sharing = consumers if buffering is Buffering.SHARED else (consumer,)
    keyed = [configuration[other].tasks for other in sharing if consumers[other] is StreamConnection.HASH]
    return math.prod(keyed) * configuration[name].batch


def _wait_seconds(
    flow: Flow, configuration: Configuration, name: str, consumer: str, sent: float, buffering: Buffering
) -> float:
    """Mean wait of a record: it finds half of the other records of its batch there, and waits for the other half."""
    given = configuration[name]
    others = _fill_records(flow, configuration, name, consumer, buffering) * (given.batch - 1) / given.batch
    if not others:
        return 0.0
    return others / 2 / (sent / given.tasks) if sent else math.inf
