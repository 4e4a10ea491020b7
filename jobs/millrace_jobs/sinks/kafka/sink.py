"""Sinks that write results to a Kafka topic, each batch exactly once.

To a consumer that reads only committed messages, a batch of the driver appears as a whole or not at all; where tasks
write, that is so for each partition of the state. A batch that Spark runs again after a crash is computed again,
because state depends on it. It is written only as far as it is not in the topic yet.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from millrace_jobs.sinks.base import LastBatch, ResultBatch, ResultKeys, Sink
from millrace_jobs.sinks.fetching import PARTS, ResultFetcher
from millrace_jobs.sinks.kafka.messages import encoded, rows_of_batch
from millrace_jobs.sinks.kafka.partition_writer import ROWS, BatchForTasks, PartitionWriter, Written, not_of_the_state
from millrace_jobs.sinks.kafka.producer import Outgoing
from millrace_jobs.sinks.kafka.topic import TargetTopic, TopicSettings
from millrace_jobs.sinks.kafka.transactions import BatchTransactions
from millrace_jobs.sinks.sink_clock import SINK_CLOCK

_RENEW_SECONDS = 24 * 3600.0
"""How often the driver's number is committed again where tasks write; brokers keep it for days."""


@dataclass(frozen=True)
class TaskWrites:
    """How tasks can write the results of a query, and whether they do.

    Attributes:
        partitions: number of the state's partitions in which results leave; None if they do not leave in those.
        by_partition: whether the tasks that merge a partition write it; otherwise the driver writes all.
    """

    partitions: int | None = None
    by_partition: bool = False


