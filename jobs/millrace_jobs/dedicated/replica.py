"""A replica of a partitioner: a process that works on one generation after another, as the driver instructs it.

Records and the offsets behind them are written in one transaction, so that each raw record is in the routed topic
exactly once, whenever a replica dies. Replicas of a query are a consumer group: when one comes or goes, Kafka assigns
the raw partitions again, all replicas begin at the committed offsets, and a transaction of an earlier assignment is
refused (KIP-447).
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass

from millrace_api.model.sources import SourceSpec
from millrace_jobs.dedicated.control_topic import ControlReader
from millrace_jobs.dedicated.directions import Directions
from millrace_jobs.dedicated.exchange import Exchange
from millrace_jobs.dedicated.generation import GenerationRun
from millrace_jobs.dedicated.instructions import Work, version_of
from millrace_jobs.dedicated.interval import IntervalWriter
from millrace_jobs.dedicated.metrics import ReplicaMetrics
from millrace_jobs.dedicated.placing import Placing
from millrace_jobs.dedicated.raw_reader import RawReader
from millrace_jobs.dedicated.status import ReplicaStatus
from millrace_jobs.dedicated.topics import Topics
from millrace_jobs.kafka.errors import BrokerErrors, patiently
from millrace_jobs.sources.kafka.source import KafkaSource

_WAIT_SECONDS = 0.2
"""Seconds for which one call waits, so that a replica soon notices that it is to end."""


@dataclass(frozen=True)
class ReplicaSpec:
    """What one replica of a query works on.

    Attributes:
        topics: names of the query's topics.
        source: the source that the query reads.
        definition: the source in the query's spec, which the driver's must equal.
        index: number of the replica; its transactions are this one's, so a second process with it fences the first.
        driver: id of the only driver that it works for; empty for any.
        cores: cores that its process may use.
    """

    topics: Topics
    source: KafkaSource
    definition: SourceSpec
    index: int
    driver: str = ""
    cores: float = math.inf


class PartitionerReplica:
    """A replica that runs until it is stopped; probes and metrics are read by other threads."""

    def __init__(self, spec: ReplicaSpec, status: ReplicaStatus, metrics: ReplicaMetrics) -> None:
        self._spec, self._status, self._metrics = spec, status, metrics
        self._errors = BrokerErrors()
        self._placing = Placing(spec.index)

    def run(self, stop: threading.Event) -> None:
        """Work until ``stop`` is set.

        Raises:
            MillraceError: Kafka fails permanently, or for longer than ``PATIENCE``, or another process has the index.
        """
        connection = self._spec.source.connection
        reader = ControlReader(self._spec.topics, connection)
        directions = Directions(reader, self._spec.driver)
        own = {"transactional.id": self._spec.topics.replica(self._spec.index), "error_cb": self._errors}
        writer = IntervalWriter(connection.settings() | own, self._spec.topics)
        try:
            exchange = Exchange(self._spec.topics, connection, self._spec.index)
            stopped: Work | None = None
            while not stop.is_set():
                for record in directions.follow(_WAIT_SECONDS):
                    exchange.received(record, time.time())
                work = self._next_work(directions)
                if work is not None and work != stopped:  # one that was released can go on
                    # Not before: this fences the replica of another run, whose driver is to learn first why.
                    patiently(writer.require_producer, "beginning to write", connection)
                    exchange.interval = work.interval
                    if self._run_generation(work, directions, writer, exchange, stop):
                        stopped = work
        finally:
            reader.close()

    def _next_work(self, directions: Directions) -> Work | None:
        """Return the work that the driver wants, if this replica can do it."""
        current = directions.current
        if current is None:
            self._status.waits("for the driver's instructions")
            return None
        work = current[0]
        if version_of(self._spec.definition, work.projection) != work.version:
            self._status.waits("for the driver to run this version of the query")
            return None
        return work

    def _run_generation(
        self,
        work: Work,
        directions: Directions,
        writer: IntervalWriter,
        exchange: Exchange,
        stop: threading.Event,
    ) -> bool:
        """Work on one generation; return whether a record stops it."""
        raw = RawReader(self._spec.source, self._spec.topics, work, self._errors)
        try:
            return GenerationRun(
                source=self._spec.source,
                index=self._spec.index,
                work=work,
                directions=directions,
                raw=raw,
                writer=writer,
                placing=self._placing,
                exchange=exchange,
                status=self._status,
                metrics=self._metrics,
                errors=self._errors,
                cores=self._spec.cores,
            ).run(stop)
        finally:
            raw.close()
