"""A replica of a partitioner between two topics: it reads raw records, and writes each to its worker's partition.

A batch is what arrives in one interval. Its records and the offsets behind them are written in one transaction, so that
each raw record is in the routed topic exactly once, whenever a replica dies. Replicas of a query are a consumer group:
when one comes or goes, Kafka assigns all raw partitions again, they begin at their committed offsets, and a
transaction of an earlier assignment is refused (KIP-447).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.dedicated.message_keys import MessageKeys
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.kafka.errors import (
    PATIENCE,
    SHORTEST_PAUSE,
    BrokerErrors,
    error_of,
    is_transient,
    kafka_problem,
    patiently,
)
from millrace_jobs.partitioners.base import BatchPartitioner, Partitioner, Workers
from millrace_jobs.partitioners.prompt.partitioner import EarlyRelease
from millrace_jobs.partitioners.registry import make
from millrace_jobs.plan.control import Pin

EPOCH, BATCH = "millrace-epoch", "millrace-batch"
"""Headers of a routed record: the epoch of the plan that placed it, and the number of the interval it came in."""

MOST_RECORDS, MOST_BYTES = 1 << 19, 256 << 20
"""Records, and bytes of their values, at which a batch is cut before its interval ends: what a replica holds."""

_ABOUT_TO_END = 0.01
"""Seconds before the cut-off at which a replica no longer waits for records."""

_AT_ONCE = 10_000
"""Messages taken from the consumer in one call."""

_POLL_EVERY = 1 << 12
"""Messages between two calls that serve the producer's callbacks."""

_FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})

_REASSIGNED = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError._STATE,
    }
)
"""Errors while raw partitions are assigned: of a transaction that has lost its own, or of a ``seek`` too early."""


@dataclass(frozen=True)
class ReplicaSpec:
    """What one replica of a query works on.

    Attributes:
        query: name of the query.
        connection: the cluster of both topics.
        raw: the topics to read.
        routed: the topic to write; its partition w is worker w's.
        index: number of the replica; its transactions are this one's, so a second process with it fences the first.
        interval: the batch interval, in seconds.
    """

    query: str
    connection: Connection
    raw: Sequence[str]
    routed: str
    index: int
    interval: float

    @property
    def group(self) -> str:
        """The consumer group of the query's replicas."""
        return f"millrace-{self.query}-partitioners"


