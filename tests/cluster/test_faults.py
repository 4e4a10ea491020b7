"""Faults of the cluster while records come: a query recovers by itself, says what happened, and counts each once."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lab.counting_query import Counting
from lab.installation import NAMESPACE, Installation
from lab.turns import turn
from lab.waiting import wait_until
from millrace_operator.resources.names import METRICS_PORT

from .in_s3 import InS3

pytestmark = [pytest.mark.cluster, pytest.mark.slow(minutes=2), pytest.mark.timeout(1200)]

EXECUTORS, WORKERS = 2, 6
PLACES = ("volume", "s3")
"""Where checkpoints are: both by hand, and in CI one of them for twenty commits, in which each fault has its turn."""

_number = turn()


@pytest.fixture(params=PLACES if _number is None else [PLACES[_number // 20 % 2]])
def counting(request: pytest.FixtureRequest, installation: Installation, namespace: str) -> Iterator[Counting]:
    """A query that counts, on two executors of one core each."""
    spec: dict[str, Any] = {"executors": {"initial": EXECUTORS, "max": 3}}
    spec["parallelism"] = {"initial": WORKERS, "max": WORKERS}
    if request.param == "s3":
        s3: InS3 = request.getfixturevalue("s3")
        spec |= s3.spec()
    made = Counting(installation, namespace)
    made.query.apply(made.document(**spec))
    made.query.wait_until_settled()
    made.wait_for_executors(EXECUTORS)
    made.wait_for_progress()
    yield made
    made.stop()


def names(counting: Counting) -> set[str]:
    """Of the executors' pods."""
    return {each["metadata"]["name"] for each in counting.query.executors}


def workers(counting: Counting) -> float:
    """The combine tasks of the last batch, by the driver's metrics."""
    url = f"http://{counting.query.driver['status']['podIP']}:{METRICS_PORT}/metrics"
    with urllib.request.urlopen(url, timeout=60) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return next(each.value for family in families for each in family.samples if each.name == "millrace_plan_workers")


def recovers(counting: Counting) -> None:
    """It runs on as many executors as before, and goes on counting; in the end each record counts once."""
    counting.query.wait_until_settled()
    counting.wait_for_executors(EXECUTORS)
    counting.wait_for_progress()
    counting.check()


def test_an_executor_that_is_killed_is_replaced_beside_the_driver(counting: Counting) -> None:
    query, driver = counting.query, counting.query.driver["metadata"]["uid"]
    victim = min(names(counting))
    query.kubectl("delete", "pod", victim, "--grace-period=0", "--force")
    wait_until(lambda: victim not in names(counting) and len(names(counting)) == EXECUTORS, "another one runs")
    recovers(counting)
    assert (query.driver["metadata"]["uid"], query.runs) == (driver, 1)
    assert not query.status.get("attempts")


@pytest.mark.slow(minutes=4)
def test_an_edit_whose_executors_do_not_start_is_rolled_back(counting: Counting) -> None:
    query = counting.query
    query.wait_until_healthy()  # before that, there is nothing to go back to
    query.patch(sparkConf={"spark.executor.extraJavaOptions": "-Xss1"})  # less than a thread needs: the JVM ends
    wait_until(lambda: query.condition("Degraded").get("reason") == "RolledBack", "the edit is rolled back")
    assert (
        "executors fail again and again, the last one with: the executor ended with status 1"
        in (query.condition("Degraded")["message"])
    )
    query.patch(sparkConf=None)
    wait_until(lambda: query.condition("Degraded").get("status") == "False", "the edit is taken back")
    recovers(counting)
    assert not query.status.get("attempts")


def test_a_driver_that_is_killed_is_started_again_in_its_pod(counting: Counting) -> None:
    query, driver = counting.query, counting.query.driver["metadata"]["uid"]
    executors = names(counting)
    query.kubectl("exec", query.pod, "--", "sh", "-c", "kill -9 $(cat /proc/1/task/1/children)")
    query.wait(lambda status: status.get("attempts"), "the failure is reported")
    recovers(counting)
    assert (query.driver["metadata"]["uid"], query.runs) == (driver, 2)
    assert not executors & names(counting)
    assert "Hung" in query.events, "who is killed without a word is taken to have been hung"


def test_a_driver_whose_pod_is_deleted_goes_on_in_another(counting: Counting) -> None:
    query, driver = counting.query, counting.query.driver["metadata"]["uid"]
    query.kubectl("delete", "pod", query.pod, "--wait=false")
    query.wait(lambda _: query.driver_uid not in ("", driver), "there is another driver")
    recovers(counting)
    assert not query.status.get("attempts"), "who was asked to end has not failed"


