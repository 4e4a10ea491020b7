"""Topics of views and clicks: records as JSON with the page as their key, made at once or at a steady rate.

    python -m bench.joins.inputs SERVERS VIEWS CLICKS CASE RATE

The command produces RATE records per second to each of both topics, until SIGTERM. CASE is a name in
``bench.joins.cases.CASES``. A record's time is when it was due, so that a producer that lags behind shows as latency.

Kafka Streams needs both topics to have the same key in the same partition, as Kafka's own partitioner has it. So the
partition of a hot page has more records than the others. Times are whole milliseconds, which every engine can compare.
"""

from __future__ import annotations

import signal
import sys
import time
from datetime import UTC, datetime
from threading import Event

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition

from bench.joins.cases import CASES, PAGES, JoinCase
from bench.kafka.topics import create

_PRODUCER = {
    "linger.ms": 5,
    "queue.buffering.max.messages": 1_000_000,
    "acks": "all",
    "partitioner": "murmur2_random",  # that of Java's producer
}
_TICK = 0.02
_AT_ONCE = 10_000
_PATIENCE = 60.0


class _SteadyStream:
    """One of the two streams: records of ``rate`` per second since ``began``, in a topic."""

    def __init__(self, producer: Producer, topic: str, share: float, began: float, rate: float) -> None:
        self._producer, self._topic, self._share = producer, topic, share
        self._began, self._rate = began, rate
        self._random = np.random.default_rng()
        self._made = 0

    def produce(self, until: int) -> None:
        """Produce all records up to that number."""
        pages = self._random.integers(0, PAGES, until - self._made)
        pages[self._random.random(len(pages)) < self._share] = 0
        for number, page in enumerate(pages.tolist(), self._made):
            moment = int((self._began + number / self._rate) * 1000)
            at = datetime.fromtimestamp(moment / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
            value = f'{{"at":"{at}Z","page":"page-{page}","id":{number}}}'
            self._producer.produce(self._topic, value, f"page-{page}", timestamp=moment)
        self._made = until


def fill(servers: str, topics: tuple[str, str], case: JoinCase, records: int, rate: float) -> None:
    """Create both topics and fill each with ``records`` records of ``rate`` per second; the last ones are from now."""
    producer = Producer({"bootstrap.servers": servers} | _PRODUCER)
    began = time.time() - records / rate
    for topic, share in zip(topics, (case.views, case.clicks), strict=True):
        create(servers, topic)
        stream = _SteadyStream(producer, topic, share, began, rate)
        for low in range(0, records, _AT_ONCE):
            stream.produce(min(low + _AT_ONCE, records))
            _flush(producer)


def produce_steadily(servers: str, topics: tuple[str, str], case: JoinCase, rate: float, stop: Event) -> None:
    """Produce ``rate`` records per second to each of both topics, until ``stop`` is set."""
    producer = Producer({"bootstrap.servers": servers} | _PRODUCER)
    began = time.time()
    shares = zip(topics, (case.views, case.clicks), strict=True)
    streams = [_SteadyStream(producer, topic, share, began, rate) for topic, share in shares]
    while not stop.wait(_TICK):
        due = int((time.time() - began) * rate)
        for stream in streams:
            stream.produce(due)
        producer.poll(0)
    _flush(producer)


def values_in(servers: str, topic: str) -> list[bytes]:
    """Return the values of all messages of a topic that was written without transactions."""
    settings = {"bootstrap.servers": servers, "group.id": "bench", "enable.auto.commit": False}
    consumer = Consumer(settings)
    try:
        numbers = list(consumer.list_topics(topic, _PATIENCE).topics[topic].partitions)
        count = sum(consumer.get_watermark_offsets(TopicPartition(topic, n), _PATIENCE)[1] for n in numbers)
        consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
        values: list[bytes] = []
        while len(values) < count:
            messages = consumer.consume(min(_AT_ONCE, count - len(values)), _PATIENCE)
            values += (bytes(each.value() or b"") for each in messages)
        return values
    finally:
        consumer.close()


def _flush(producer: Producer) -> None:
    left = producer.flush(_PATIENCE)
    if left:
        raise RuntimeError(f"the broker has not acknowledged {left} records within {_PATIENCE:.0f} s: see its log")


if __name__ == "__main__":
    _, to_servers, of_views, of_clicks, of_case, per_second = sys.argv
    stopped = Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    produce_steadily(to_servers, (of_views, of_clicks), CASES[of_case], float(per_second), stopped)
