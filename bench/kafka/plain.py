"""Plain Structured Streaming on Spark's own Kafka connector, as a user would write it without Millrace."""

from __future__ import annotations

import queue
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the conventional name
from pyspark.sql.streaming.listener import QueryTerminatedEvent
from pyspark.sql.streaming.readwriter import DataStreamWriter

from bench.kafka.topics import SCHEMA
from bench.plain_spark import aggregated
from millrace_api.model.query import Query
from millrace_jobs.run.listener import Event, Listener


def raw(spark: SparkSession, servers: str, topic: str, per_batch: int | None = None) -> DataFrame:
    """Read the messages of a topic, at most ``per_batch`` of them in a batch."""
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    return (reader.option("maxOffsetsPerTrigger", per_batch) if per_batch else reader).load()


def decoded(messages: DataFrame) -> DataFrame:
    """Decode the records in the messages."""
    return messages.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("record")).select("record.*")


def results(records: DataFrame, query: Query, delay: str) -> DataFrame:
    """Run the query over the records, which it knows as the table ``s``."""
    rows = records.withWatermark("at", delay)
    if query.python is not None:
        return aggregated(rows, query.python)
    assert query.sql is not None
    rows.createOrReplaceTempView("s")
    return records.sparkSession.sql(query.sql)


def to_kafka(frame: DataFrame, servers: str, topic: str, checkpoint: Path) -> DataStreamWriter:
    """Return a writer that sends every update to a topic, as JSON under its key."""
    messages = frame.select(F.col("key"), F.to_json(F.struct("*")).alias("value"))
    writer = messages.writeStream.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", topic)
    return writer.outputMode("update").option("checkpointLocation", checkpoint.as_uri())


def watch(spark: SparkSession, writer: DataStreamWriter, finished: Callable[[int, float], None]) -> None:
    """Run a query to its end, and call ``finished`` with the rows and the seconds of each batch."""
    events: queue.Queue[Event] = queue.Queue()
    stop_listening = Listener(events).register(spark)
    try:
        running = writer.start()
        while not isinstance(event := events.get(), QueryTerminatedEvent):
            if event is not None:
                finished(event["sources"][0]["numInputRows"], event["durationMs"]["triggerExecution"] / 1000)
        running.awaitTermination()
    finally:
        stop_listening()
