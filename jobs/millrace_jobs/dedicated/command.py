"""``millrace partitioner``: one replica in this process, with its metrics and probes."""

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
from millrace_jobs.dedicated.metrics import ReplicaMetrics
from millrace_jobs.dedicated.replica import PartitionerReplica, ReplicaSpec
from millrace_jobs.dedicated.status import ReplicaStatus
from millrace_jobs.kafka.errors import PATIENCE
from millrace_jobs.signals import on_shutdown_request
from millrace_jobs.sources.connector import open_source
from millrace_jobs.sources.kafka.source import KafkaSource
from millrace_support.http_server import HttpServer


def run_replica(file: Path, index: int, host: str, metrics_port: int, driver: str = "") -> None:
    """Run replica ``index`` of the query in a file until SIGTERM or Ctrl-C.

    With ``driver``, the replica works for that driver alone, and also ends when stdin closes.

    Raises:
        MillraceError: the query has no source that replicas can read, or Kafka fails for good.
    """
    query = _only_query(file)
    spec = _replica_spec(query, index, driver)
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
        PartitionerReplica(spec, status, metrics).run(stop)
    finally:
        server.close()


def _only_query(file: Path) -> StreamQuery:
    queries = load_queries(file, resolved=True)
    if len(queries) != 1:
        message = f"the file has {len(queries)} queries"
        raise MillraceError(Problem(message, "give a partitioner a file with one", str(file)))
    return queries[0]


def _replica_spec(query: StreamQuery, index: int, driver: str) -> ReplicaSpec:
    """Return what the replica works on. A query that replicas can serve reads one source."""
    streams = {name: source for name, source in query.spec.sources.items() if not source.is_static}
    python = query.spec.query.python
    name = python.source if python is not None and python.source is not None else next(iter(streams))
    opened = open_source(name, streams[name], Path("unused"), Path("unused"))
    if not isinstance(opened, KafkaSource):
        message = f"source {name} is not a topic, which a partitioner reads"
        raise MillraceError(Problem(message, "write partitioner.placement: Inline", field=f"spec.sources.{name}"))
    return ReplicaSpec(topics_of(query), opened, query.spec.sources[name], index, driver, _cores())


def _cores() -> float:
    """Return the cores that this process may use; infinite if it is in no container of the operator's."""
    milli = os.environ.get(CPU_LIMIT_VARIABLE)
    return int(milli) / 1000 if milli else math.inf


def _stop_at_end_of_input(stop: threading.Event) -> None:
    while sys.stdin.buffer.read(1 << 10):
        pass
    stop.set()