class KafkaSink(Sink):
    """A sink whose driver writes a batch in one transaction, or whose tasks write it in one for each partition."""

    def __init__(
        self,
        topic: TargetTopic,
        keys: ResultKeys,
        query: str,
        checkpoint_id: str,
        tasks: TaskWrites = TaskWrites(),
        other: TargetTopic | None = None,
        *,
        jumps: bool = True,
    ) -> None:
        self._topic, self._keys, self._tasks = topic, keys, tasks
        self._fetcher = ResultFetcher(self._division(), jumps=jumps)
        self._transactions = BatchTransactions(topic, query, checkpoint_id, other)
        self._writer = PartitionWriter(topic, self._transactions.id, query)
        self._driver = ""
        self._producers: list[str] = []
        self._in_part: int | None = None
        """A batch that tasks of a driver before this one may have begun, and that tasks have to end."""
        self._renewed = 0.0

    @property
    def place(self) -> str:
        """Topic and bootstrap servers."""
        return f"topic {self._topic.name} at {self._topic.connection.servers}"

    def prepare(self, last: LastBatch) -> None:
        """Take over the topic's transactions; other drivers on this checkpoint can no longer write."""
        settings = self._suitable_settings()
        self._transactions.open(last, settings.max_message_bytes if settings is not None else None)
        self._take_over_partitions(last)

    def shape(self, results: DataFrame) -> DataFrame:
        """Encode the results as the keys and values of messages; where tasks write them, let them do so."""
        shaped = self._encoded(results)
        return self._written_by_tasks(shaped) if self._tasks.by_partition else shaped

    def write(self, results: DataFrame, batch: ResultBatch) -> int:
        """Compute a batch, and write it if it is not in the topic yet; return the number of rows written."""
        if not self._transactions.has(batch.number):
            return self._compute(results, batch)
        if self._tasks.by_partition:
            self._compute_by_tasks(results, batch)  # each task finds that its partition is there
        else:
            results.write.format("noop").mode("overwrite").save()
        return 0

    def close(self) -> None:
        """Close the producer."""
        self._transactions.close()

    def _suitable_settings(self) -> TopicSettings | None:
        """Return the topic's settings; raise MillraceError if the topic does not suit the results."""
        settings = self._topic.settings()
        if settings is not None and settings.compacted and self._keys.columns is None:
            message = f"topic {self._topic.name} is compacted, and the results have no key"
            raise self._topic.problem(message, f"write key, or: {self._topic.alter_command('cleanup.policy=delete')}")
        return settings

    def _take_over_partitions(self, last: LastBatch) -> None:
        """Fence tasks of earlier drivers, if tasks have written since a driver did, or are to write.

        Raises MillraceError if they have begun a batch, so that it may be there in part, and tasks cannot end it.
        """
        partitions, has_parts = self._tasks.partitions, self._transactions.partitions > 0
        self._in_part = None
        if not (has_parts or self._tasks.by_partition):
            return
        is_there = last.unfinished is None or self._transactions.has(last.unfinished)
        if partitions is None and not is_there:
            message = (
                f"topic {self._topic.name} may have a part of batch {last.unfinished}, of some partitions of the state"
            )
            hint = "run the query once more as it was, stop it after a batch, and then change it"
            raise self._topic.problem(message, hint)
        self._in_part = last.unfinished if has_parts and not is_there else None
        self._driver = self._transactions.fence_partitions(partitions or 0, last)
        self._producers = [""] * (partitions or 0)
        self._renewed = time.monotonic()
        if not self._tasks.by_partition and self._in_part is None:
            self._transactions.end_partitions(last.next)

    def _encoded(self, results: DataFrame) -> DataFrame:
        """Return the results as columns of which ``key`` and ``value`` are those of messages."""
        return encoded(results, self._keys)

    def _compute(self, results: DataFrame, batch: ResultBatch) -> int:
        if self._tasks.by_partition:
            return self._compute_by_tasks(results, batch)
        if batch.number == self._in_part:
            rows = self._compute_by_tasks(self._written_by_tasks(results), batch)
            self._transactions.end_partitions(batch.number + 1)
            return rows
        with self._fetcher.fetched(results, may_be_any=batch.may_have_results) as tables, SINK_CLOCK.running():
            return self._write(SINK_CLOCK.outside(tables), batch)

    def _written_by_tasks(self, shaped: DataFrame) -> DataFrame:
        return shaped.select("key", "value").mapInArrow(self._writer, ROWS)

    def _compute_by_tasks(self, results: DataFrame, batch: ResultBatch) -> int:
        """Let tasks write a batch; return its number of rows, with those of partitions that were there already.

        Raises MillraceError if the results are not in the partitions of the state, before any of them is written.
        """
        if time.monotonic() - self._renewed > _RENEW_SECONDS:
            self._transactions.renew()
            self._renewed = time.monotonic()
        found = results._jdf.queryExecution().toRdd().getNumPartitions()  # which costs no job
        if found != self._tasks.partitions:
            raise not_of_the_state(found, self._tasks.partitions, self._topic)
        numbers = batch.number, batch.epoch, batch.watermark, len(self._producers)
        for_tasks = BatchForTasks(*numbers, self._driver, self._transactions.longest, self._producers)
        for_tasks.announce(results.sparkSession.sparkContext)
        written = [Written(**row) for row in results.toArrow().to_pylist()]
        for each in written:
            self._producers[each.partition] = each.producer
        SINK_CLOCK.add(max((each.seconds for each in written), default=0.0))
        return sum(each.rows for each in written)

    def _division(self) -> Callable[[DataFrame], DataFrame] | None:
        """Return what divides large results among partitions before they are fetched; None if nothing has to."""
        return None

    @abstractmethod
    def _write(self, fetched: Iterable[pa.Table], batch: ResultBatch) -> int:
        """Write a batch whose results come as one table or as many; return the number of rows written."""
        ...


class AppendSink(KafkaSink):
    """A sink that appends every result: final rows under OnWindowClose, all updates under OnUpdate."""

    def _division(self) -> Callable[[DataFrame], DataFrame] | None:
        if not self._keys.columns:
            return None  # by values, a row that is computed again with another last digit would be in another part
        return lambda results: results.repartition(PARTS, "key")

    def _write(self, fetched: Iterable[pa.Table], batch: ResultBatch) -> int:
        rows = 0

        def messages() -> Iterator[Outgoing]:
            nonlocal rows
            for table in fetched:
                rows += table.num_rows
                for part in table.to_batches():
                    yield from self._messages(part)

        self._transactions.write(batch, messages())
        return rows

    def _messages(self, fetched: pa.RecordBatch) -> Iterator[Outgoing]:
        yield from (Outgoing(key, value) for key, value in rows_of_batch(fetched))
