"""The sink that appends results to a Kafka topic: by the driver in one transaction, or by the tasks that merge."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

from millrace_jobs.sinks.base import LastBatch, ResultBatch, ResultKeys
from millrace_jobs.sinks.kafka.fetching import PARTS
from millrace_jobs.sinks.kafka.messages import rows_of_batch
from millrace_jobs.sinks.kafka.partition_writer import ROWS, BatchForTasks, PartitionWriter, Written, not_of_the_state
from millrace_jobs.sinks.kafka.sink import KafkaSink
from millrace_jobs.sinks.kafka.topic import TargetTopic
from millrace_jobs.sinks.kafka.transactions import Outgoing

_RENEW_SECONDS = 24 * 3600.0
"""How often the driver's number is committed again where tasks write; brokers keep it for days."""


class AppendSink(KafkaSink):
    """A sink that appends every result: final rows under OnWindowClose, all updates under OnUpdate.

    Args:
        topic: the topic.
        keys: the key of the results.
        query: name of the query.
        checkpoint_id: id of its checkpoint.
        partitions: number of the state's partitions in which results leave; None if they do not leave in those.
        by_partition: whether the tasks that merge a partition write it; otherwise the driver writes all.
    """

    def __init__(
        self,
        topic: TargetTopic,
        keys: ResultKeys,
        query: str,
        checkpoint_id: str,
        *,
        partitions: int | None = None,
        by_partition: bool = False,
    ) -> None:
        super().__init__(topic, keys, query, checkpoint_id)
        self._partitions = partitions
        self._by_partition = by_partition
        self._writer = PartitionWriter(topic, self._transactions.id, query)
        self._driver = ""
        self._producers: list[str] = []
        self._in_part: int | None = None
        self._renewed = 0.0

    def shape(self, results: DataFrame) -> DataFrame:
        """Encode the results as the keys and values of messages; where tasks write them, let them do so."""
        shaped = super().shape(results)
        return self._written_by_tasks(shaped) if self._by_partition else shaped

    def _take_over_partitions(self, last: LastBatch) -> None:
        has_parts = self._transactions.partitions > 0
        if self._partitions is None or not (self._by_partition or has_parts):
            super()._take_over_partitions(last)
            return
        self._in_part = last.unfinished if has_parts else None
        self._driver = self._transactions.fence_partitions(self._partitions, last)
        self._producers = [""] * self._partitions
        self._renewed = time.monotonic()

    def _recompute(self, results: DataFrame, batch: ResultBatch) -> int:
        if not self._by_partition:
            return super()._recompute(results, batch)
        self._compute_by_tasks(results, batch)  # each task finds that its partition is there
        return 0

    def _compute(self, results: DataFrame, batch: ResultBatch) -> int:
        if self._by_partition:
            return self._compute_by_tasks(results, batch)
        if batch.number == self._in_part:  # a driver before this one has let tasks begin it
            return self._compute_by_tasks(self._written_by_tasks(results), batch)
        return super()._compute(results, batch)

    def _division(self) -> Callable[[DataFrame], DataFrame] | None:
        return lambda results: results.repartition(PARTS, "key", "value")

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
        """Yield the messages of shaped results."""
        yield from (Outgoing(key, value) for key, value in rows_of_batch(fetched))

    def _written_by_tasks(self, shaped: DataFrame) -> DataFrame:
        return shaped.select("key", "value").mapInArrow(self._writer, ROWS)

    def _compute_by_tasks(self, results: DataFrame, batch: ResultBatch) -> int:
        """Let tasks write a batch; return its number of rows, with those of partitions that were there already.

        Raises:
            MillraceError: the results are not in the partitions of the state, before any of them is written.
        """
        if time.monotonic() - self._renewed > _RENEW_SECONDS:
            self._transactions.renew()
            self._renewed = time.monotonic()
        found = results._jdf.queryExecution().toRdd().getNumPartitions()  # which costs no job
        if found != self._partitions:
            raise not_of_the_state(found, self._partitions)
        announced = BatchForTasks.of(batch, self._driver, self._transactions.longest, self._producers)
        announced.announce(results.sparkSession.sparkContext)
        written = [Written(**row) for row in results.toArrow().to_pylist()]
        for each in written:
            self._producers[each.partition] = each.producer
        return sum(each.rows for each in written)