class PartitionerReplica:
    """A replica that runs until it is stopped.

    Args:
        spec: what it works on.
        keys: how it finds the keys of messages.
        plan: returns the plan that the next batch is placed under.
        wrote: called after each batch with its number and the seconds that placing and writing it took.
    """

    def __init__(
        self,
        spec: ReplicaSpec,
        keys: MessageKeys,
        plan: Callable[[], Pin],
        wrote: Callable[[int, int, float], None] = lambda batch, records, seconds: None,
    ) -> None:
        self._spec, self._keys, self._plan, self._wrote = spec, keys, plan, wrote
        self._release = EarlyRelease(spec.interval)
        self._errors = BrokerErrors()
        self._partitioner: Partitioner | None = None
        self._pin: Pin | None = None
        self._batch = 0
        self._reassigned = self._astray = False

    def run(self, stop: threading.Event) -> None:
        """Place batch after batch until ``stop`` is set; a batch that was not written comes again.

        Raises:
            MillraceError: Kafka fails permanently, or for longer than ``PATIENCE``, or another process has the index.
        """
        settings = self._spec.connection.settings()
        consumer = Consumer(settings | _CONSUMER | {"group.id": self._spec.group, "error_cb": self._errors})
        producer = Producer(settings | _PRODUCER | {"transactional.id": f"{self._spec.group}-{self._spec.index}"})
        try:
            patiently(lambda: producer.init_transactions(PATIENCE), "beginning to write", self._spec.connection)
            consumer.subscribe(list(self._spec.raw), on_revoke=self._on_reassigned, on_lost=self._on_reassigned)
            failing_since: float | None = None
            while not stop.is_set():
                try:
                    self._run_batch(consumer, producer, stop)
                    failing_since = None
                except KafkaException as error:
                    failing_since = failing_since or time.monotonic()
                    self._recover(producer, error_of(error), failing_since)
        finally:
            consumer.close()

    def _run_batch(self, consumer: Consumer, producer: Producer, stop: threading.Event) -> None:
        """Take in the records of one interval, then place and write them."""
        if self._astray:
            self._restart(consumer)
            self._astray = False
        pin = self._follow_plan()
        ends = (time.time() // self._spec.interval + 1) * self._spec.interval
        messages = self._take(consumer, self._release.cut_off(ends), stop)
        if not messages or stop.is_set():
            return
        began = time.monotonic()
        indexes, hashes = self._keys.of(messages)
        assert self._partitioner is not None
        ids = self._partitioner.route(hashes)
        if isinstance(self._partitioner, BatchPartitioner):
            self._release = self._release.after(time.monotonic() - began)
        self._batch = max(self._batch + 1, int(ends // self._spec.interval))
        self._write(consumer, producer, [messages[index] for index in indexes.tolist()], ids, pin)
        self._partitioner.advance()
        self._wrote(self._batch, len(messages), time.monotonic() - began)

    def _take(self, consumer: Consumer, until: float, stop: threading.Event) -> list[Message]:
        """Return the messages that come until then, or as many as a replica holds; none if raw partitions change."""
        self._reassigned = False
        messages: list[Message] = []
        size = 0
        while not stop.is_set() and len(messages) < MOST_RECORDS and size < MOST_BYTES:
            left = until - time.time()
            if left < _ABOUT_TO_END and (messages or left < 0):
                break
            came = consumer.consume(_AT_ONCE, min(max(left, 0.0), 0.1))
            if self._reassigned:  # some may be of the assignment before, and come again
                self._astray = True
                return []
            for message in came:
                if (error := message.error()) is not None:
                    raise KafkaException(error)
            messages += came
            size += sum(map(len, came))
        return messages

    def _write(
        self, consumer: Consumer, producer: Producer, messages: Sequence[Message], ids: Workers, pin: Pin
    ) -> None:
        """Write placed messages and the consumer's offsets in one transaction."""
        about: list[tuple[str, str | bytes | None]] = [
            (EPOCH, str(pin.epoch).encode()),
            (BATCH, str(self._batch).encode()),
        ]
        producer.begin_transaction()
        for count, (message, worker) in enumerate(zip(messages, ids.tolist(), strict=True)):
            headers = message.headers()
            _, millis = message.timestamp()
            while True:
                try:
                    producer.produce(
                        self._spec.routed,
                        message.value(),
                        message.key(),
                        worker,
                        timestamp=millis,
                        headers=[*headers, *about] if headers else about,
                    )
                    break
                except BufferError:  # until messages are delivered
                    producer.poll(1.0)
            if count % _POLL_EVERY == 0:
                producer.poll(0)
        offsets = [place for place in consumer.position(consumer.assignment()) if place.offset >= 0]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), PATIENCE)
        producer.commit_transaction(PATIENCE)

    def _recover(self, producer: Producer, error: KafkaError, failing_since: float) -> None:
        """Abort the batch's transaction; the next one begins at the committed offsets. Raises permanent errors."""
        error = self._errors.cause_of(error)
        if error.code() in _FENCED:
            message = f"another process works as replica {self._spec.index} of {self._spec.query}'s partitioner"
            raise MillraceError(Problem(message, "run one process for each replica: this one has ended"))
        passing = is_transient(error) or error.txn_requires_abort() or error.code() in _REASSIGNED
        if error.fatal() or not passing or time.monotonic() > failing_since + PATIENCE:
            raise kafka_problem(error, f"moving records to topic {self._spec.routed}", self._spec.connection)
        with suppress(KafkaException):  # there may be no transaction; the next one fails if this one is still there
            producer.abort_transaction(PATIENCE)
        self._astray = True
        time.sleep(SHORTEST_PAUSE)

    def _restart(self, consumer: Consumer) -> None:
        """Read again from the committed offsets, as after a start."""
        places = consumer.committed(consumer.assignment(), PATIENCE)
        for place in places:
            if place.offset < 0:
                place.offset = consumer.get_watermark_offsets(place, PATIENCE)[0]
            consumer.seek(place)

    def _follow_plan(self) -> Pin:
        """Return the plan of the next batch, with a partitioner for it."""
        pin = self._plan()
        if pin != self._pin:
            known = self._pin
            same = known is not None and (known.algorithm, known.parameters, known.replicas, known.seed) == (
                (pin.algorithm, pin.parameters, pin.replicas, pin.seed)
            )
            if same and self._partitioner is not None:
                self._partitioner.resize(pin.workers)
            else:
                self._partitioner = make(
                    pin.algorithm,
                    workers=pin.workers,
                    replica=self._spec.index,
                    replicas=max(pin.replicas, self._spec.index + 1),
                    seed=pin.seed,
                    parameters=pin.parameters,
                )
            self._pin = pin
        return pin

    def _on_reassigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._reassigned = True


_CONSUMER: dict[str, object] = {
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",
    "partition.assignment.strategy": "range",  # all partitions begin again, so nothing half done is carried over
    "session.timeout.ms": 10_000,
    "queued.max.messages.kbytes": 65_536,
    "fetch.queue.backoff.ms": 5,
}

_PRODUCER: dict[str, object] = {
    "transaction.timeout.ms": 60_000,
    "allow.auto.create.topics": False,
    "compression.type": "lz4",
    "queue.buffering.max.messages": 1 << 20,
    "queue.buffering.max.kbytes": 262_144,
    "linger.ms": 2,
}
