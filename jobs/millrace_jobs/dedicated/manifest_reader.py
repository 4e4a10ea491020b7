"""The job's reader of manifests: in order, as replicas commit them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

from millrace_api.errors import Problem, TransientError
from millrace_jobs.dedicated.manifest import Manifest
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.kafka.errors import PATIENCE, BrokerErrors, is_transient, kafka_problem

_AT_ONCE = 1_000
"""Manifests taken in one call."""

_GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)

_WAIT_SECONDS = 0.005
"""Seconds for which one call waits."""


class PlacedManifest(NamedTuple):
    """A manifest with its offset in the topic of manifests."""

    offset: int
    manifest: Manifest


class ManifestReader:
    """Reads the manifests of one generation from an offset on; those of others are passed over.

    Methods raise MillraceError if Kafka fails permanently, or for longer than ``PATIENCE``.
    """

    def __init__(self, topic: str, connection: Connection, generation: str, begin: int) -> None:
        self._topic = topic
        self._connection = connection
        self._generation = generation
        self._errors = BrokerErrors()
        settings: dict[str, object] = {
            **connection.settings(),
            "group.id": topic,  # no group is joined
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",  # manifests that are gone must never be skipped silently
            "fetch.wait.max.ms": 100,
            "fetch.queue.backoff.ms": 5,
        }
        self._consumer = Consumer(settings | {"error_cb": self._errors})
        self._consumer.assign([TopicPartition(topic, 0, begin)])
        self._failing_since: float | None = None
        self._newest: dict[int, int] = {}  # the last heartbeat, by replica
        self.waiting: deque[PlacedManifest] = deque()
        """Manifests that are in no batch before the next one, in order."""

    def poll(self, seconds: float = 0.0) -> bool:
        """Take in what has come; wait for the first if there is nothing. Return whether there was anything."""
        came = False
        for message in self._consumer.consume(_AT_ONCE, seconds):
            error = message.error()
            if error is not None:
                self._note(error)
                continue
            came, self._failing_since = True, None
            manifest = Manifest.of(message.value() or b"")
            if manifest.generation == self._generation:
                self._newest[manifest.replica] = manifest.heartbeat
                self.waiting.append(PlacedManifest(message.offset() or 0, manifest))
        return came

    def drop_before(self, offset: int) -> None:
        """Forget the manifests before this offset, which are in a batch that was begun."""
        while self.waiting and self.waiting[0].offset < offset:
            self.waiting.popleft()

    def poll_until_due(self, batch: int, replicas: Collection[int], until: float) -> None:
        """Take in what has come, and wait for the manifests of an interval.

        Args:
            batch: number of the interval.
            replicas: those to wait for.
            until: the time, in seconds since 1970, from which on not to wait.
        """
        self.poll()
        while time.time() < until and any(self._newest.get(replica, 0) < batch for replica in replicas):
            self.poll(_WAIT_SECONDS)

    def close(self) -> None:
        """Release the consumer."""
        self._consumer.close()

    def _note(self, error: KafkaError) -> None:
        if error.code() in _GONE:
            message = f"topic {self._topic} no longer has manifests that no batch has read"
            raise TransientError(Problem(message, "their records are placed again from the source's topics"))
        self._failing_since = self._failing_since or time.monotonic()
        if not is_transient(error) or time.monotonic() > self._failing_since + PATIENCE:
            raise kafka_problem(self._errors.cause_of(error), f"reading topic {self._topic}", self._connection)
