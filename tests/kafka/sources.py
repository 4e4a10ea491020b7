"""Kafka sources as a query opens them, and the contents of their slices."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from lab.kafka import Broker
from lab.topics import PATIENCE, admin, open_transactions
from millrace_api.model.sources import SourceSpec
from millrace_jobs.sources.base import Position, Rejected, Source
from millrace_jobs.sources.connector import open_source
from millrace_jobs.sources.kafka.source import KafkaSource


def opened(address: Broker | str, state: Path, kafka: Mapping[str, Any], **spec: Any) -> KafkaSource:
    """Open the source ``trips`` of a spec, which reads raw messages unless ``spec`` says otherwise."""
    servers = address if isinstance(address, str) else address.bootstrap
    document = {"kafka": {"bootstrapServers": servers, **kafka}, **({"format": "raw"} | spec)}
    source = open_source("trips", SourceSpec.model_validate(document), state, state)
    assert isinstance(source, KafkaSource)
    return source


def values(source: KafkaSource, start: Position, end: Position, replicas: int = 1) -> list[list[Any]]:
    """Return the values of the first column by slice, read as in a task, by a pickled copy of the source."""
    return [[row[0] for row in rows] for rows, _ in slices(source, start, end, replicas)]


def slices(
    source: Source, start: Position, end: Position, replicas: int = 1
) -> Iterator[tuple[list[tuple[Any, ...]], int]]:
    """Yield the rows and the number of rejected records of each slice."""
    task = pickle.loads(pickle.dumps(source))
    for number, piece in enumerate(source.slices(start, end, replicas)):
        rows: list[tuple[Any, ...]] = []
        rejected = 0
        for block in task.read(pickle.loads(pickle.dumps(piece)), f"0-{number}"):
            if isinstance(block, Rejected):
                rejected += block.records
            else:
                rows += zip(*block.to_pydict().values(), strict=True)
        yield rows, rejected


def everything(source: KafkaSource, replicas: int = 1) -> list[Any]:
    """Return the first column of all records, read in one batch from the beginning."""
    start = source.initial()
    end = source.latest(start, everything=True)
    return [value for piece in values(source, start, end, replicas) for value in piece]


@contextmanager
def transaction(broker: Broker, topic: str, *, commit: bool = True) -> Iterator[Producer]:
    """Yield a producer in a transaction. Commit or abort it at the end, and wait until the topic shows that."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    yield producer
    producer.flush(PATIENCE)
    if commit:
        producer.commit_transaction(PATIENCE)
    else:
        producer.abort_transaction(PATIENCE)
    deadline = time.monotonic() + PATIENCE
    while open_transactions(broker, topic):  # the coordinator writes the markers after it has answered
        assert time.monotonic() < deadline, f"a transaction on {topic} does not end"
        time.sleep(0.01)


def remove(broker: Broker, topic: str) -> None:
    """Delete a topic, and wait until no client sees it any more."""
    client = admin(broker)
    client.delete_topics([topic])[topic].result(PATIENCE)
    deadline = time.monotonic() + PATIENCE
    while topic in client.list_topics(timeout=PATIENCE).topics:
        assert time.monotonic() < deadline, f"{topic} is still there"
        time.sleep(0.2)
