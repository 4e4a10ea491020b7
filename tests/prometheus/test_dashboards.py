"""Every question of the dashboards, put to a real Prometheus that scrapes an operator, drivers, replicas and a kubelet."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from builders import PIN, a_batch
from lab.alerts import faster_rules
from lab.waiting import wait_until
from millrace_api.model.memory_use import MemoryPart
from millrace_jobs.dedicated.replica_metrics import ReplicaMetrics
from millrace_jobs.pipeline.arrivals import RecordLatencies
from millrace_jobs.process.used_memory import UsedMemory
from millrace_jobs.run.job_metrics import JobMetrics
from millrace_jobs.run.table_refresh import TableState
from millrace_jobs.selection.selector import SwitchOutcome
from millrace_operator.metrics_source.client import Prometheus
from millrace_operator.telemetry import metrics as operator_metrics
from millrace_operator.telemetry.metrics import OperatorMetrics
from millrace_operator.telemetry.query_metrics import QueryRow
from placements import placement_sketch
from unit.monitoring.sources import dashboards, expressions

from .jobs import PATIENCE, driver, kubelet, targets

soon = partial(wait_until, seconds=PATIENCE)

pytestmark = [pytest.mark.prometheus, pytest.mark.timeout(1800)]

FASTER = 60.0
BATCH = a_batch(
    seconds=1.7,
    waiting=900,
    behind={("rides", "rides-3"): 700},
    latencies=RecordLatencies(np.array([0.5]), np.array([100])),
    placement=placement_sketch(np.array([0, 1], np.int32), np.arange(2, dtype=np.uint64), 4),
)

UNANSWERED = {
    ("query", "Firing alerts"),
    ("query", "What was wrong, and when?"),
    ("query", "What fails?"),
}
"""Panels with a question that has no answer while all is well."""


def an_operator() -> OperatorMetrics:
    """Return the metrics of an operator that leads, with a query that runs and one that never has."""
    metrics = OperatorMetrics()
    metrics.watches.of("pods", None).failed()
    executors = {"wanted": 2, "ready": 1, "pending": 1}
    plan = {"executors": 2, "workers": 4, "replicas": 2}
    ready, cores = (("Ready", "True", "Running"),), {"driver": 1.0, "executor": 4.0}
    rows = [
        QueryRow(("ns", "q"), "Running", "hash", "Active", "Inline", ready, executors, plan, cores=cores),
        QueryRow(("ns", "new"), "Pending", "", "Active", "", (("Ready", "False", "InvalidQuery"),), {}, {}),
    ]
    metrics.show(
        queue_depth=lambda: 0,
        phases=lambda: ["Running", "Pending"],
        queries=lambda: rows,
        leads=lambda: True,
        canary_age=lambda: 12.0,
        canary_path=lambda: 0.5,
        kept_bytes=lambda: {"cabs": 1024},
    )
    return metrics


class Fleet:
    """An operator, a driver that has moved to another pod, replicas and a kubelet, scraped by a Prometheus with the rules."""

    def __init__(self, stack: ExitStack, start, connect, folder: Path) -> None:
        self.operator = an_operator()
        tables = {"zones": TableState(rows=3, current_at=time.time(), failures=0, interval=300.0)}
        self.jobs = [JobMetrics("q", checkpoint=folder, tables=lambda: tables) for _ in range(2)]
        self.replicas = [ReplicaMetrics("q", number, 2.0) for number in range(2)]
        containers = {("q-driver-0", "driver"): 10.0, ("q-0a1b2c-exec-1", "executor"): 20.0}
        served = [
            stack.enter_context(each)
            for each in (
                driver(self.operator, "millrace", "millrace-operator-0"),
                *(driver(job, "ns") for job in self.jobs),
                *(driver(one, "ns", f"q-partitioner-{number}") for number, one in enumerate(self.replicas)),
                kubelet("ns", containers),
            )
        ]
        server = start(targets(*served), scrape_interval="500ms", rules=faster_rules(FASTER))
        self.prometheus: Prometheus = connect(server)
        self.epoch = 0

    def work(self) -> None:
        """Finish a batch and a step, so that counters increase."""
        self.epoch += 1
        for job in self.jobs:
            job.record(replace(BATCH, pin=replace(PIN, epoch=self.epoch // 4)))
            job.record_choice([SwitchOutcome(1, "hash", 1.5, 1.0)], None)
            job.record_gc({"driver": 0.01, "executors": 0.02})
            job.record_memory(
                {
                    "driver": {MemoryPart.HEAP: UsedMemory(300, 700)},
                    "executors": {MemoryPart.BESIDE_HEAP: UsedMemory(300, 700)},
                }
            )
        for one in self.replicas:
            one.paused(0.1)
        self.operator.retried()
        with self.operator.reconcile():
            self.operator.requested("GET", "pods", "429", 0.1)
        self.operator.waited(0.1)
        self.operator.decided("AtCapacity")
        self.operator.predicted(0.2)
        time.sleep(0.2)

    def unanswered(self) -> set[tuple[str, str, int]]:
        """Return dashboard, title and number of the questions that have no answer now."""
        self.work()
        return {
            (name, panel["title"], number)
            for name, dashboard in dashboards().items()
            for panel in dashboard["panels"]
            for number, target in enumerate(panel["targets"])
            if not self.prometheus.instant(filled(name, target["expr"]))
        }


def filled(dashboard: str, expression: str) -> str:
    """Return the expression as Grafana sends it."""
    namespace = "millrace" if dashboard == "operator" else "ns"
    values = {"$__rate_interval": "10s", "$cluster": ".*", "$namespace": namespace, "$query": "q"}
    for name, value in values.items():
        expression = expression.replace(name, value)
    return expression


@pytest.fixture
def fleet(start, connect, tmp_path, monkeypatch) -> Iterator[Fleet]:
    monkeypatch.setattr(operator_metrics, "memory_limit", lambda: 512 << 20)
    with ExitStack() as stack:
        yield Fleet(stack, start, connect, tmp_path)


def test_every_question_has_an_answer(fleet):
    def left():
        return {each for each in fleet.unanswered() if each[:2] not in UNANSWERED}

    soon(lambda: not left(), left)
    for name, dashboard in dashboards().items():
        for expression in expressions(dashboard):
            question = expression
            if expression.startswith("label_values("):
                question = f"count({expression.removeprefix('label_values(').rpartition(', ')[0]})"
            fleet.prometheus.instant(filled(name, question))
