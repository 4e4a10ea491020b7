"""The sink that appends results to a Kafka topic, each batch exactly once in one transaction.

To a consumer that reads only committed messages, a batch appears as a whole or not at all. A batch that Spark runs
again after a crash is computed again, because state depends on it. It is written only if it is not in the topic yet.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame

from millrace_jobs.sinks.base import LastBatch, ResultBatch, ResultKeys, Sink
from millrace_jobs.sinks.kafka.messages import encoded, fetched_rows
from millrace_jobs.sinks.kafka.topic import TargetTopic, TopicSettings
from millrace_jobs.sinks.kafka.transactions import BatchTransactions, Outgoing


class KafkaSink(Sink):
    """A sink that appends every result: final rows under OnWindowClose, all updates under OnUpdate."""

    def __init__(
        self, topic: TargetTopic, keys: ResultKeys, query: str, checkpoint_id: str, other: TargetTopic | None = None
    ) -> None:
        self._topic = topic
        self._keys = keys
        self._transactions = BatchTransactions(topic, query, checkpoint_id, other)

    @property
    def place(self) -> str:
        """Topic and bootstrap servers."""
        return f"topic {self._topic.name} at {self._topic.connection.servers}"

    def prepare(self, last: LastBatch) -> None:
        """Take over the topic's transactions; other drivers on this checkpoint can no longer write."""
        settings = self._suitable_settings()
        self._transactions.open(last, settings.max_message_bytes if settings is not None else None)

    def shape(self, results: DataFrame) -> DataFrame:
        """Encode the results as the keys and values of messages."""
        return encoded(results, self._keys)

    def write(self, results: DataFrame, batch: ResultBatch) -> int:
        """Compute a batch, and write it if it is not in the topic yet; return the number of rows written."""
        if self._transactions.has(batch.number):
            results.write.format("noop").mode("overwrite").save()
            return 0
        return self._write(results.toArrow(), batch)

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

    def _write(self, fetched: pa.Table, batch: ResultBatch) -> int:
        self._transactions.write(batch, (Outgoing(key, value) for key, value, _ in fetched_rows(fetched)))
        return int(fetched.num_rows)
