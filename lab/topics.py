"""Topics as tests see them: writing records, and reading committed ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka import Message as KafkaMessage
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from .kafka import Broker
from .waiting import wait_until

PATIENCE = 60.0
"""Seconds to wait for an answer of a broker on a busy machine."""

LONGEST = 480.0
"""Seconds to wait for a record that something else has to write."""

Content = bytes | str | Mapping[str, Any] | None
"""A key or a value: as it is, or a mapping that becomes JSON. None is a tombstone."""


class Message(NamedTuple):
    """A committed record."""

    key: bytes | None
    value: bytes | None
    headers: dict[str, str | bytes | None]
    partition: int
    offset: int


def make(broker: Broker, name: str, partitions: int = 1, **config: Any) -> str:
    """Create a topic and return its name. ``cleanup_policy="compact"`` sets ``cleanup.policy``."""
    settings = {key.replace("_", "."): str(value) for key, value in config.items()}
    client = admin(broker)  # which must live until the answer is there
    made = client.create_topics([NewTopic(name, partitions, 1, config=settings)], request_timeout=PATIENCE)
    made[name].result(PATIENCE)
    return name


def admin(broker: Broker) -> AdminClient:
    """Return a client for administration."""
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def fill(
    broker: Broker,
    topic: str,
    records: Iterable[Content],
    partition: int | None = None,
    keys: Sequence[Content] | None = None,
) -> None:
    """Write records to one partition, or spread them by key or at random, and wait until the broker has all of them."""
    refused: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            refused.append(error)

    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 5})
    for number, record in enumerate(records):
        key = None if keys is None else keys[number]
        _produce(producer, topic, _bytes(record), _bytes(key), delivered, partition)
    assert producer.flush(PATIENCE) == 0, f"{topic} took not all records in {PATIENCE} s"
    assert not refused, f"{topic} refused {len(refused)} records, such as for: {refused[0]}"


def committed(broker: Broker, topic: str) -> list[Message]:
    """Return all committed records of a topic, by partition and offset."""
    with _reader(broker, enable_partition_eof=True) as consumer:
        reading = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions(broker, topic)]
        consumer.assign(reading)
        found: list[Message] = []
        ended: set[int] = set()
        while len(ended) < len(reading):
            message = consumer.poll(PATIENCE)
            assert message is not None, f"{topic} has no end in {PATIENCE} s"
            error = message.error()
            if error is None:
                found.append(_message(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition() or 0)
            else:
                raise KafkaException(error)
    return sorted(found, key=lambda message: (message.partition, message.offset))


@contextmanager
def next_committed(broker: Broker, topic: str) -> Iterator[Callable[[], Message]]:
    """Yield a function that waits for the first record that is committed from now on, and returns it."""
    ends = _ends(broker, topic, IsolationLevel.READ_COMMITTED)
    with _reader(broker) as consumer:
        consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in ends.items()])

        def wait() -> Message:
            message = consumer.poll(LONGEST)
            assert message is not None, f"nothing is committed to {topic} in {LONGEST} s"
            if (error := message.error()) is not None:
                raise KafkaException(error)
            return _message(message)

        yield wait


def table_of(messages: Iterable[Message]) -> dict[bytes | None, bytes]:
    """Return the table that upserts and tombstones make."""
    table: dict[bytes | None, bytes] = {}
    for message in messages:
        if message.value is None:
            table.pop(message.key, None)
        else:
            table[message.key] = message.value
    return table


def rows(broker: Broker, topic: str) -> list[dict[str, Any]]:
    """Return the rows of the table in a topic of JSON objects, from committed records."""
    return [json.loads(value) for value in table_of(committed(broker, topic)).values()]


def add_partitions(broker: Broker, topic: str, total: int) -> None:
    """Add partitions to a topic, up to ``total``, and wait until the broker lists them.

    Until then, it gives a new producer the former number of partitions, and that producer refuses records for the rest.
    """
    client = admin(broker)
    client.create_partitions([NewPartitions(topic, total)], request_timeout=PATIENCE)[topic].result(PATIENCE)
    wait_until(lambda: len(partitions(broker, topic)) == total, f"{topic} has {total} partitions", PATIENCE)


def partitions(broker: Broker, topic: str) -> list[int]:
    """Return the numbers of a topic's partitions."""
    return sorted(admin(broker).list_topics(topic, timeout=PATIENCE).topics[topic].partitions)


def groups(broker: Broker) -> list[str]:
    """Return the ids of all consumer groups."""
    client = admin(broker)
    return [group.group_id for group in client.list_consumer_groups(request_timeout=PATIENCE).result(PATIENCE).valid]


def open_transactions(broker: Broker, topic: str) -> dict[int, int]:
    """Return the number of offsets held back from readers by open transactions, for each partition with such."""
    ends = [_ends(broker, topic, level) for level in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED)]
    waiting = {partition: ends[0][partition] - ends[1][partition] for partition in ends[0]}
    return {partition: offsets for partition, offsets in waiting.items() if offsets}


def _reader(broker: Broker, **settings: Any) -> Consumer:
    """Return a consumer of committed records without a group."""
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
        }
        | {key.replace("_", "."): value for key, value in settings.items()}
    )


def _message(found: KafkaMessage) -> Message:
    headers = dict(found.headers() or [])
    return Message(found.key(), found.value(), headers, found.partition() or 0, found.offset() or 0)


def _ends(broker: Broker, topic: str, level: IsolationLevel) -> dict[int, int]:
    wanted = {TopicPartition(topic, number): OffsetSpec.latest() for number in partitions(broker, topic)}
    client = admin(broker)
    asked = client.list_offsets(wanted, isolation_level=level, request_timeout=PATIENCE)
    return {place.partition: answer.result(PATIENCE).offset for place, answer in asked.items()}


def _produce(
    producer: Producer,
    topic: str,
    value: bytes | None,
    key: bytes | None,
    delivered: Callable[[KafkaError | None, object], None],
    partition: int | None,
) -> None:
    while True:
        try:
            producer.produce(topic, value, key, -1 if partition is None else partition, on_delivery=delivered)
        except BufferError:
            producer.poll(1.0)  # until the broker has taken some
            continue
        producer.poll(0)
        return


def _bytes(content: Content) -> bytes | None:
    if isinstance(content, Mapping):
        content = json.dumps(content)
    return content.encode() if isinstance(content, str) else content
