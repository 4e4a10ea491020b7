"""``millrace partitioner``: one replica in this process, with its metrics and probes.

Records and the offsets behind them are written in one transaction, so that each raw record is in the routed topic
exactly once, whenever a replica dies. Replicas of a query are a consumer group: when one comes or goes, Kafka assigns
the raw partitions again, all replicas begin at the committed offsets, and a transaction of an earlier assignment is
refused (KIP-447).
"""

from __future__ import annotations

import math
import os
import sys
import threading
from pathlib import Path

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.deployment import CPU_LIMIT_VARIABLE
from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.loading import load_queries
from millrace_jobs.dedicated.coordinator import topics_of
from millrace_jobs.dedicated.generation import GenerationRun
from millrace_jobs.dedicated.instructions import Work, version_of
from millrace_jobs.dedicated.replica import PartitionerReplica, ReplicaStatus
from millrace_jobs.dedicated.replica_metrics import ReplicaMetrics
from millrace_jobs.kafka.errors import PATIENCE, patiently
from millrace_jobs.process.signals import on_shutdown_request
from millrace_jobs.sources.connector import open_source
from millrace_jobs.sources.kafka.source import KafkaSource
from millrace_support.http_server import HttpServer

_WAIT_SECONDS = 0.2
"""Seconds for which one call waits, so that a replica soon notices that it is to end."""


def run_replica(file: Path, index: int, host: str, metrics_port: int, driver: str = "") -> None:
    """Run replica ``index`` of the query in a file until SIGTERM or Ctrl-C.

    With ``driver``, the replica works for that driver alone, and also ends when stdin closes.

    Raises:
        MillraceError: the query has no source that replicas can read, Kafka fails for good or for longer than
            ``PATIENCE``, or another process has the index.
    """
    queries = load_queries(file, resolved=True)
    if len(queries) != 1:
        message = f"the file has {len(queries)} queries"
        raise MillraceError(Problem(message, "give a partitioner a file with one", str(file)))
    query = queries[0]
    name, source = _source_of(query)
    status = ReplicaStatus(allowed_silence=5 * PATIENCE)
    metrics = ReplicaMetrics(query.name, index, query.spec.batch_interval.seconds)
    stop = threading.Event()
    on_shutdown_request(lambda _: stop.set())
    if driver:
        threading.Thread(target=_stop_at_end_of_input, args=(stop,), daemon=True).start()
    server = HttpServer(metrics.registry, status.liveness, status.readiness, host, metrics_port)
    server.start()
    try:
        print(f"partitioner={query.name} replica={index} metrics={server.url}/metrics", flush=True)
        milli = os.environ.get(CPU_LIMIT_VARIABLE)
        cores = int(milli) / 1000 if milli else math.inf
        definition = query.spec.sources[name]
        _work(PartitionerReplica(topics_of(query), source, definition, index, driver, cores, status, metrics), stop)
    finally:
        server.close()


def _source_of(query: StreamQuery) -> tuple[str, KafkaSource]:
    """Return the source that replicas read: a query that they can serve reads one."""
    streams = {name: source for name, source in query.spec.sources.items() if not source.is_static}
    python = query.spec.query.python
    name = python.source if python is not None and python.source is not None else next(iter(streams))
    opened = open_source(name, streams[name], Path("unused"), Path("unused"))
    if not isinstance(opened, KafkaSource):
        message = f"source {name} is not a topic, which a partitioner reads"
        raise MillraceError(Problem(message, "write partitioner.placement: Inline", field=f"spec.sources.{name}"))
    return name, opened


def _work(replica: PartitionerReplica, stop: threading.Event) -> None:
    """Work on one generation after another, as the driver instructs, until ``stop`` is set."""
    stopped: Work | None = None
    try:
        while not stop.is_set():
            for key, value in replica.control.follow(_WAIT_SECONDS):
                replica.peers.received(key, value)
            work = _next_work(replica)
            if work is None or work == stopped:  # one that was released can go on
                continue
            # Not before: this fences the replica of another run, whose driver is to learn first why.
            patiently(replica.writer.require_producer, "beginning to write", replica.source.connection)
            if GenerationRun(replica, work).run(stop):
                stopped = work
    finally:
        replica.control.close()


def _next_work(replica: PartitionerReplica) -> Work | None:
    """Return the work that the driver wants, if this replica can do it."""
    current = replica.control.current
    if current is None:
        replica.status.waits("for the driver's instructions")
        return None
    work = current[0]
    if version_of(replica.definition, work.projection) != work.version:
        replica.status.waits("for the driver to run this version of the query")
        return None
    return work


def _stop_at_end_of_input(stop: threading.Event) -> None:
    while sys.stdin.buffer.read(1 << 10):
        pass
    stop.set()
