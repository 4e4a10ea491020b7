"""Scaling on a cluster: a job that runs, a Prometheus that scrapes it, and an operator that acts on what it says."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.control_plane import ControlPlane
from lab.prometheus import PrometheusServer, running_prometheus
from millrace_api.model.plan import APPLIED_KEY, Applied, Plan
from spark.cli import Project, Running, fields

from .observed import status_of, wait_until
from .operators import running_operator
from .played_pods import make_ready

pytestmark = [
    pytest.mark.in_turn,
    pytest.mark.apiserver,
    pytest.mark.prometheus,
    pytest.mark.spark,
    pytest.mark.timeout(1200),
]

NAME = "rates"
POD = f"{NAME}-driver-0"
SQL = """
SELECT key, count(*) AS n, max(sha2(repeat(CAST(value AS STRING), 150), 512)) AS digest FROM events GROUP BY key
"""
"""A query whose batches take long because of their records: work that more executors would divide."""

QUERY = {
    "apiVersion": "millrace.io/v1alpha1",
    "kind": "StreamQuery",
    "metadata": {"name": NAME},
    "spec": {
        "sources": {"events": {"rate": {"recordsPerSecond": 20_000, "keys": 50}}},
        "query": {"sql": SQL},
        "sink": {"console": {}},
        "checkpoint": {"claimName": "checkpoints"},
        "batchInterval": "1s",
        "partitioner": {"algorithm": "hash"},
        "parallelism": {"initial": 2, "max": 4},
        "executors": {"initial": 1, "max": 4},
        "scaling": {"mode": "Advise", "target": 0.2, "step": 0.1, "window": 3, "grace": 2},
    },
}
"""A batch takes more than a fifth of its interval, and what cannot be divided of it less: more executors help."""


class Job:
    """The driver's part, played by a process here: it follows the plan that the operator has written."""

    def __init__(self, folder: Path, kubectl: Callable[..., str], running: Running, metrics: str) -> None:
        self._plan, self._kubectl, self.running, self._metrics = folder / "plan.yaml", kubectl, running, metrics

    def follow(self) -> dict[str, Any]:
        """Take over the plan there is, and let as many executors be ready as it wants; the query's status."""
        plan = json.loads(self._kubectl("get", "cm", f"{NAME}-plan", "-o", "json"))["data"]["plan.yaml"]
        if self._plan.read_text() != plan:
            partial = self._plan.with_suffix(".new")
            partial.write_text(plan)
            partial.replace(self._plan)
            for number in range(1, json.loads(plan)["executors"] + 1):
                _make_ready_executor(self._kubectl, f"{NAME}-0a1b2c-exec-{number}")
        self._acknowledge(Plan.from_json(plan))
        assert self.running.process.poll() is None, self.running.finish()
        return status_of(self._kubectl, NAME)

    def _acknowledge(self, plan: Plan) -> None:
        """Tell of the plan that the last batch ran under, as the agent of a driver does."""
        with urllib.request.urlopen(self._metrics) as answer:
            epoch = re.search(r"^millrace_plan_epoch\S* (\d+)", answer.read().decode(), re.MULTILINE)
        if epoch is None:
            return
        reported = Applied(
            epoch=int(epoch[1]),
            algorithm=plan.algorithm,
            state_partitions=2,
            executors_ready=plan.executors,
        )
        change = json.dumps({"data": {APPLIED_KEY: reported.to_json()}})
        self._kubectl("patch", "cm", f"{NAME}-plan", "--type=merge", "-p", change)


def _make_ready_executor(kubectl: Callable[..., str], name: str) -> None:
    labels = {"millrace.io/query": NAME, "millrace.io/role": "executor"}
    container = {"name": "executor", "image": "none"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}}
    kubectl("apply", "-f", "-", document=pod | {"spec": {"containers": [container]}})
    make_ready(kubectl, name)


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[PrometheusServer]:
    """A Prometheus of the test's own."""
    folder = tmp_path / "prometheus"
    folder.mkdir()
    with running_prometheus(folder, scrape_interval="500ms") as server:
        yield server


@contextmanager
def job(folder: Path, kubectl: Callable[..., str], namespace: str, prometheus: PrometheusServer) -> Iterator[Job]:
    """A run of the query under the operator's plan, which Prometheus scrapes as the driver's pod."""
    project = Project(folder)
    here = {part: value for part, value in QUERY["spec"].items() if part != "checkpoint"}
    project.write("query.yaml", yaml.safe_dump(QUERY | {"spec": here}))
    project.write("plan.yaml", kubectl("get", "cm", f"{NAME}-plan", "-o", "jsonpath={.data.plan\\.yaml}"))
    with project.start("run", "query.yaml", "--plan", "plan.yaml") as running:
        url = fields(running.wait_for(r"started=.*\n"))["metrics"]
        address = url.removeprefix("http://").removesuffix("/metrics")
        labels = {"__meta_kubernetes_namespace": namespace, "__meta_kubernetes_pod_name": POD}
        prometheus.scrape({address: labels})
        yield Job(folder, kubectl, running, url)
        running.process.terminate()
        running.finish()


