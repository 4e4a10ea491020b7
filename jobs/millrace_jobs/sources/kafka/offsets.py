"""Offsets of many partitions: as a position, and as ranges that are cut into slices of equal size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millrace_api.model.deployment import ANOTHER_CHECKPOINT
from millrace_jobs.kafka.cluster import Partition
from millrace_jobs.sources.base import Position, cut

Offsets = dict[Partition, int]
"""The next offset to read, by partition."""

PLACED = "/placed"
"""Entry of a position beside its topics: where the placed records of its last batch are (``millrace_jobs.dedicated``).

No topic can have this name. Whoever reads the topics themselves ignores it.
"""

RESTART_HINT = (
    f"start with {ANOTHER_CHECKPOINT}, and set startingOffsets or startingTimestamp to where it is to continue; "
    "set the topic's retention to longer than a query may be down"
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
        if topic != PLACED
        for number, offset in partitions.items()
    }


@dataclass(frozen=True)
class OffsetRange:
    """The offsets ``[begin, end)`` of a partition; some may hold no record (transaction markers, compaction)."""

    partition: Partition
    begin: int
    end: int

    def __len__(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True)
class KafkaSlice:
    """Offset ranges that one replica reads one after another."""

    ranges: tuple[OffsetRange, ...]


def cut_ranges(ranges: Sequence[OffsetRange], slices: int) -> list[KafkaSlice]:
    """Cut ranges laid end to end into at most ``slices`` non-empty parts that differ by at most one offset."""
    return [
        KafkaSlice(
            tuple(
                OffsetRange(ranges[i].partition, ranges[i].begin + low, ranges[i].begin + high) for i, low, high in part
            )
        )
        for part in cut(list(map(len, ranges)), slices)
    ]
