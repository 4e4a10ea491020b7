"""The driver's transactions: one per batch, with the batch's results and its number.

All drivers of a checkpoint use the same transactional id, so Kafka lets only the latest of them continue (fencing).
Where the tasks write, by ``partitions``, the driver writes no batch, and its group shows that it has not lost its
offsets: what a partition's group lacks was then never written.
"""

from __future__ import annotations

import uuid

from millrace_jobs.sinks.base import LastBatch
from millrace_jobs.sinks.kafka.partitions import (
    DRIVER,
    PARTITIONS,
    START_OVER,
    PartitionTransactions,
    for_each,
    require_known,
)
from millrace_jobs.sinks.kafka.producer import Headers, NumberedProducer, Outgoing
from millrace_jobs.sinks.kafka.topic import TargetTopic

__all__ = ["BatchTransactions", "Headers", "Outgoing", "next_batch"]


class BatchTransactions(NumberedProducer):
    """A transactional producer that writes batches of messages to a topic, each exactly once.

    Args:
        topic: the topic.
        query: name of the query.
        checkpoint_id: id of its checkpoint.
        other: another topic that messages of a batch can go to.
    """

    def __init__(self, topic: TargetTopic, query: str, checkpoint_id: str, other: TargetTopic | None = None) -> None:
        super().__init__(f"millrace-{query}-{checkpoint_id}", topic, query, other)

    @property
    def partitions(self) -> int:
        """The most state partitions that have written by transactions of their own since this producer wrote last."""
        return int(self._noted.get(PARTITIONS) or 0)

    def open(self, last: LastBatch, longest: int | None) -> None:
        """Fence all other drivers, abort their open transactions, and determine which batch comes next.

        If ``partitions`` is not 0, that holds only after ``fence_partitions``.

        Args:
            last: the last batches in Spark's log.
            longest: the longest message that the topic accepts, in bytes; None if unknown.

        Raises:
            MillraceError: this user lacks the permission, or it is unknown whether the unfinished batch was written.
        """
        self.close()
        # A driver whose checkpoint is older than the topic must fail before it fences the driver that wrote there.
        require_known(self._written("read_uncommitted"), last, self._topic)
        for_each(self._of_partitions(self.partitions), lambda each: require_known(each.written(), last, self._topic))
        written = self._take_over(longest)
        try:
            self._next = next_batch(written, last, self._topic, in_part=self.partitions > 0)
            if written != self._next:  # from now on, a group without an offset has lost it
                self.record(self._next, self._noted)
        except BaseException:
            self.close()
            raise

    def fence_partitions(self, count: int, last: LastBatch) -> str:
        """Let only tasks of this driver write by partition from now on; return the name by which they know it.

        Tasks of other drivers that have begun cannot commit, and those that begin find that they are too late. The
        number of each partition is brought up to that of the driver: after a batch that the driver has written, no
        partition lacks it.

        Args:
            count: number of state partitions that are to write.
            last: the last batches in Spark's log.

        Raises:
            MillraceError: as for ``open``.
        """
        driver, most = uuid.uuid4().hex, max(count, self.partitions)
        noted = {**self._noted, DRIVER: driver, PARTITIONS: most}
        self.record(self._next, noted)  # first: it is what tasks of partitions without a number look at
        self._noted = noted

        def fence(partition: PartitionTransactions) -> None:
            partition.fence(self._next, last, driver, self._longest)

        for_each(self._of_partitions(most), fence)
        return driver

    def end_partitions(self, next: int) -> None:
        """Note that all partitions have each batch before this one, which the driver writes as a whole.

        Otherwise, the driver after this one would take a batch that this one has begun for one of the tasks.

        Raises:
            MillraceError: another driver has taken over, or Kafka does not answer.
        """
        self.record(max(next, self._next), {})
        self._noted = {}

    def renew(self) -> None:
        """Commit the number that is there once more: brokers drop one that is old.

        Raises:
            MillraceError: another driver has taken over, or Kafka does not answer.
        """
        self.record(self._next, self._noted)

    def _of_partitions(self, count: int) -> list[PartitionTransactions]:
        return [PartitionTransactions(self.id, number, self._topic, self._query) for number in range(count)]

    @property
    def last(self) -> int | None:
        """The last batch in the topic; None if there is none."""
        return self._next - 1 if self._next else None


def next_batch(written: int | None, last: LastBatch, topic: TargetTopic, *, in_part: bool = False) -> int:
    """Return the number of the batch to write next, from the topic's group (``written``) and Spark's log.

    If earlier runs wrote to another sink, the unfinished batch comes next, unless the group already has it. With
    ``in_part``, partitions have written since, and each of them knows whether it has the unfinished batch.

    Raises:
        MillraceError: group and log do not match, so that a batch would be lost or written twice.
    """
    require_known(written, last, topic)
    unfinished = last.unfinished
    if unfinished is None:
        return last.next
    if written is None or written < unfinished:
        if last.elsewhere or (in_part and written is not None):
            return unfinished
        message = (
            f"batch {unfinished} was begun and not finished, and the consumer group that records whether it is in "
            f"topic {topic.name} has " + ("lost its offset" if written is None else f"only batches before {written}")
        )
        hint = f"look for messages with the header millrace-batch {unfinished} in the topic; {START_OVER}"
        raise topic.problem(message, hint)
    return written
