"""One interval of a replica: packs, their manifest and the raw offsets behind them, written in one transaction.

Next, the job's ``routed_source`` reads the manifest.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from millrace_jobs.dedicated.batching.buffers import OutputBatch
from millrace_jobs.dedicated.manifest import Manifest, Packs, coalesced
from millrace_jobs.dedicated.topics import LARGEST_PACK, Topics
from millrace_jobs.kafka.calls import AbandonedCallError, call_in_time
from millrace_jobs.kafka.errors import error_of
from millrace_jobs.sources.kafka.offsets import Offsets

EPOCH, BATCH, GENERATION = "millrace-epoch", "millrace-batch", "millrace-generation"
"""Headers of a pack: the epoch of the plan that placed its records, the number of the interval, and the generation."""

CALL_SECONDS = 10.0
"""Timeout of one call to Kafka."""

_QUEUE_FULL_SECONDS = 0.05

TRANSACTION_SECONDS = 60.0
"""Seconds after which brokers abort a transaction: one of a replica that is not replaced holds readers up so long."""

_PRODUCER: dict[str, object] = {
    "transaction.timeout.ms": round(TRANSACTION_SECONDS * 1000),
    "allow.auto.create.topics": False,
    "compression.type": "lz4",
    "message.max.bytes": LARGEST_PACK,
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": 262_144,
    "linger.ms": 1,
    "topic.metadata.refresh.interval.ms": 10_000,
}


class IntervalWriter:
    """The transactions of one replica, one for each interval; nothing of an interval is visible before ``commit``.

    Methods raise KafkaException; the interval must then be given up by ``abort``, and comes again.

    Args:
        settings: the connection, the replica's transactional id, and where broker errors go.
        topics: names of the query's topics.
    """

    def __init__(self, settings: Mapping[str, object], topics: Topics) -> None:
        self._settings = {**_PRODUCER, **settings}
        self._opened: Producer | None = None
        self._workers = 0
        self._began = 0.0
        self._topics = topics
        self._headers: list[tuple[str, str | bytes | None]] = []
        self._is_open = False
        self._offsets: dict[int, list[int]] = defaultdict(list)
        self._failure: KafkaError | None = None
        self._manifest_at: int | None = None
        self.packs = 0
        """Packs of the open transaction."""

    def require_producer(self) -> None:
        """Open a producer if there is none. It finds out how the transaction of the one before ended, or aborts it."""
        if self._opened is None:
            producer = Producer(self._settings)
            producer.init_transactions(CALL_SECONDS)
            self._opened, self._workers = producer, 0

    def require_workers(self, workers: int) -> None:
        """Find the partitions that the routed topic has got for more workers."""
        if workers > self._workers:
            found = self._producer.list_topics(self._topics.routed, CALL_SECONDS).topics[self._topics.routed]
            if len(found.partitions) < workers:
                raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
            self._workers = workers

    @property
    def seconds(self) -> float:
        """The time since the last transaction was begun, in seconds."""
        return time.monotonic() - self._began

    def begin(self, headers: Mapping[str, str]) -> None:
        """Begin an interval; its transaction begins with its first pack."""
        self._headers = [(name, value.encode()) for name, value in headers.items()]
        self._offsets.clear()
        self._failure = self._manifest_at = None
        self.packs = 0

    def send(self, pack: OutputBatch) -> None:
        """Pass a pack to the producer, and wait only if its queue is full."""
        self._open()
        self.packs += 1
        self._produce(self._topics.routed, bytes(memoryview(pack.data)), pack.worker)

    def commit(self, manifest: Callable[[Packs], Manifest], raw: Offsets, consumer: Consumer) -> int:
        """Write the manifest and the raw offsets, and commit; return the offset of the manifest.

        Args:
            manifest: returns the interval's manifest for the offsets of its packs, by worker.
            raw: where the replica goes on in its raw partitions.
            consumer: the member of the replicas' group.
        """
        self._open()
        self._wait_for_deliveries()
        ranges = {worker: coalesced(sorted(offsets)) for worker, offsets in self._offsets.items()}
        self._produce(self._topics.manifests, manifest(ranges).to_bytes(), 0)
        self._wait_for_deliveries()
        if raw:
            producer, group = self._producer, consumer.consumer_group_metadata()
            places = [TopicPartition(*partition, offset) for partition, offset in raw.items()]
            try:
                call_in_time(lambda seconds: producer.send_offsets_to_transaction(places, group, seconds), CALL_SECONDS)
            except AbandonedCallError:
                self.drop_producer()
                raise
        self._producer.commit_transaction(CALL_SECONDS)
        self._is_open = False
        assert self._manifest_at is not None
        return self._manifest_at

    def abort(self) -> None:
        """Give the interval up; a producer that cannot abort it, as after a commit without an answer, is dropped."""
        if self._is_open:
            self._is_open = False
            try:
                self._producer.purge()
                self._producer.abort_transaction(CALL_SECONDS)
            except KafkaException:
                self.drop_producer()

    def drop_producer(self) -> None:
        """Drop a producer that can write no more; ``require_producer`` opens the next one."""
        self._opened, self._is_open = None, False

    @property
    def _producer(self) -> Producer:
        assert self._opened is not None
        return self._opened

    def _open(self) -> None:
        if not self._is_open:
            self._began = time.monotonic()
            self._producer.begin_transaction()
            self._is_open = True

    def _produce(self, topic: str, value: bytes, partition: int) -> None:
        while True:
            self._require_delivered()
            try:
                self._producer.produce(topic, value, None, partition, self._delivered, headers=self._headers)
                break
            except BufferError:
                self._producer.poll(_QUEUE_FULL_SECONDS)
        self._producer.poll(0)

    def _wait_for_deliveries(self) -> None:
        until = time.monotonic() + CALL_SECONDS
        while self._producer.flush(_QUEUE_FULL_SECONDS) and self._failure is None:
            if time.monotonic() > until:
                raise KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT))
        self._require_delivered()

    def _require_delivered(self) -> None:
        if self._failure is not None:
            raise KafkaException(self._failure)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failure = self._failure or error_of(error)
        elif message.topic() == self._topics.manifests:
            self._manifest_at = message.offset()
        else:
            self._offsets[message.partition() or 0].append(message.offset() or 0)
