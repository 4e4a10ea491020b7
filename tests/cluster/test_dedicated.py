"""Replicas in pods of their own take over the placing of records and give it back: each record is counted once."""

from __future__ import annotations

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lab.counting_query import Counting
from lab.deployed import Deployed
from lab.installation import Installation
from lab.waiting import wait_until

pytestmark = [pytest.mark.in_turn, pytest.mark.cluster, pytest.mark.timeout(1800)]

REPLICAS = 3
SET = "counts-partitioner"
PLACED = "millrace_partitioner_records"

READ_PROCESSES = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"
TOKENS = "/var/run/secrets/kubernetes.io"


@pytest.fixture
def counting(installation: Installation, namespace: str) -> Iterator[Counting]:
    """A query that is not yet applied, and records for it in a partition for each replica."""
    made = Counting(installation, namespace, partitions=REPLICAS)
    yield made
    made.stop()


def test_a_query_changes_to_replicas_in_pods_and_back_under_one_driver(counting: Counting, tmp_path: Path) -> None:
    query = counting.query
    partitioner = {"algorithm": "cam", "replicas": {"initial": 1, "max": REPLICAS}}
    counting.start(partitioner=partitioner, parallelism={"initial": 2, "max": 4})
    driver = query.driver["metadata"]["uid"]
    assert not query.kubectl("get", "sts", SET, "--ignore-not-found")

    query.patch(partitioner={"placement": "Dedicated"})
    wait_until_followed(counting, replicas=1)
    assert query.plan["placement"] == "Dedicated"
    wait_until_placing(query)
    assert_without_rights(query)
    assert "millrace partitioner" not in query.kubectl("exec", query.pod, "--", "sh", "-c", READ_PROCESSES)

    query.patch(partitioner={"replicas": {"initial": REPLICAS}})
    wait_until_followed(counting, replicas=REPLICAS)
    wait_until_placing(query)
    wait_until(lambda: len(scraped(query)) == REPLICAS, "Prometheus has metrics of all replicas")

    killed = replicas(query)[1]["metadata"]
    query.kubectl("delete", "pod", killed["name"], "--grace-period=0", "--force")
    wait_until(lambda: killed["uid"] not in [each["metadata"]["uid"] for each in replicas(query)], "it is replaced")
    wait_until_followed(counting, replicas=REPLICAS)
    wait_until_placing(query)

    acknowledged = watched(query, "configmap/counts-plan", r"{.data.applied\.json}", tmp_path / "acknowledged")
    scaled = watched(query, f"statefulset/{SET}", "{.spec.replicas}", tmp_path / "scaled")
    with acknowledged as plans, scaled as sizes:
        query.patch(partitioner={"placement": "Inline"})
        wait_until(lambda: sizes()[-1][1] == "0", lambda: f"the replicas end: {query.status}")
        wait_until_followed(counting, replicas=0)
        epoch = query.plan["epoch"]
        followed = next(revision for revision, text in plans() if text and json.loads(text)["epoch"] >= epoch)
        ended = next(revision for revision, size in sizes() if size == "0")
    assert followed < ended, "replicas ended before the driver had acknowledged a plan without them"
    assert query.plan["placement"] == "Inline"
    wait_until(lambda: "partitioner" not in query.status, "their pods are gone")

    assert (query.driver["metadata"]["uid"], query.runs) == (driver, 1)
    assert not query.status.get("attempts")
    counting.check()


def wait_until_followed(counting: Counting, *, replicas: int) -> None:
    """Wait until so many replicas are ready, the driver follows the plan, and what was written before is counted."""
    query = counting.query
    query.wait(lambda status: (status.get("partitioner") or {"ready": 0})["ready"] == replicas, f"{replicas} are ready")
    query.kubectl("rollout", "status", f"statefulset/{SET}", "--timeout=300s")
    query.wait_until_settled()
    counting.wait_for_progress()
    assert query.on.get("-n", query.namespace, "sts", SET)["spec"]["replicas"] == replicas


def wait_until_placing(query: Deployed) -> None:
    """Wait until each replica has placed records."""
    wait_until(lambda: all(map(placed, replicas(query))), lambda: f"all place: {[*map(placed, replicas(query))]}")


def replicas(query: Deployed) -> list[dict[str, Any]]:
    """Return the pods of the replicas, by name."""
    selector = f"millrace.io/query={query.name},millrace.io/role=partitioner"
    pods: list[dict[str, Any]] = query.on.get("-n", query.namespace, "pods", "-l", selector)["items"]
    return sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))


def placed(pod: dict[str, Any]) -> float:
    """Return how many records a replica has placed since it started, by its metrics."""
    port = pod["metadata"]["annotations"]["prometheus.io/port"]
    with urllib.request.urlopen(f"http://{pod['status']['podIP']}:{port}/metrics", timeout=60) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return sum(each.value for family in families for each in family.samples if each.name == f"{PLACED}_total")


def scraped(query: Deployed) -> set[str]:
    """Return the replicas of which Prometheus has metrics."""
    asked = urllib.parse.quote(f'{PLACED}_total{{namespace="{query.namespace}"}}')
    with urllib.request.urlopen(f"{query.on.prometheus.url}/api/v1/query?query={asked}", timeout=60) as answer:
        return {each["metric"]["replica"] for each in json.load(answer)["data"]["result"]}


def assert_without_rights(query: Deployed) -> None:
    """Check that replicas, in a namespace for restricted pods only, have no token, no checkpoint and no claim."""
    labels = query.on.get("namespace", query.namespace)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    for pod in replicas(query):
        volumes = [set(volume) - {"name"} for volume in pod["spec"]["volumes"]]
        assert all(kind <= {"emptyDir", "configMap"} for kind in volumes), volumes
        found = query.kubectl("exec", pod["metadata"]["name"], "--", "sh", "-c", f"ls {TOKENS} 2>&1 || true")
        assert "No such file" in found


@contextmanager
def watched(query: Deployed, name: str, field: str, file: Path) -> Iterator[Callable[[], list[tuple[int, str]]]]:
    """Watch an object, and yield a function that returns its revisions so far, each with the value of a field.

    Revisions of all objects of a cluster are in one order.
    """
    output = f"jsonpath={{.metadata.resourceVersion}} {field}{{'\\n'}}"
    kubectl: list[str | Path] = [query.on.cluster.program("kubectl"), "--kubeconfig", query.on.cluster.kubeconfig]
    command = [*kubectl, "-n", query.namespace, "get", name, "--watch", "--output", output]

    def revisions() -> list[tuple[int, str]]:
        lines = [line.partition(" ") for line in file.read_text().splitlines()]
        return [(int(revision), value) for revision, _, value in lines]

    with file.open("w") as said, subprocess.Popen(command, stdout=said) as watch:
        try:
            wait_until(revisions, f"{name} is watched")
            yield revisions
        finally:
            watch.kill()
