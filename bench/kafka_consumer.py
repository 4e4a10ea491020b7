"""Records per second that one Kafka consumer delivers to Python, the rate that a partitioner has to keep up with."""

from __future__ import annotations

import importlib
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

PARTITIONS = 4
RECORD_BYTES = 100
BATCH = 10_000
SECONDS_WITHOUT_RECORDS = 10

CONSUMER = {
    "group.id": "bench",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "queued.min.messages": 100_000,
    # By default a full queue makes the client wait for a second before it fetches again.
    "fetch.queue.backoff.ms": 5,
}


@dataclass(frozen=True)
class KafkaFigure:
    """Throughput of one consumer in its best run, by wall clock."""

    records: int
    messages_per_second: float
    """Throughput as the client's message objects."""
    arrow_records_per_second: float
    """Throughput as Arrow arrays of keys and values, the least that a record batch needs."""


def measure_consumer(bootstrap_servers: str, records: int, repeats: int) -> KafkaFigure:
    """Fill a new topic on a running broker, read it ``repeats`` times in both ways, and delete it.

    Raises:
        ModuleNotFoundError: confluent-kafka is not installed. The message says what to install.
    """
    client = _client("confluent_kafka")
    admin = _client("confluent_kafka.admin")
    servers = {"bootstrap.servers": bootstrap_servers}
    topic = f"millrace-bench-{uuid.uuid4().hex[:12]}"
    administrator = admin.AdminClient(servers)
    created = administrator.create_topics([admin.NewTopic(topic, PARTITIONS, 1)])
    created[topic].result()
    try:
        _fill(client.Producer({**servers, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000}), topic, records)

        def best(take: Callable[[list[Any]], object]) -> float:
            return max(_rate(client, {**servers, **CONSUMER}, topic, records, take) for _ in range(repeats))

        return KafkaFigure(records, best(len), best(_columns))
    finally:
        administrator.delete_topics([topic])[topic].result()


def _client(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("--kafka needs the Kafka client; install it: pip install confluent-kafka") from error


def _fill(producer: Any, topic: str, records: int) -> None:
    """Write records of ``RECORD_BYTES``, key and value together, to all partitions in turn."""
    for number in range(records):
        key = number.to_bytes(8, "little")
        value = key.ljust(RECORD_BYTES - len(key), b"x")
        while True:
            try:
                producer.produce(topic, value, key, number % PARTITIONS)
                break
            except BufferError:  # the producer's queue is full
                producer.poll(0.1)
    producer.flush()


def _rate(
    client: Any, settings: dict[str, Any], topic: str, records: int, take: Callable[[list[Any]], object]
) -> float:
    """Return the records per second of one reader of the whole topic, from its first batch to its last."""
    consumer = client.Consumer(settings)
    try:
        consumer.assign([client.TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        first = read = len(_batch(consumer, records))
        began = time.perf_counter()
        while read < records:
            messages = _batch(consumer, records - read)
            take(messages)
            read += len(messages)
        return (read - first) / (time.perf_counter() - began)
    finally:
        consumer.close()


def _batch(consumer: Any, left: int) -> list[Any]:
    """Return the next messages, at most ``left``. Raise RuntimeError if the broker reports an error or sends none."""
    messages: list[Any] = consumer.consume(min(BATCH, left), SECONDS_WITHOUT_RECORDS)
    if not messages:
        raise RuntimeError(f"the broker delivered nothing for {SECONDS_WITHOUT_RECORDS} seconds")
    for message in messages:
        if message.error() is not None:
            raise RuntimeError(f"the broker reports: {message.error()}")
    return messages


def _columns(messages: list[Any]) -> pa.RecordBatch:
    keys = pa.array([message.key() for message in messages], pa.binary())
    values = pa.array([message.value() for message in messages], pa.binary())
    return pa.record_batch([keys, values], ["key", "value"])
