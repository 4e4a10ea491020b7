"""Targets for Prometheus in these tests: a job's endpoint with the real metrics of invented batches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge

from millrace_jobs.dedicated.replica_metrics import ReplicaMetrics
from millrace_jobs.run.job_metrics import JobMetrics
from millrace_jobs.run.observer import Health
from millrace_operator.metrics_source.client import Prometheus
from millrace_operator.metrics_source.job_metrics import newest_answer
from millrace_operator.scaling.observation import Answer
from millrace_operator.telemetry.metrics import OperatorMetrics
from millrace_support.http_server import HttpServer

PATIENCE = 120.0
"""Seconds to wait until Prometheus sees a change on a busy machine."""

PODS = "q-driver-0|q-partitioner-[0-9]+"
"""The pods of the query ``q``."""


class Driver:
    """A driver's endpoint: the address and labels of its target, and the metrics that it serves."""

    def __init__(self, registry: CollectorRegistry, namespace: str, pod: str) -> None:
        health = Health(allowed_silence=60)
        self._server = HttpServer(registry, health.liveness, health.readiness)
        self._server.start()
        self.address = self._server.url.removeprefix("http://")
        self.labels = {"__meta_kubernetes_namespace": namespace, "__meta_kubernetes_pod_name": pod}

    def close(self) -> None:
        """Stop serving."""
        self._server.close()


@contextmanager
def driver(
    metrics: JobMetrics | ReplicaMetrics | OperatorMetrics, namespace: str, pod: str = "q-driver-0"
) -> Iterator[Driver]:
    """Serve the metrics of a driver, of a partitioner replica or of an operator during the ``with`` block."""
    started = Driver(metrics.registry, namespace, pod)
    try:
        yield started
    finally:
        started.close()


@contextmanager
def kubelet(namespace: str, containers: dict[tuple[str, str], float]) -> Iterator[Driver]:
    """Serve cAdvisor's processor seconds by pod and container, and a memory for each, with the pods' labels applied."""
    registry = CollectorRegistry()
    name = "container_cpu_usage_seconds"
    seconds = Counter(name, "Processor time.", ("namespace", "pod", "container"), registry=registry)
    name = "container_memory_working_set_bytes"
    memory = Gauge(name, "Memory.", ("namespace", "pod", "container"), registry=registry)
    for (pod, container), value in containers.items():
        seconds.labels(namespace, pod, container).inc(value)
        memory.labels(namespace, pod, container).set(300e6)
    started = Driver(registry, "", "")
    try:
        yield started
    finally:
        started.close()


def targets(*drivers: Driver) -> dict[str, dict[str, str]]:
    """Return the targets in the form that the lab's Prometheus takes."""
    return {one.address: one.labels for one in drivers}


def answer_with(
    prometheus: Prometheus, namespace: str, query: str = "q", executors: int | None = None, **wanted: float | None
) -> Answer:
    """Return the first answer with the ``wanted`` values."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = newest_answer(prometheus, namespace, query, PODS, time.time(), executors)
        if found is not None and all(getattr(found, name) == value for name, value in wanted.items()):
            return found
        assert time.monotonic() < deadline, f"no answer with {wanted}, but {found}"
        time.sleep(0.1)
