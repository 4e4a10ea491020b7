"""A recorder of a query on a cluster: samples of its plan over time, and the batches in its driver's log."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kubernetes.client import ApiException, CoreV1Api
from urllib3.exceptions import HTTPError

from millrace_api.model.deployment import Placement
from millrace_api.model.plan import APPLIED_KEY, PLAN_KEY, Applied, Plan
from millrace_api.model.streamquery import PARTITIONER, QUERY_LABEL, ROLE_LABEL

PERIOD = 0.5
"""Seconds between two samples."""

_BATCH = re.compile(
    r"(?P<time>\S+) batch=(?P<number>\d+) rows=(?P<rows>\d+) .*?W=(?P<utilization>\S+) lag=(?P<lag>\d+) .*"
    r"plan=(?P<algorithm>\w+)/(?P<replicas>\d+)/(?P<workers>\d+)"
)


@dataclass(frozen=True)
class ClusterSample:
    """One sample: the current plan, and how far the query follows it.

    Attributes:
        time: seconds since 1970.
        rate: load in records/s.
        epoch, executors, replicas: of the plan.
        applied: epoch of the plan that the driver has acknowledged.
        ready: executors that take tasks, as the driver reports.
        placing: partitioner pods that are ready; 0 if replicas are tasks of the job.
    """

    time: float
    rate: float
    epoch: int
    executors: int
    applied: int
    ready: int
    replicas: int = 1
    placing: int = 0


@dataclass(frozen=True)
class RecordedBatch:
    """A finished batch: ``time`` is when it ended, ``utilization`` is W, and ``lag`` counts the waiting records."""

    time: float
    number: int
    rows: int
    utilization: float
    lag: int
    algorithm: str
    replicas: int
    workers: int


class Recorder:
    """A sampler of a query's plan that runs in its own thread until ``stop``.

    Args:
        api: a client of the cluster.
        namespace, name: namespace and name of the query.
        rate: returns the current load, in records/s.
        report: called with a line of text about every change.
    """

    def __init__(
        self, api: CoreV1Api, namespace: str, name: str, rate: Callable[[], float], report: Callable[[str], None]
    ) -> None:
        self.samples: list[ClusterSample] = []
        self._api, self._namespace, self._name = api, namespace, name
        self._rate, self._report = rate, report
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="recorder", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop sampling."""
        self._stopped.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._stopped.wait(PERIOD):
            try:
                config_map: Any = self._api.read_namespaced_config_map(
                    f"{self._name}-plan", self._namespace, _request_timeout=(5, 10)
                )
                plan = Plan.from_json(config_map.data[PLAN_KEY])
                placing = self._placing() if plan.placement is Placement.DEDICATED else 0
            except (ApiException, HTTPError):
                continue  # a busy API server must not end the recording
            self._take(config_map.data, plan, placing)

    def _placing(self) -> int:
        """Return the number of partitioner pods that are ready."""
        selector = f"{QUERY_LABEL}={self._name},{ROLE_LABEL}={PARTITIONER}"
        pods: Any = self._api.list_namespaced_pod(self._namespace, label_selector=selector, _request_timeout=(5, 10))
        return sum(
            any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions or ())
            for pod in pods.items
        )

    def _take(self, data: dict[str, str], plan: Plan, placing: int) -> None:
        applied = Applied.from_json(data[APPLIED_KEY]) if APPLIED_KEY in data else None
        epoch, ready = (applied.epoch, applied.executors_ready) if applied is not None else (0, 0)
        sample = ClusterSample(
            time.time(), self._rate(), plan.epoch, plan.executors, epoch, ready, plan.replicas, placing
        )
        before = self.samples[-1] if self.samples else None
        self.samples.append(sample)
        for line in _changes(before, sample, plan):
            self._report(line)


def batches(log: str) -> list[RecordedBatch]:
    """Return the batches in a driver's log, as ``kubectl logs --timestamps`` prints it."""
    return [
        RecordedBatch(
            time=_seconds(found["time"]),
            number=int(found["number"]),
            rows=int(found["rows"]),
            utilization=float(found["utilization"]),
            lag=int(found["lag"]),
            algorithm=found["algorithm"],
            replicas=int(found["replicas"]),
            workers=int(found["workers"]),
        )
        for found in map(_BATCH.match, log.splitlines())
        if found is not None
    ]


def to_json(samples: list[ClusterSample], finished: list[RecordedBatch], figures: object) -> str:
    """Return figures, samples and batches as JSON."""
    document = {"figures": figures, "samples": [vars(s) for s in samples], "batches": [vars(b) for b in finished]}
    return json.dumps(document, indent=1)


def _changes(before: ClusterSample | None, now: ClusterSample, plan: Plan) -> list[str]:
    lines = []
    if before is None or before.rate != now.rate:
        lines.append(f"load: {now.rate:,.0f} records/s")
    if before is None or before.epoch != now.epoch:
        lines.append(f"plan {now.epoch}: executors={plan.executors} n={plan.parallelism} m={plan.replicas}")
    if before is not None and before.applied != now.applied:
        lines.append(f"plan {now.applied} is acknowledged")
    if before is not None and before.ready != now.ready:
        lines.append(f"executors ready: {now.ready}")
    if before is not None and before.placing != now.placing:
        lines.append(f"partitioner replicas ready: {now.placing}")
    return lines


def _seconds(stamp: str) -> float:
    """Parse an RFC 3339 time with nanoseconds. Python reads only six of the digits."""
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d*", r"\1", stamp)).timestamp()
