"""The transactions of a query: the driver's, one per batch, and its tasks', one per batch and partition of the state.

All drivers of a checkpoint use the same transactional id, so Kafka lets only the latest of them continue (fencing).

The id of a transaction, and the group with its number, are those of the query with the partition's number at the end.
What has to be excluded, and by what:

- Two attempts of one task at a time, as by a retry or by speculation: an attempt that begins fences the earlier ones.
  Only then it reads the number of the partition: nothing older can be committed behind that.
- An attempt for an old batch, which wakes up late: the partition had that batch before the next one began, so its
  number shows that there is nothing to write.
- An attempt of a driver that was replaced: each number is committed with the name of the driver. A new driver writes
  its name to all partitions, with their transactional ids, before its first batch. So attempts of the old one that
  have begun are fenced, and those that begin find another name. One that begins while the new driver takes over a
  partition may fence the driver there; it takes the partition over once more.
- A driver that was replaced while it took over partitions: it writes its name to none that it takes from then on.
- An attempt whose input ends early, since the process that feeds it has died: see ``partition_writer.require_whole``.

A partition without results writes nothing, so that its number stays. It need not be that of the last batch.

Where the tasks write, the driver writes no batch, and its group shows that it has not lost its offsets: what a
partition's group lacks was then never written.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_api.model.deployment import ANOTHER_CHECKPOINT
from millrace_jobs.sinks.base import LastBatch, ResultBatch
from millrace_jobs.sinks.kafka.producer import TRANSACTION_SECONDS, NumberedProducer
from millrace_jobs.sinks.kafka.topic import TargetTopic

DRIVER, PARTITIONS = "driver", "partitions"
"""Entries of the note with a number: the name of the driver, and in its own group, how many partitions there may be."""

START_OVER = f"start over with another topic and {ANOTHER_CHECKPOINT}"

_AT_A_TIME = 16
_MOST_TRIES = 10
_WAIT_FOR_OTHER_SECONDS = 30.0
_LOOK_AGAIN_SECONDS = 0.5


class OvertakenError(MillraceError):
    """A later attempt to write the same partition has fenced this one."""


class PartitionTransactions(NumberedProducer):
    """A transactional producer that writes the results of one partition of the state, batch by batch.

    ``group`` is the transactional id of the driver, which is the name of its group.

    ``token`` is different for each producer of the partition.
    """

    def __init__(self, group: str, partition: int, topic: TargetTopic, query: str) -> None:
        super().__init__(f"{group}.{partition}", topic, query)
        self.token = uuid.uuid4().hex[:8]
        self._drivers = NumberedProducer(group, topic, query)

    def written(self) -> int | None:
        """Return the number of the partition's next batch, also if it is not committed yet; None if it has none."""
        return self._written("read_uncommitted")

    def fence(self, next: int, last: LastBatch, driver: str, longest: int | None) -> None:
        """Fence all attempts of the partition's tasks so far, and all others that are not of this driver.

        The driver's own group has its name already.

        ``next`` is the number of the batch that the driver knows to come next, ``last`` are the last ones in Spark's
        log, and ``longest`` is the longest message that the topic accepts, in bytes; None if unknown.

        Raises MillraceError if the partition has a batch that the log lacks, another driver has taken over, or this
        user lacks the permission.
        """
        for tries_left in reversed(range(_MOST_TRIES)):
            try:
                self._fence(next, last, driver, longest)
                return
            except OvertakenError as error:  # by an attempt that began before this driver's name was there
                if not tries_left:
                    raise TransientError(*error.problems) from None

    def take_over(self, driver: str, longest: int | None) -> None:
        """Fence all other attempts of the partition's tasks, and find out which batch comes next; see ``has``.

        Raises MillraceError if this attempt is not one of the driver that writes now.
        """
        self._require_owner(driver, self.written())  # first: an attempt of a driver that was replaced fences no other
        written = self._take_over(longest)
        try:
            self._require_owner(driver, written)
            self._next = written or 0
        except BaseException:
            self.close()
            raise

    def other_has_written(self, batch: int, driver: str) -> bool:
        """Wait for the attempt that has fenced this one; return whether it has written the batch in time.

        Raises MillraceError if it is not one of this driver.
        """
        until = time.monotonic() + _WAIT_FOR_OTHER_SECONDS
        while True:
            written = self._written("read_committed")
            self._require(written is None or self.noted.get(DRIVER) == driver)
            if written is not None and written > batch:
                return True
            if time.monotonic() > until:
                return False
            time.sleep(_LOOK_AGAIN_SECONDS)

    def _fence(self, next: int, last: LastBatch, driver: str, longest: int | None) -> None:
        try:
            written = self._take_over(longest)
            require_known(written, last, self._topic)
            # A later driver writes its name before it fences: if it is not there yet, that one will fence what follows.
            self._require(self._drivers.note().get(DRIVER) == driver)
            self.record(max(written or 0, next), {DRIVER: driver})
        finally:
            self.close()

    def _require_owner(self, driver: str, written: int | None) -> None:
        # A number that nothing has renewed for long is dropped by the brokers; the driver's shows who writes.
        owner = self.noted if written is not None else self._drivers.note()
        self._require(owner.get(DRIVER) == driver)

    def _require(self, is_current: bool) -> None:
        if not is_current:
            raise self._replaced()

    def _fenced(self, batch: ResultBatch, seconds: float) -> MillraceError:
        if seconds >= TRANSACTION_SECONDS:
            return super()._fenced(batch, seconds)
        return OvertakenError(Problem(f"another attempt writes partition {self.id} of batch {batch.number}"))


