"""Pods that should exist and do not: the API server is asked why, and its answer is reported until they come."""

from datetime import timedelta
from itertools import pairwise

import pytest
import yaml

from millrace_operator.lifecycle.pods.missing_pods import MISSING_AFTER, expected_executor
from millrace_operator.lifecycle.refusals import FIRST_PAUSE, LONGEST_PAUSE, PodRefusedError, QuotaExceededError
from millrace_operator.resources.pod_defaults import PodDefaults
from unit.api.documents import MINIMAL, changed

from .cluster import KEY, POD, REPLICAS, SET
from .dedicated_queries import DEDICATED
from .waiting_pods import LIMIT

QUOTA = QuotaExceededError('pods "x" is forbidden: exceeded quota: few')
SECURITY = PodRefusedError('pods "x" is forbidden: violates PodSecurity "restricted:latest"')
DRIVER_POD, EXECUTOR_POD = POD[1], "trips-by-cell-exec"


def asked(cluster, name):
    return [time for pod, time in cluster.asked if pod == name]


def add_executors(cluster, number):
    for each in range(number):
        labels = {"millrace.io/query": KEY.name, "millrace.io/role": "executor"}
        metadata = {"name": f"exec-{each}", "namespace": KEY.namespace, "uid": f"exec-{each}", "labels": labels}
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-31T12:00:00Z"}
        metadata["creationTimestamp"] = "2026-01-31T12:00:00Z"
        pod = {"kind": "Pod", "metadata": metadata, "status": {"conditions": [ready]}}
        cluster.objects["Pod", f"exec-{each}"] = pod
        cluster._changed(pod)
    cluster.settle()


@pytest.fixture
def without_driver(cluster):
    """A query whose driver's pod is refused."""
    cluster.refused_pods["driver"] = QUOTA
    cluster.put(MINIMAL)
    cluster.settle()
    return cluster


@pytest.fixture
def running(cluster):
    """A query whose driver runs, has acknowledged its plan, and has all its executors."""
    cluster.put(MINIMAL)
    cluster.settle()
    cluster.pod_is_ready()
    cluster.driver_follows(cluster.status.plan.executors, 8)
    add_executors(cluster, cluster.status.plan.executors)
    cluster.pass_time(minutes=2)
    return cluster


def test_a_refused_driver_is_reported_within_seconds_in_the_words_of_the_api_server(without_driver):
    assert without_driver.condition("Ready").reason == "Deploying"
    without_driver.pass_time(seconds=MISSING_AFTER.seconds)
    ready, degraded = without_driver.condition("Ready"), without_driver.condition("Degraded")
    said = 'the driver\'s pod is refused: pods "x" is forbidden: exceeded quota: few'
    assert (ready.status, ready.reason, ready.message) == ("False", "QuotaExceeded", said)
    assert (degraded.status, degraded.reason, degraded.message) == ("True", "QuotaExceeded", said)
    assert without_driver.status.phase == "Deploying"
    assert (True, "QuotaExceeded") in without_driver.events


def test_a_driver_refused_for_another_reason_has_a_reason_of_its_own(without_driver):
    without_driver.refused_pods["driver"] = SECURITY
    without_driver.pass_time(seconds=5)
    assert without_driver.condition("Ready").reason == without_driver.condition("Degraded").reason == "PodRefused"
    assert "violates PodSecurity" in without_driver.condition("Ready").message


def test_a_missing_pod_is_asked_about_at_growing_pauses(without_driver):
    without_driver.pass_time(seconds=5)
    writes = without_driver.writes
    without_driver.pass_time(minutes=9)
    times = asked(without_driver, DRIVER_POD)
    pauses = [(after - before).total_seconds() for before, after in pairwise(times)]
    assert pauses[:3] == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE]
    assert max(pauses) <= LONGEST_PAUSE
    assert without_driver.writes == writes


def test_a_missing_pod_is_no_longer_reported_when_it_comes(without_driver):
    without_driver.pass_time(seconds=5)
    without_driver.refused_pods.clear()
    without_driver.settle()
    assert without_driver.condition("Degraded").reason == "AsExpected"
    assert without_driver.condition("Ready").reason == "Deploying"
    without_driver.pod_is_ready()
    assert without_driver.condition("Ready").reason == "Running"


def test_a_missing_pod_is_no_longer_reported_when_the_api_server_would_take_it(cluster, monkeypatch):
    """The controller may wait for minutes before it tries again."""
    cluster.refused_pods["driver"] = QUOTA
    cluster.put(MINIMAL)
    cluster.settle()
    cluster.pass_time(seconds=5)
    monkeypatch.setattr(cluster, "control", lambda: None)
    cluster.refused_pods.clear()
    cluster.pass_time(seconds=FIRST_PAUSE)
    assert cluster.condition("Degraded").reason == "AsExpected"
    assert cluster.condition("Ready").message == "the driver's pod does not exist yet"


def test_another_operator_finds_out_by_itself(without_driver):
    without_driver.pass_time(seconds=5)
    without_driver.start_operator()
    without_driver.settle()
    without_driver.pass_time(seconds=5)
    assert without_driver.condition("Degraded").reason == "QuotaExceeded"


