"""Consumers that a process keeps from one slice to the next.

To connect, log in and learn who leads the partitions takes longer than to read the slice of a small batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer

from millrace_jobs.kafka.errors import Complaints


@dataclass(frozen=True)
class ReadingConsumer:
    """A consumer, and the errors of its brokers that it has reported during the present slice."""

    consumer: Consumer
    complaints: Complaints


_idle: dict[int, ReadingConsumer] = {}
"""The unused consumer, one at most, by its settings."""


@contextmanager
def consumer_of(settings: dict[str, Any]) -> Iterator[ReadingConsumer]:
    """A consumer with these settings, nothing assigned to it; kept afterwards, unless the reading fails.

    Raises:
        KafkaException: librdkafka does not take the settings.
    """
    # Secrets are among the settings: where one has changed, the consumer that has logged in by the old one goes.
    name = hash(frozenset(settings.items()))
    reading = _idle.pop(name, None) or _made(settings)
    try:
        yield reading
        # One that was paused when it was given up would, for the next slice, be fetched only after a second.
        reading.consumer.resume(reading.consumer.assignment())
        reading.consumer.unassign()
    except BaseException:
        reading.consumer.close()
        raise
    reading.complaints.forget()
    _keep(name, reading)


def _made(settings: dict[str, Any]) -> ReadingConsumer:
    complaints = Complaints()
    return ReadingConsumer(Consumer(settings | {"error_cb": complaints}), complaints)


def _keep(name: int, reading: ReadingConsumer) -> None:
    others = list(_idle.values())
    _idle.clear()
    _idle[name] = reading
    for other in others:
        other.consumer.close()