def test_a_driver_that_is_evicted_goes_on_in_another(counting: Counting, tmp_path: Path) -> None:
    query, driver = counting.query, counting.query.driver["metadata"]["uid"]
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": query.pod, "namespace": query.namespace},
    }
    path = f"/api/v1/namespaces/{query.namespace}/pods/{query.pod}/eviction"
    (tmp_path / "eviction.json").write_text(json.dumps(eviction), encoding="utf-8")
    query.kubectl("create", "--raw", path, "-f", str(tmp_path / "eviction.json"))
    query.wait(lambda _: query.driver_uid not in ("", driver), "there is another driver")
    recovers(counting)


def test_a_node_that_is_drained_has_its_pods_again_when_it_is_back(counting: Counting) -> None:
    query, driver = counting.query, counting.query.driver["metadata"]["uid"]
    (node,) = query.on.get("nodes")["items"]
    name = node["metadata"]["name"]
    try:
        # one executor at a time may go, and where nothing can be scheduled no second one
        selector = f"--pod-selector=millrace.io/query={query.name}"
        done = query.on.cluster.kubectl(
            "drain", name, selector, "--delete-emptydir-data", "--force", "--timeout=60s", "--ignore-daemonsets"
        )
        assert "evicting pod" in done.stdout + done.stderr
        query.wait(lambda status: status["phase"] != "Running", "the driver is gone")
        query.wait(lambda _: query.condition("Ready")["status"] == "False", "the query says so")
    finally:
        query.on.kubectl("uncordon", name)
    query.wait(lambda _: query.driver_uid not in ("", driver), "there is another driver")
    recovers(counting)


def test_without_an_operator_a_query_goes_on_and_then_it_is_steered_again(counting: Counting) -> None:
    query = counting.query
    query.on.kubectl("-n", NAMESPACE, "delete", "pods", "--all", "--grace-period=0", "--force")
    counting.wait_for_progress()
    query.on.wait_for_operator()
    query.kubectl("scale", "sq", query.name, "--replicas=3")
    query.wait(lambda status: status["plan"]["executors"] == 3, "the operator makes a plan again")
    counting.wait_for_executors(3)
    query.kubectl("scale", "sq", query.name, f"--replicas={EXECUTORS}")
    recovers(counting)
    assert query.runs == 1


def test_without_prometheus_a_query_goes_on_and_is_not_scaled(counting: Counting) -> None:
    query = counting.query
    query.patch(scaling={"mode": "Active"})
    query.wait(lambda _: query.condition("MetricsAvailable").get("status") == "True", "there are metrics")
    query.on.prometheus.kill()
    query.wait(lambda _: query.condition("MetricsAvailable")["status"] == "False", "the query says so")
    assert query.condition("ScalingActive")["reason"] == "NoMetrics"
    epoch = query.plan["epoch"]
    counting.wait_for_progress()
    assert query.plan["epoch"] == epoch
    query.on.prometheus.start()
    query.wait(lambda _: query.condition("MetricsAvailable")["status"] == "True", "there are metrics again")
    query.patch(scaling={"mode": "Off"})
    counting.query.wait_until_settled()
    counting.wait_for_progress()
    counting.check()


def test_a_broker_that_is_killed_is_waited_for(counting: Counting) -> None:
    query, broker = counting.query, counting.query.on.broker
    before = len(query.log.splitlines())
    broker.kill()
    wait_until(lambda: "starting again" in query.log, "the driver has noticed")
    broker.restart()
    recovers(counting)
    assert len(query.log.splitlines()) > before


def test_executors_for_which_there_is_no_quota_come_when_there_is(counting: Counting) -> None:
    query = counting.query
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few"},
        "spec": {"hard": {"pods": str(1 + EXECUTORS)}},
    }
    query.kubectl("apply", "-f", "-", document=quota)
    query.kubectl("scale", "sq", query.name, "--replicas=3")
    query.wait(lambda status: status["plan"].get("appliedEpoch") == status["plan"]["epoch"] > 1, "the plan is followed")
    counting.wait_for_progress()
    assert (len(names(counting)), query.runs) == (EXECUTORS, 1)
    wait_until(lambda: workers(counting) == 4, "two executors need no more waves of tasks than three would")
    query.kubectl("delete", "quota", "few")
    counting.wait_for_executors(3)
    wait_until(lambda: workers(counting) == WORKERS, "batches have all tasks of their plan")
    query.kubectl("scale", "sq", query.name, f"--replicas={EXECUTORS}")
    recovers(counting)
