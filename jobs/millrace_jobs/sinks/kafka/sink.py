"""Results in a Kafka topic: each batch is appended in one transaction, once.

To a consumer that reads committed messages only, a batch appears as a whole or not at all. A batch that Spark runs
again after a crash is computed again, since state depends on it, and written only if it is not in the topic yet.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

from millrace_jobs.sinks.base import LastBatch, ResultBatch, ResultKeys
from millrace_jobs.sinks.kafka.messages import encoded, fetched_rows
from millrace_jobs.sinks.kafka.topic import TargetTopic, TopicSettings
from millrace_jobs.sinks.kafka.transactions import BatchTransactions, KeyValue


class KafkaSink:
    """Appends every result: final rows under OnWindowClose, all updates under OnUpdate."""

    def __init__(self, topic: TargetTopic, keys: ResultKeys, query: str, checkpoint_id: str) -> None:
        self._topic = topic
        self._keys = keys
        self._transactions = BatchTransactions(topic, query, checkpoint_id)

    @property
    def place(self) -> str:
        """The topic, and where it is."""
        return f"topic {self._topic.name} at {self._topic.connection.servers}"

    def prepare(self, last: LastBatch) -> None:
        """Take over the topic's transactions; other drivers on this checkpoint can write no more."""
        settings = self._suitable()
        self._transactions.open(last, settings.max_message_bytes if settings is not None else None)

    def shape(self, results: DataFrame) -> DataFrame:
        """Keys and values of messages."""
        return encoded(results, self._keys)

    def write(self, results: DataFrame, batch: ResultBatch) -> int:
        """Write a batch that is not in the topic yet; compute it in any case."""
        if self._transactions.has(batch.number):
            results.write.format("noop").mode("overwrite").save()
            return 0
        return self._write(results.toArrow(), batch)

    def withdraw(self) -> None:
        """Leave the consumer group behind: it says that no batch is in the topic, and nothing depends on it."""

    def close(self) -> None:
        """Let go of the producer."""
        self._transactions.close()

    def _suitable(self) -> TopicSettings | None:
        """The topic's settings, where it suits what will be written."""
        settings = self._topic.settings()
        if settings is not None and settings.compacted and self._keys.columns is None:
            message = f"topic {self._topic.name} is compacted, and the results have no key"
            raise self._topic.problem(message, f"write key, or: {self._topic.alter('cleanup.policy=delete')}")
        return settings

    def _write(self, fetched: pa.Table, batch: ResultBatch) -> int:
        self._transactions.write(batch, _messages(fetched))
        return int(fetched.num_rows)


def _messages(fetched: pa.Table) -> Iterator[KeyValue]:
    return ((key, value) for key, value, _ in fetched_rows(fetched))
