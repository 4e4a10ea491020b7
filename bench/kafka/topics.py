"""Topics of the benchmark: records as JSON, made at once or at a steady rate, and the times at which they were made.

    python -m bench.kafka.topics SERVERS TOPIC SKEW RATE SECONDS [EVERY [KEYS]]

The command produces records at a steady rate, stamped with the time at which they are handed to the client. SKEW is a
name in ``bench.key_streams.SKEWS``, such as ``uniform``. With EVERY, the records of that many seconds are produced at
once. KEYS is the number of keys.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from numpy.typing import NDArray

from bench.key_streams import codes

PARTITIONS = 4
KEYS = 1_000
SCHEMA = "at TIMESTAMP, key STRING, value STRING"

_PRODUCER = {"linger.ms": 5, "queue.buffering.max.messages": 1_000_000, "acks": "all"}
_BLOCK = 10_000
_WIDTH = len('{"at":"2024-05-01T00:00:00.000000Z","key":"key-1","value":"v1"}')
_TICK = 0.02
_PATIENCE = 60.0


def create(servers: str, topic: str, settings: Mapping[str, str] = MappingProxyType({})) -> None:
    """Create a topic of ``PARTITIONS`` partitions."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})  # must outlive the request
    admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=dict(settings))])[topic].result(_PATIENCE)


def fill(servers: str, topic: str, skew: str, records: int, number_of_keys: int = KEYS, width: int = 0) -> None:
    """Create a topic and fill it with records that are a tenth of a millisecond of event time apart.

    Values are padded so that records have at least ``width`` bytes, or a few more.
    """
    begin = datetime(2024, 5, 1, tzinfo=UTC).timestamp()
    keys = codes(skew, records, number_of_keys)

    def block(low: int) -> list[str]:
        moments = begin + np.arange(low, min(low + _BLOCK, records), dtype=np.float64) * 1e-4
        return messages(moments, keys[low : low + _BLOCK], low, width)

    create(servers, topic)
    produce_all(servers, topic, map(block, range(0, records, _BLOCK)))


def produce_all(
    servers: str, topic: str, blocks: Iterable[Sequence[str]], settings: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Produce all records of some blocks, with settings of the client in addition to the usual ones."""
    producer = Producer({"bootstrap.servers": servers} | _PRODUCER | dict(settings))
    for block in blocks:
        _produce(producer, topic, block)
    _flush(producer)


def messages(moments: NDArray[np.floating], keys: NDArray[np.int64], first: int, width: int = 0) -> list[str]:
    """Return records as JSON, with event times in seconds since 1970; ``first`` is the number of the first record."""
    padding = "-" * (width - _WIDTH)
    times = pa.array((moments * 1e6).astype(np.int64)).cast(pa.timestamp("us"))
    texts = pc.strftime(times, "%Y-%m-%dT%H:%M:%SZ").to_pylist()
    return [
        f'{{"at":"{text}","key":"key-{key}","value":"v{number % 50}{padding}"}}'
        for number, (text, key) in enumerate(zip(texts, keys.tolist(), strict=True), first)
    ]


def produce_steadily(
    servers: str,
    topic: str,
    skew: str,
    rate: float,
    seconds: float,
    every: float = _TICK,
    number_of_keys: float = KEYS,
) -> None:
    """Produce ``rate`` records per second for ``seconds`` seconds, all records of ``every`` seconds at once."""
    producer = Producer({"bootstrap.servers": servers} | _PRODUCER)
    keys = codes(skew, int(rate * seconds), int(number_of_keys))
    began, made = time.time(), 0
    while made < len(keys):
        due = min(int((time.time() - began) // every * every * rate), len(keys))
        if due > made:
            moments = np.full(due - made, time.time())
            _produce(producer, topic, messages(moments, keys[made:due], made))
            made = due
        producer.poll(_TICK)
    _flush(producer)


def times_in(servers: str, topic: str) -> list[NDArray[np.int64]]:
    """Return for each partition when its records were made, in milliseconds since 1970, by offset."""
    settings = {"bootstrap.servers": servers, "group.id": "bench", "enable.auto.commit": False}
    consumer = Consumer(settings)
    try:
        ends = [consumer.get_watermark_offsets(TopicPartition(topic, p), _PATIENCE)[1] for p in range(PARTITIONS)]
        times = [np.zeros(end, np.int64) for end in ends]
        consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
        left = sum(ends)
        while left:
            for message in consumer.consume(min(_BLOCK, left), _PATIENCE):
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                times[partition][offset] = message.timestamp()[1]
                left -= 1
        return times
    finally:
        consumer.close()


def _produce(producer: Producer, topic: str, values: Sequence[str]) -> None:
    """Produce to the partitions in turn, so that keys are skewed but partitions are not."""
    for partition in range(PARTITIONS):
        batch = [{"value": value} for value in values[partition::PARTITIONS]]
        while (taken := producer.produce_batch(topic, batch, partition)) < len(batch):
            batch = batch[taken:]
            producer.poll(0.1)


def _flush(producer: Producer) -> None:
    left = producer.flush(_PATIENCE)
    if left:
        raise RuntimeError(f"the broker has not acknowledged {left} records within {_PATIENCE:.0f} s: see its log")


if __name__ == "__main__":
    _, to_servers, to_topic, with_skew, *numbers = sys.argv
    produce_steadily(to_servers, to_topic, with_skew, *map(float, numbers))