def require_known(written: int | None, last: LastBatch, topic: TargetTopic) -> None:
    """Check that Spark's log has every batch that is in the topic.

    Raises MillraceError if the checkpoint is outdated, or another driver has continued with a copy of it.
    """
    if written is not None and written > (last.next if last.unfinished is None else last.next + 1):
        message = f"topic {topic.name} has results up to batch {written - 1}, but the checkpoint knows of {last.newest}"
        raise topic.problem(message, f"restore the newest checkpoint, or {START_OVER}")


def for_each(partitions: Iterable[PartitionTransactions], action: Callable[[PartitionTransactions], object]) -> None:
    """Do something for each of the partitions, some of them at a time; raise the first error."""
    each = list(partitions)
    if not each:
        return
    with ThreadPoolExecutor(min(_AT_A_TIME, len(each)), "Kafka transactions") as threads:
        for _ in threads.map(action, each):
            pass


class BatchTransactions(NumberedProducer):
    """A transactional producer that writes batches of messages to a topic, each exactly once.

    ``other`` is another topic that messages of a batch can go to.
    """

    def __init__(self, topic: TargetTopic, query: str, checkpoint_id: str, other: TargetTopic | None = None) -> None:
        super().__init__(f"millrace-{query}-{checkpoint_id}", topic, query, other)

    @property
    def partitions(self) -> int:
        """The most state partitions that have written by transactions of their own since this producer wrote last."""
        return int(self.noted.get(PARTITIONS) or 0)

    def open(self, last: LastBatch, longest: int | None) -> None:
        """Fence all other drivers, abort their open transactions, and determine which batch comes next.

        If ``partitions`` is not 0, that holds only after ``fence_partitions``.

        ``last`` are the last batches in Spark's log, and ``longest`` is the longest message that the topic accepts, in
        bytes; None if unknown.

        Raises MillraceError if this user lacks the permission, or it is unknown whether the unfinished batch was
        written.
        """
        self.close()
        # A driver whose checkpoint is older than the topic must fail before it fences the driver that wrote there.
        require_known(self._written("read_uncommitted"), last, self._topic)
        for_each(self._of_partitions(self.partitions), lambda each: require_known(each.written(), last, self._topic))
        written = self._take_over(longest)
        try:
            self._next = next_batch(written, last, self._topic, in_part=self.partitions > 0)
            if written != self._next:  # from now on, a group without an offset has lost it
                self.record(self._next, self.noted)
        except BaseException:
            self.close()
            raise

    def fence_partitions(self, count: int, last: LastBatch) -> str:
        """Let only tasks of this driver write by partition from now on; return the name by which they know it.

        Tasks of other drivers that have begun cannot commit, and those that begin find that they are too late. The
        number of each partition is brought up to that of the driver: after a batch that the driver has written, no
        partition lacks it.

        ``count`` is the number of state partitions that are to write, and ``last`` are the last batches in Spark's log.

        Raises:
            MillraceError: as for ``open``.
        """
        driver, most = uuid.uuid4().hex, max(count, self.partitions)
        noted = {**self.noted, DRIVER: driver, PARTITIONS: most}
        self.record(self._next, noted)  # first: it is what tasks of partitions without a number look at
        self.noted = noted

        def fence(partition: PartitionTransactions) -> None:
            partition.fence(self._next, last, driver, self.longest)

        for_each(self._of_partitions(most), fence)
        return driver

    def end_partitions(self, next: int) -> None:
        """Note that all partitions have each batch before this one, which the driver writes as a whole.

        Otherwise, the driver after this one would take a batch that this one has begun for one of the tasks.

        Raises MillraceError if another driver has taken over, or Kafka does not answer.
        """
        self.record(max(next, self._next), {})
        self.noted = {}

    def renew(self) -> None:
        """Commit the number that is there once more: brokers drop one that is old.

        Raises MillraceError if another driver has taken over, or Kafka does not answer.
        """
        self.record(self._next, self.noted)

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

    Raises MillraceError if group and log do not match, so that a batch would be lost or written twice.
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
