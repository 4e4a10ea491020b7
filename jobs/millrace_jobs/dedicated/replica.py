"""A replica of a partitioner: what its process keeps while it works on one generation after another."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

from millrace_api.model.sources import SourceSpec
from millrace_jobs.dedicated.control_topic import ControlReader
from millrace_jobs.dedicated.interval import IntervalWriter
from millrace_jobs.dedicated.peers import Peers
from millrace_jobs.dedicated.placing import Placing
from millrace_jobs.dedicated.replica_metrics import ReplicaMetrics
from millrace_jobs.dedicated.topics import Topics
from millrace_jobs.kafka.errors import BrokerErrors
from millrace_jobs.sources.kafka.source import KafkaSource
from millrace_support.http_server import ProbeResult


class ReplicaStatus:
    """Liveness and readiness of a replica, as its loop reports them and the probes read them; thread-safe.

    Args:
        allowed_silence: seconds without a sign of life after which the replica counts as hung; longer than any call
            to Kafka is retried.
        clock: monotonic clock, in seconds.
    """

    def __init__(self, allowed_silence: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._allowed_silence = allowed_silence
        self._clock = clock
        self._lock = Lock()
        self._last_sign = clock()
        self._is_ready = False
        self._text = "starting"

    def works(self, text: str = "working") -> None:
        """Report that the replica has joined the group of its generation."""
        self._set(text, is_ready=True)

    def waits(self, reason: str) -> None:
        """Report that the replica cannot work yet: ``waiting`` for this reason."""
        self._set(f"waiting {reason}", is_ready=False)

    def failed(self, reason: str) -> None:
        """Report that the replica cannot go on with its work; the driver reports it, too."""
        self._set(f"failed: {reason}", is_ready=False)

    def liveness(self) -> ProbeResult:
        """Report whether the replica is alive."""
        with self._lock:
            silence = self._clock() - self._last_sign
            if silence > self._allowed_silence:
                return ProbeResult(False, f"hung: no sign of life for {silence:.0f} s")
            return ProbeResult(True, self._text)

    def readiness(self) -> ProbeResult:
        """Report whether the replica works."""
        with self._lock:
            return ProbeResult(self._is_ready, self._text)

    def _set(self, text: str, *, is_ready: bool) -> None:
        with self._lock:
            self._text, self._is_ready = text, is_ready
            self._last_sign = self._clock()


@dataclass
class PartitionerReplica:
    """One replica of a query, with its clients of Kafka and its partitioner.

    Attributes:
        definition: the source in the query's spec, which the driver's must equal.
        index: number of the replica; its transactions are this one's, so a second process with it fences the first.
        driver: id of the only driver that it works for; empty for any.
        cores: cores that its process may use.
        errors: the broker errors of its clients.
    """

    topics: Topics
    source: KafkaSource
    definition: SourceSpec
    index: int
    driver: str
    cores: float
    status: ReplicaStatus
    metrics: ReplicaMetrics
    errors: BrokerErrors = field(default_factory=BrokerErrors)

    def __post_init__(self) -> None:
        connection = self.source.connection
        self.placing = Placing(self.index)
        self.control = ControlReader(self.topics, connection, self.driver)
        self.peers = Peers(self.topics.control, connection, self.index)
        own = {"transactional.id": self.topics.replica(self.index), "error_cb": self.errors}
        self.writer = IntervalWriter(connection.settings() | own, self.topics)
