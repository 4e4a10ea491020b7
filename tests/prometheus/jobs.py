"""What Prometheus scrapes in these tests: the endpoint of a job, which has the real metrics of made-up batches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter

from millrace_jobs.run.metrics import JobMetrics
from millrace_jobs.run.observer import Health
from millrace_operator.metrics_source.client import Prometheus
from millrace_operator.metrics_source.job_metrics import newest_answer
from millrace_operator.scaling.observation import Answer
from millrace_support.http_server import HttpServer

PATIENCE = 120.0
"""Seconds that Prometheus may take to see something on a busy machine."""


class Driver:
    """The endpoint of a driver: address and labels of its target, and the metrics that it shows."""

    def __init__(self, registry: CollectorRegistry, namespace: str, pod: str) -> None:
        health = Health(allowed_silence=60)
        self._server = HttpServer(registry, health.liveness, health.readiness)
        self._server.start()
        self.address = self._server.url.removeprefix("http://")
        self.labels = {"__meta_kubernetes_namespace": namespace, "__meta_kubernetes_pod_name": pod}

    def close(self) -> None:
        """Go away."""
        self._server.close()


@contextmanager
def driver(metrics: JobMetrics, namespace: str, pod: str = "q-driver-0") -> Iterator[Driver]:
    """A driver with these metrics, until the end."""
    started = Driver(metrics.registry, namespace, pod)
    try:
        yield started
    finally:
        started.close()


@contextmanager
def kubelet(namespace: str, containers: dict[tuple[str, str], float]) -> Iterator[Driver]:
    """What cAdvisor says of processor seconds, by pod and container; it has the pods' labels already."""
    registry = CollectorRegistry()
    name = "container_cpu_usage_seconds"
    seconds = Counter(name, "Processor time.", ("namespace", "pod", "container"), registry=registry)
    for (pod, container), value in containers.items():
        seconds.labels(namespace, pod, container).inc(value)
    started = Driver(registry, "", "")
    try:
        yield started
    finally:
        started.close()


def targets(*drivers: Driver) -> dict[str, dict[str, str]]:
    """As the lab's Prometheus takes them."""
    return {one.address: one.labels for one in drivers}


def answer_with(
    prometheus: Prometheus, namespace: str, query: str = "q", executors: int | None = None, **wanted: float | None
) -> Answer:
    """The first answer that says this; what is asked of Prometheus meanwhile does not matter."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = newest_answer(prometheus, namespace, query, time.time(), executors)
        if found is not None and all(getattr(found, name) == value for name, value in wanted.items()):
            return found
        assert time.monotonic() < deadline, f"no answer with {wanted}, but {found}"
        time.sleep(0.1)
