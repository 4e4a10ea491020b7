"""A plain loop that copies a topic with confluent-kafka, partition by partition: what a replica is compared with.

    python -m bench.dedicated.copy_loop SERVERS FROM TO RECORDS HOW

HOW is ``plain`` or ``transactions``, which also commits records and offsets exactly once, in a transaction a second. It
prints a point as JSON once a second, and at the end. Its clients have the settings of a replica's.
"""

from __future__ import annotations

import json
import sys
import time
import uuid

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from bench.dedicated.progress import Progress
from bench.kafka.topics import PARTITIONS

PLAIN, TRANSACTIONS = "plain", "transactions"

_AT_ONCE = 10_000
_EVERY = 1.0
_PATIENCE = 60.0
_CONSUMER: dict[str, object] = {
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "queued.max.messages.kbytes": 65_536,
    "queued.min.messages": 100_000,
    "fetch.queue.backoff.ms": 5,
    "fetch.wait.max.ms": 50,
}
_PRODUCER: dict[str, object] = {
    "compression.type": "lz4",
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": 262_144,
    "linger.ms": 1,
}


class CopyLoop:
    """One run of the loop."""

    def __init__(self, servers: str, source: str, sink: str, how: str) -> None:
        tag, common = uuid.uuid4().hex, {"bootstrap.servers": servers}
        self._sink = sink
        self._is_exact = how == TRANSACTIONS
        self._consumer = Consumer(common | _CONSUMER | {"group.id": tag})
        self._consumer.assign([TopicPartition(source, number, 0) for number in range(PARTITIONS)])
        self._producer = Producer(common | _PRODUCER | ({"transactional.id": tag} if self._is_exact else {}))
        if self._is_exact:
            self._producer.init_transactions(_PATIENCE)
            self._producer.begin_transaction()

    def run(self, records: int) -> None:
        """Copy this many records, and print the points."""
        copied, due = 0, time.monotonic()
        while copied < records:
            messages = self._consumer.consume(min(_AT_ONCE, records - copied), 0.1)
            for message in messages:
                self._produce(message)
            copied += len(messages)
            if time.monotonic() >= due:
                self._end_second(copied)
                due += _EVERY
        self._producer.flush(_PATIENCE)
        self._end_second(copied)

    def _produce(self, message: Message) -> None:
        while True:
            try:
                self._producer.produce(self._sink, message.value(), partition=message.partition() or 0)
                return
            except BufferError:
                self._producer.poll(0.05)

    def _end_second(self, copied: int) -> None:
        if self._is_exact:
            places = self._consumer.position(self._consumer.assignment())
            read = [place for place in places if place.offset >= 0]
            if read:
                self._producer.send_offsets_to_transaction(read, self._consumer.consumer_group_metadata())
            self._producer.commit_transaction(_PATIENCE)
            self._producer.begin_transaction()
        else:
            self._producer.poll(0)
        point = Progress(time.monotonic(), copied - len(self._producer), time.process_time())
        print(json.dumps(point), flush=True)


if __name__ == "__main__":
    _, to_servers, from_topic, to_topic, most, with_how = sys.argv
    CopyLoop(to_servers, from_topic, to_topic, with_how).run(int(most))
