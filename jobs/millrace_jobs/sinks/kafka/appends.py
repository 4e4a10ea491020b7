"""The sink that appends results to a Kafka topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

from millrace_jobs.sinks.base import ResultBatch, ResultKeys
from millrace_jobs.sinks.kafka.fetching import PARTS
from millrace_jobs.sinks.kafka.messages import rows_of_batch
from millrace_jobs.sinks.kafka.sink import KafkaSink, TaskWrites
from millrace_jobs.sinks.kafka.topic import TargetTopic
from millrace_jobs.sinks.kafka.transactions import Outgoing


class AppendSink(KafkaSink):
    """A sink that appends every result: final rows under OnWindowClose, all updates under OnUpdate."""

    def __init__(
        self,
        topic: TargetTopic,
        keys: ResultKeys,
        query: str,
        checkpoint_id: str,
        tasks: TaskWrites = TaskWrites(),  # noqa: B008 - it never changes
        *,
        jumps: bool = True,
    ) -> None:
        super().__init__(topic, keys, query, checkpoint_id, tasks, jumps=jumps)

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
        """Yield the messages of shaped results."""
        yield from (Outgoing(key, value) for key, value in rows_of_batch(fetched))
