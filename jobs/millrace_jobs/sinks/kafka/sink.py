"""Sinks that write results to a Kafka topic, each batch exactly once.

To a consumer that reads only committed messages, a batch appears as a whole or not at all; where tasks write, as in
``appends``, that is so for each partition of the state. A batch that Spark runs again after a crash is computed again,
because state depends on it. It is written only as far as it is not in the topic yet.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable

import pyarrow as pa
from pyspark.sql import DataFrame

from millrace_jobs.sinks.base import LastBatch, ResultBatch, ResultKeys, Sink
from millrace_jobs.sinks.kafka.fetching import ResultFetcher
from millrace_jobs.sinks.kafka.messages import encoded
from millrace_jobs.sinks.kafka.topic import TargetTopic, TopicSettings
from millrace_jobs.sinks.kafka.transactions import BatchTransactions


class KafkaSink(Sink):
    """A sink whose driver writes a batch in one transaction."""

    def __init__(
        self, topic: TargetTopic, keys: ResultKeys, query: str, checkpoint_id: str, other: TargetTopic | None = None
    ) -> None:
        self._topic = topic
        self._keys = keys
        self._fetcher = ResultFetcher(self._division())
        self._transactions = BatchTransactions(topic, query, checkpoint_id, other)

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
        """Encode the results as the keys and values of messages."""
        return encoded(results, self._keys)

    def write(self, results: DataFrame, batch: ResultBatch) -> int:
        """Compute a batch, and write it if it is not in the topic yet; return the number of rows written."""
        if self._transactions.has(batch.number):
            return self._recompute(results, batch)
        return self._compute(results, batch)

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
        """Fence tasks of earlier drivers, if tasks have written since a driver did.

        Raises:
            MillraceError: they have begun a batch, so that it may be there in part.
        """
        if not self._transactions.partitions:
            return
        if last.unfinished is not None:
            message = (
                f"topic {self._topic.name} may have a part of batch {last.unfinished}, of some partitions of the state"
            )
            hint = "run the query once more as it was, stop it after a batch, and then change it"
            raise self._topic.problem(message, hint)
        self._transactions.fence_partitions(0, last)

    def _recompute(self, results: DataFrame, batch: ResultBatch) -> int:
        """Compute a batch that is in the topic already, because state depends on it; return 0."""
        results.write.format("noop").mode("overwrite").save()
        return 0

    def _compute(self, results: DataFrame, batch: ResultBatch) -> int:
        """Compute a batch and write it; return the number of rows written."""
        with self._fetcher.fetched(results) as tables:
            return self._write(tables, batch)

    def _division(self) -> Callable[[DataFrame], DataFrame] | None:
        """Return what divides large results among partitions before they are fetched; None if nothing has to."""
        return None

    @abstractmethod
    def _write(self, fetched: Iterable[pa.Table], batch: ResultBatch) -> int:
        """Write a batch whose results come as one table or as many; return the number of rows written."""
        ...
