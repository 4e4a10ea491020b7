"""Consumers that a process reuses from one slice to the next.

Connecting, logging in and finding the partition leaders takes longer than reading the slice of a small micro-batch.
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
    """A consumer, and the broker errors that it has reported during the current slice."""

    consumer: Consumer
    complaints: Complaints


_idle: dict[int, ReadingConsumer] = {}
"""The idle consumer, at most one, by the hash of its settings."""


@contextmanager
def consumer_of(settings: dict[str, Any]) -> Iterator[ReadingConsumer]:
    """Provide a consumer with these settings and no assignment; keep it for reuse unless reading fails.

    Raises:
        KafkaException: librdkafka rejects the settings.
    """
    # The settings include secrets, so a consumer that logged in with an outdated secret is not reused.
    name = hash(frozenset(settings.items()))
    reading = _idle.pop(name, None) or _made(settings)
    try:
        yield reading
        # A partition that stays paused would be fetched for the next slice only after a second.
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
