"""Offsets of many partitions: as a position, and how far a batch goes where not all that waits is admitted."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from millrace_api.model.deployment import ANOTHER_CHECKPOINT
from millrace_jobs.kafka.cluster import Partition
from millrace_jobs.sources.base import Position

Offsets = dict[Partition, int]
"""The next offset to be read, by partition."""

START_ANEW = (
    f"begin with {ANOTHER_CHECKPOINT}, where startingOffsets or startingTimestamp says from where to go on; "
    "and let Kafka keep records longer than a query may stand still"
)
"""What a user can do where records are gone that a query has to read."""


def to_position(offsets: Mapping[Partition, int]) -> Position:
    """``{topic: {partition: offset}}``, the partitions as text, since JSON has no other keys; always in one order."""
    position: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        position.setdefault(partition.topic, {})[str(partition.number)] = offsets[partition]
    return position


def of_position(position: Position) -> Offsets:
    """The offsets of a position."""
    return {
        Partition(topic, int(number)): int(offset)
        for topic, partitions in position.items()
        for number, offset in partitions.items()
    }


def admit(waiting: Mapping[Partition, int], most: int, turn: int) -> dict[Partition, int]:
    """How many of the offsets that wait in each partition a batch takes: ``most`` in all, or all there are.

    Every partition where something waits gets one, and the rest is shared out in proportion to what waits, so the
    partitions of a backlog are drained at the same time and none starves beside a large one. Where there are more
    such partitions than ``most``, ``turn`` says where in their order the batch begins.
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
    """``total`` cut into whole parts in proportion to ``sizes``, each within one of its exact share."""
    ends = [0, *itertools.accumulate(sizes)]
    cuts = [total * end // ends[-1] for end in ends]
    return [high - low for low, high in itertools.pairwise(cuts)]