def condition(status: dict[str, Any], type: str) -> dict[str, Any]:
    return next((each for each in status["conditions"] if each["type"] == type), {})


def test_a_running_job_is_advised_and_then_scaled(
    plane: ControlPlane, namespace: str, kubectl: Callable[..., str], prometheus: PrometheusServer, tmp_path: Path
) -> None:
    with running_operator(plane, tmp_path, "--prometheus-url", prometheus.url, namespace=namespace) as operator:
        kubectl("apply", "-f", "-", document=QUERY)
        wait_until(lambda: status_of(kubectl, NAME).get("driver", {}).get("pod") == POD)
        make_ready(kubectl, POD)
        _make_ready_executor(kubectl, f"{NAME}-0a1b2c-exec-1")
        with job(tmp_path / "job", kubectl, namespace, prometheus) as driver:
            advised = _until(driver, lambda status: status.get("lastScaling"))
            assert advised["lastScaling"]["reason"] == "AdviseOnly"
            assert advised["lastScaling"]["to"]["executors"] > 1
            assert (advised["plan"]["epoch"], advised["plan"]["appliedEpoch"]) == (1, 1)
            assert advised["load"]["utilization"] > 0.02
            assert advised["load"]["executorsReady"] == 1
            assert condition(advised, "MetricsAvailable")["status"] == "True"
            assert condition(advised, "ScalingActive")["reason"] == "AdviseOnly"

            kubectl("patch", "sq", NAME, "--type=merge", "-p", '{"spec": {"scaling": {"mode": "Active"}}}')
            scaled = _until(driver, lambda status: status["plan"]["executors"] > 1)
            assert scaled["lastScaling"]["to"]["executors"] == scaled["plan"]["executors"]
            assert status_of(kubectl, NAME)["driver"]["restarts"] == 0
            _until(driver, lambda status: status["plan"].get("appliedEpoch", 0) > 1)

            events = json.loads(kubectl("get", "events", "-o", "json"))["items"]
            assert scaled["lastScaling"]["reason"] in {each["reason"] for each in events}
            kept = ("get", "cm", f"{NAME}-scaling", "--ignore-not-found", "-o", "jsonpath={.data.decision\\.json}")
            wait_until(lambda: kubectl(*kept))
            assert json.loads(kubectl(*kept))["inputs"]["arrival"] > 0
        assert operator.end() == 0


def test_an_overloaded_job_stays_within_the_quota_and_grows_when_there_is_more(
    plane: ControlPlane, namespace: str, kubectl: Callable[..., str], prometheus: PrometheusServer, tmp_path: Path
) -> None:
    def allow(pods: int) -> None:
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few-pods"}}
        kubectl("apply", "-f", "-", document=quota | {"spec": {"hard": {"pods": str(pods)}}})

    with running_operator(plane, tmp_path, "--prometheus-url", prometheus.url, namespace=namespace):
        allow(3)  # the driver and two executors
        active = QUERY["spec"] | {"scaling": QUERY["spec"]["scaling"] | {"mode": "Active"}}
        kubectl("apply", "-f", "-", document=QUERY | {"spec": active})
        wait_until(lambda: status_of(kubectl, NAME).get("driver", {}).get("pod") == POD)
        make_ready(kubectl, POD)
        _make_ready_executor(kubectl, f"{NAME}-0a1b2c-exec-1")
        with job(tmp_path / "job", kubectl, namespace, prometheus) as driver:
            full = _until(driver, lambda status: condition(status, "ScalingLimited").get("reason") == "AtQuota")
            capacity = condition(full, "ScalingLimited")
            assert capacity["status"] == "True"
            assert "pods in ResourceQuota few-pods are used, and a pod takes 1 (raise the quota" in capacity["message"]
            within = _until(driver, lambda status: status["plan"]["executors"] == 2)
            assert condition(within, "Degraded")["reason"] != "QuotaExceeded"
            for _ in range(10):  # each follows the plan; a third executor would be refused
                assert driver.follow()["plan"]["executors"] == 2
            allow(10)
            _until(driver, lambda status: status["plan"]["executors"] > 2)


def _until(driver: Job, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """The status for which it holds, while the job follows its plan."""
    deadline = time.monotonic() + 300
    while not holds(status := driver.follow()):
        assert time.monotonic() < deadline, json.dumps(status, indent=1)
        time.sleep(0.5)
    return status
