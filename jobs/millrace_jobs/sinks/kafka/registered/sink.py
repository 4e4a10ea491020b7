"""The sink that appends results to a Kafka topic as values with a schema of a registry."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional name

from millrace_jobs.sinks.base import LastBatch, ResultKeys
from millrace_jobs.sinks.column_names import named
from millrace_jobs.sinks.kafka.appends import AppendSink
from millrace_jobs.sinks.kafka.fetching import PARTS
from millrace_jobs.sinks.kafka.messages import key_column
from millrace_jobs.sinks.kafka.registered.result_schema import Encode, ResultSchema
from millrace_jobs.sinks.kafka.registered.result_values import rows_of
from millrace_jobs.sinks.kafka.topic import TargetTopic
from millrace_jobs.sinks.kafka.transactions import Outgoing

_CHUNK = 10_000


class RegisteredSink(AppendSink):
    """An ``AppendSink`` whose values are Avro or Protobuf with the framing of a schema registry; keys are JSON."""

    def __init__(
        self, topic: TargetTopic, keys: ResultKeys, query: str, checkpoint_id: str, schema: ResultSchema
    ) -> None:
        super().__init__(topic, keys, query, checkpoint_id)
        self.schema = schema
        self._encode: Encode | None = None

    def prepare(self, last: LastBatch) -> None:
        """Find or register the schema before anything is written, and take over the topic's transactions."""
        self._encode = self.schema.writer()
        super().prepare(last)

    def _encoded(self, results: DataFrame) -> DataFrame:
        """Return the keys as JSON, and the results as structs, which the driver encodes."""
        columns = [named(name) for name in self.schema.columns.names]
        return results.select(key_column(results, self._keys).alias("key"), F.struct(*columns).alias("value"))

    def _division(self) -> Callable[[DataFrame], DataFrame] | None:
        if not self._keys.columns:
            return None  # the partitions of the results: maps, which values may have, do not divide them
        return lambda results: results.repartition(PARTS, "key")

    def _messages(self, fetched: pa.RecordBatch) -> Iterator[Outgoing]:
        assert self._encode is not None
        for start in range(0, fetched.num_rows, _CHUNK):
            chunk = fetched.slice(start, _CHUNK)
            keys = chunk.column("key").to_pylist()
            for key, row in zip(keys, rows_of(chunk.column("value")), strict=True):
                yield Outgoing(key, self._encode(row))
