"""What a consumer brings, sorted by partition, and how far that takes the ranges that are being read."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Self

from confluent_kafka import KafkaError, Message

from millrace_jobs.kafka.cluster import Partition
from millrace_jobs.sources.kafka_slices import OffsetRange


@dataclass
class Progress:
    """How far a range has been read. ``end`` is where its partition ended, if that was met on the way."""

    part: OffsetRange
    reached: int
    end: int | None = None

    @property
    def missing(self) -> int:
        """Offsets still to be read."""
        return max(self.part.end - self.reached, 0)

    def take(self, records: list[Message]) -> list[Message]:
        """Those of the partition's next records that are in the range."""
        if not self.missing:
            return []
        self.reached = offset_of(records[-1]) + 1
        if self.reached <= self.part.end:
            return records
        return records[: bisect_left(records, self.part.end, key=offset_of)]

    def meet_end(self, offset: int) -> None:
        """The partition ends here for now: what there was before it has come, and the rest holds no records."""
        self.reached, self.end = max(self.reached, offset), offset


@dataclass
class Fetched:
    """What one call brought: records and ends by partition.

    ``fault`` is an error, ``faulty`` the partition it is of, if it is of one; nothing behind it was taken.
    """

    records: dict[Partition, list[Message]] = field(default_factory=dict)
    ends: dict[Partition, int] = field(default_factory=dict)
    fault: KafkaError | None = None
    faulty: Partition | None = None

    @classmethod
    def of(cls, messages: list[Message], only: Partition | None) -> Self:
        """Sort messages, some of which may be errors or say that a partition has ended.

        ``only`` is the one partition they can be of, where there is one: looking at each would cost a quarter of
        what it costs to read it.
        """
        if only is not None and all(message.error() is None for message in messages):
            return cls({only: messages})
        fetched = cls()
        for message in messages:
            partition = partition_of(message)
            error = message.error()
            if error is None:
                fetched.records.setdefault(partition, []).append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                fetched.ends[partition] = offset_of(message)
            else:
                fetched.fault, fetched.faulty = error, partition
                break
        return fetched


def partition_of(message: Message) -> Partition:
    """The partition it comes from."""
    return Partition(message.topic() or "", message.partition() or 0)


def offset_of(message: Message) -> int:
    """Its place there."""
    return message.offset() or 0