def test_a_pod_of_another_spec_is_asked_about_soon(without_driver):
    without_driver.pass_time(minutes=5)
    before = len(asked(without_driver, DRIVER_POD))
    without_driver.put(changed(MINIMAL, 12, "  driver: {cores: 2}"))
    without_driver.settle()
    without_driver.pass_time(seconds=5)
    assert len(asked(without_driver, DRIVER_POD)) == before + 1


def test_a_spec_whose_pod_is_refused_is_rolled_back_with_the_reason(running):
    running.refused_pods["driver"] = SECURITY
    running.put(changed(MINIMAL, 12, "  driver: {cores: 2}"))
    running.settle()
    running.pass_time(minutes=9)
    assert running.condition("Degraded").reason == "PodRefused"
    running.pass_time(minutes=2)
    assert running.condition("Degraded").reason == "RolledBack"
    assert "violates PodSecurity" in running.condition("Degraded").message


def test_a_suspended_query_misses_no_pod(without_driver):
    without_driver.put(changed(MINIMAL, 12, "  suspend: true"))
    without_driver.settle()
    without_driver.pass_time(hours=1)
    assert asked(without_driver, DRIVER_POD) == []
    assert without_driver.condition("Degraded").reason == "AsExpected"


def test_at_rest_nothing_is_asked(running):
    running.pass_time(hours=1)
    assert running.asked == []
    assert running.condition("Degraded").reason == "AsExpected"


def test_refused_executors_are_reported_and_the_query_runs_on(running):
    running.refused_pods["executor"] = QUOTA
    running.put(MINIMAL + "  executors: {initial: 4, max: 8}\n")
    running.settle()
    running.pass_time(seconds=5)
    degraded = running.condition("Degraded")
    assert degraded.reason == "QuotaExceeded"
    assert degraded.message.startswith("1 of 4 executor pods exist and the next one is refused: ")
    assert (running.status.phase, running.condition("Ready").status) == ("Running", "True")
    add_executors(running, 4)
    assert running.condition("Degraded").reason == "AsExpected"
    assert len(asked(running, EXECUTOR_POD)) == 1


def test_executors_that_come_in_time_are_not_asked_about(running):
    running.put(MINIMAL + "  executors: {initial: 4, max: 8}\n")
    running.settle()
    running.pass_time(seconds=4)
    add_executors(running, 4)
    running.pass_time(minutes=5)
    assert running.asked == []


@pytest.mark.parametrize("limits", [[], [LIMIT]], ids=["unlimited", "limited"])
def test_a_driver_that_has_acknowledged_nothing_may_still_ask_for_executors_unless_pods_are_limited(cluster, limits):
    cluster.limits = limits
    cluster.refused_pods["executor"] = QUOTA
    cluster.put(MINIMAL)
    cluster.settle()
    cluster.pod_is_ready()
    cluster.pass_time(seconds=5)
    assert len(asked(cluster, EXECUTOR_POD)) == len(limits)
    assert cluster.condition("Degraded").reason == ("QuotaExceeded" if limits else "AsExpected")


def test_refused_replicas_are_reported(cluster):
    cluster.refused_pods["partitioner"] = QUOTA
    cluster.put(DEDICATED)
    cluster.settle()
    cluster.pod_is_ready()
    cluster.pass_time(seconds=5)
    assert asked(cluster, f"{REPLICAS[1]}-0")
    degraded = cluster.condition("Degraded")
    assert degraded.reason == "QuotaExceeded"
    assert degraded.message.startswith("0 of 2 partitioner pods exist and the next one is refused: ")


def test_an_answer_that_fails_does_not_stop_the_query(running, monkeypatch):
    def fail(pod):
        raise ConnectionError("no answer")

    monkeypatch.setattr(running.reconciler, "_refuses", fail)
    running.put(MINIMAL + "  executors: {initial: 4, max: 8}\n")
    running.settle()
    running.time += timedelta(seconds=6)
    with pytest.raises(ConnectionError):
        running.reconciler.reconcile(KEY)
    running.reconciler.reconcile(KEY)


def test_the_expected_executor_is_the_template_with_what_spark_adds(running):
    text = """\
  executors:
    cores: 3
    memory: 2g
    podTemplate: {spec: {priorityClassName: high, containers: [{name: executor, resources: {limits: {cpu: 4}}}]}}
"""
    running.put(MINIMAL + text)
    running.show()
    observed = running.reconciler.observations.of(KEY)
    query = running.reconciler.query_of(KEY, observed)
    pod = expected_executor(observed, query.spec, PodDefaults("example.org/jobs"))
    container = pod["spec"]["containers"][0]
    conf = running.configuration(SET)["data"]
    assert (container["image"], pod["spec"]["priorityClassName"]) == ("example.org/jobs", "high")
    assert container["resources"] == {
        "requests": {"cpu": "3", "memory": "3276Mi"},
        "limits": {"cpu": 4, "memory": "3276Mi"},
    }
    assert pod["metadata"]["labels"]["millrace.io/role"] == "executor"
    assert yaml.safe_load(conf["executor-pod.yaml"])["spec"]["containers"][0]["name"] == container["name"]
