"""Offsets of many partitions: as a position, and how far a micro-batch goes if it admits only part of the backlog."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from millrace_api.model.deployment import ANOTHER_CHECKPOINT
from millrace_jobs.kafka.cluster import Partition
from millrace_jobs.sources.base import Position

Offsets = dict[Partition, int]
"""The next offset to read, by partition."""

RESTART_HINT = (
    f"begin with {ANOTHER_CHECKPOINT}, where startingOffsets or startingTimestamp says from where to go on; "
    "and let Kafka keep records longer than a query may stand still"
)
"""The hint for the user if records that a query still has to read are gone."""


def to_position(offsets: Mapping[Partition, int]) -> Position:
    """Return ``{topic: {partition: offset}}`` in sorted order; partitions are text, as JSON keys must be."""
    position: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        position.setdefault(partition.topic, {})[str(partition.number)] = offsets[partition]
    return position


def of_position(position: Position) -> Offsets:
    """Return the offsets in a position."""
    return {
        Partition(topic, int(number)): int(offset)
        for topic, partitions in position.items()
        for number, offset in partitions.items()
    }


def admit(waiting: Mapping[Partition, int], most: int, turn: int) -> dict[Partition, int]:
    """Return how many waiting offsets of each partition a micro-batch takes: ``most`` in total, or all if fewer wait.

    Every partition with a backlog gets one offset. The rest is shared in proportion to the backlogs, so that all
    partitions are drained at the same time and none starves next to a large one. If more partitions than ``most``
    have a backlog, ``turn`` rotates which of them come first.
    """
    some = sorted(partition for partition, records in waiting.items() if records > 0)
    if sum(waiting[partition] for partition in some) <= most:
        return {partition: waiting[partition] for partition in some}
    if len(some) >= most:
        first = turn % len(some)
        return dict.fromkeys((some[first:] + some[:first])[:most], 1)
    shares = _in_proportion([waiting[partition] - 1 for partition in some], most - len(some))
    return {partition: 1 + share for partition, share in zip(some, shares, strict=True)}


def _in_proportion(sizes: Sequence[int], total: int) -> list[int]:
    """Split ``total`` into whole parts in proportion to ``sizes``, each less than one from its exact share."""
    ends = [0, *itertools.accumulate(sizes)]
    cuts = [total * end // ends[-1] for end in ends]
    return [high - low for low, high in itertools.pairwise(cuts)]
