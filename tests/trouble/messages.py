"""Topics of cases on the broker whose address is in ``MILLRACE_TROUBLE_BROKER``."""

from __future__ import annotations

import hashlib
import os
import random
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from .avro import avro_messages
from .tables import DELETED, KEY, TIMESTAMP, Row, Table
from .writers import Spelling, json_value, record_lines

BROKER = "MILLRACE_TROUBLE_BROKER"
_PATIENCE = 60.0
_ERRORS = 2
"""The level of what clients log."""
_CONFIG = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}
"""Messages of any time stay."""
_PROCESS = uuid.uuid4().hex[:8]
_HEADERS = (None, None, [("a", b"1")], [("a", b""), ("a", None)], [("größe", b"\xff")])


@dataclass(frozen=True)
class Cluster:
    """The broker of the cases."""

    bootstrap: str


@cache
def cluster() -> Cluster:
    """Return the broker, which has to run."""
    return Cluster(os.environ[BROKER])


def topic_of(folder: Path, name: str) -> str:
    """Return the topic of a source or a sink of the run in a folder."""
    return f"{_PROCESS}-{hashlib.sha1(bytes(folder.absolute())).hexdigest()[:12]}-{name}"


def make_topic(topic: str, partitions: int = 1, *, compacted: bool = False) -> None:
    """Create a topic."""
    config = _CONFIG | ({"cleanup.policy": "compact"} if compacted else {})
    client = _client()
    made = client.create_topics([NewTopic(topic, partitions, 1, config=config)], request_timeout=_PATIENCE)
    made[topic].result(_PATIENCE)


def remove_topics(topics: Sequence[str]) -> None:
    """Delete topics, as far as they exist."""
    if topics:
        client = _client()
        for gone in client.delete_topics(list(topics), request_timeout=_PATIENCE).values():
            with suppress(KafkaException):  # a run that was refused may have made none
                gone.result(_PATIENCE)


def _client() -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster().bootstrap, "log_level": _ERRORS})


@dataclass(frozen=True)
class Message:
    """A message to be written; ``time`` is in milliseconds, and 0 stands for now."""

    key: bytes | None
    value: bytes | None
    time: int = 0


def messages_of(table: Table, spelling: Spelling, numbers: Iterable[int]) -> Iterator[Message]:
    """Yield the messages of these files of a table, and for a stream tombstones, which are no records."""
    places = {column.name: index for index, column in enumerate(table.columns)}
    for number in numbers:
        chance = random.Random(spelling.seed + number)
        for row in table.files[number]:
            if DELETED in places and row[places[DELETED]]:
                yield _delete(table, row, spelling, chance)
                continue
            key = row[places[KEY]] if KEY in places else chance.choice([None, b"", b"\xff", b"k"])
            if table.key:  # a compacted topic takes no message without a key
                key = _json_key(table, row, spelling, {table.key}, chance)
            time = row[places[TIMESTAMP]] // 1000 if TIMESTAMP in places else 0
            value, *broken = _values(table, row, spelling, chance)
            yield Message(key, value, time)
            yield from (Message(b"k", each) for each in broken)
            if not table.key and chance.random() < 0.05:
                yield Message(b"k", None)


def _values(table: Table, row: Row, spelling: Spelling, chance: random.Random) -> Iterator[bytes]:
    """Yield the value of a row's message, and broken ones that follow it."""
    if spelling.format == "avro":
        yield from avro_messages(table, row, spelling, chance)
    else:
        yield from (line.encode() for line in record_lines(table.in_files, [row], spelling, chance))


def _delete(table: Table, row: Row, spelling: Spelling, chance: random.Random) -> Message:
    """Return a tombstone with the time of its row, in its key or as the time of the message."""
    named = {table.key, *([table.time.name] if chance.random() < 0.5 else [])}
    return Message(_json_key(table, row, spelling, named, chance), None, row[0] // 1000)


def _json_key(table: Table, row: Row, spelling: Spelling, named: set[str], chance: random.Random) -> bytes:
    """Return the columns with these names as a JSON object."""
    fields = [
        f'"{column.name}": {json_value(column.kind, value, spelling, chance)}'
        for column, value in zip(table.columns, row, strict=True)
        if column.name in named
    ]
    return f"{{{', '.join(fields)}}}".encode()


def write_messages(topic: str, messages: Iterable[Message], partitions: int, chance: random.Random) -> None:
    """Write messages, each to a partition at random, and wait until the broker has all of them."""
    refused: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            refused.append(error)

    producer = Producer({"bootstrap.servers": cluster().bootstrap, "enable.idempotence": True, "log_level": _ERRORS})
    for message in messages:
        place = {"partition": chance.randrange(partitions), "headers": chance.choice(_HEADERS)}
        producer.produce(topic, message.value, message.key, timestamp=message.time, on_delivery=delivered, **place)
    assert producer.flush(_PATIENCE) == 0, f"{topic} took not all messages in {_PATIENCE} s"
    assert not refused, f"{topic} refused messages: {refused[0]}"
