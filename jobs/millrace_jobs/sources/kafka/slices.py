"""Cutting the offset ranges of a micro-batch into slices of equal size, whatever the skew between partitions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from millrace_jobs.kafka.cluster import Partition
from millrace_jobs.sources.slicing import bounds


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
    parts = []
    for low, high in itertools.pairwise(bounds(sum(map(len, ranges)), slices)):
        pieces, offset = [], 0
        for part in ranges:
            begin, end = max(low - offset, 0), min(high - offset, len(part))
            if begin < end:
                pieces.append(OffsetRange(part.partition, part.begin + begin, part.begin + end))
            offset += len(part)
        if pieces:
            parts.append(KafkaSlice(tuple(pieces)))
    return parts
