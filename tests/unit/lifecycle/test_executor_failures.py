"""Executors that fail: which count, and what is said when they fail again and again."""

import pytest

from millrace_operator.lifecycle.pods.executor_failures import FailedExecutor
from unit.api.documents import MINIMAL, changed

from .cluster import KEY, NOW, stamp

INVALID = changed(MINIMAL, 10, "    sql: SELECT cel FROM trips")
OTHER = changed(MINIMAL, 10, "    sql: SELECT cell, count(*) AS trips FROM trips GROUP BY cell")
REFUSED = changed(MINIMAL, 12, "  driver: {podTemplate: {spec: {nodeSelector: {'not a label': ssd}}}}")
HEALTHY = ("ConfigMap", "trips-by-cell-healthy")


def pod(role="executor", *, deleted=False, **status):
    metadata = {
        "name": "p",
        "uid": "p",
        "labels": {"millrace.io/role": role},
        "creationTimestamp": stamp(NOW),
        "ownerReferences": [{"kind": "Pod", "uid": "d"}],
    }
    metadata |= {"deletionTimestamp": stamp(NOW)} if deleted else {}
    return {"kind": "Pod", "metadata": metadata, "status": status}


def ended(code, role="executor", *, deleted=False, **more):
    """A pod whose container has ended before the kubelet has reported another phase."""
    state = {"terminated": {"exitCode": code, "finishedAt": stamp(NOW), **more}}
    statuses = [{"name": role, "state": state}]
    return pod(role, deleted=deleted, phase="Running", containerStatuses=statuses)


@pytest.mark.parametrize(
    ("found", "failure", "message"),
    [
        (ended(137, reason="OOMKilled"), "OutOfMemory", "exceeded its memory limit; raise spec.executors.memory"),
        (ended(52), "OutOfMemory", "heap is full; raise spec.executors.memory"),
        (ended(3), "OutOfMemory", "heap is full"),
        (ended(137, reason="Error"), "ExecutorFailed", "the executor was killed, status 137"),
        (ended(1), "ExecutorFailed", "the executor ended with status 1"),
        (pod(phase="Failed", reason="Evicted", message="disk"), "NodeLost", "Evicted: disk"),
    ],
)
def test_a_failed_executor_has_its_failure_and_advice(found, failure, message):
    failed = FailedExecutor.of(found)
    assert (failed.driver, failed.created, failed.attempt.reason) == ("d", NOW, failure)
    assert message in failed.attempt.message


@pytest.mark.parametrize(
    "found",
    [
        ended(0),
        ended(143, deleted=True),
        ended(1, role="driver"),
        pod(phase="Running", containerStatuses=[{"name": "executor", "state": {"running": {}}}]),
        pod(phase="Succeeded"),
        pod(),
        {"kind": "ConfigMap", "metadata": {"labels": {"millrace.io/role": "executor"}}},
    ],
    ids=["success", "deleted", "driver", "running", "succeeded", "new", "no pod"],
)
def test_pods_that_are_no_failed_executors_do_not_count(found):
    assert FailedExecutor.of(found) is None


@pytest.fixture
def running(cluster):
    cluster.put(MINIMAL)
    cluster.settle()
    cluster.pod_is_ready()
    cluster.pass_time(seconds=70)
    return cluster


def fail(cluster, numbers, **how):
    """Executors that fail one after the other, 20 seconds after they were created."""
    for number in numbers:
        key = cluster.executor(number)
        cluster.pass_time(seconds=20)
        cluster.executor_ends(key, **how)


def degraded(cluster):
    found = cluster.condition("Degraded")
    return found.reason, found.message


def counted(cluster):
    return cluster.memory.counts.executors


def test_a_third_failure_is_reported_and_is_over_ten_minutes_later(running):
    fail(running, (1, 2), code=52)
    running.pass_time(seconds=30)
    assert degraded(running)[0] == "AsExpected"
    fail(running, (3,), code=137, reason="OOMKilled")
    assert degraded(running)[0] == "AsExpected"  # the driver may have ended with it
    running.pass_time(seconds=5)
    reason, message = degraded(running)
    assert reason == "ExecutorsFailing"
    assert message.startswith("executors fail again and again, the last one with: the executor exceeded its memory")
    assert running.events[-1] == (True, "ExecutorsFailing")
    assert running.condition("Ready").status == "True"
    running.pass_time(minutes=11)
    assert degraded(running) == ("AsExpected", "")
    assert counted(running) == {"OutOfMemory": 3}


def test_each_failure_is_counted_once(running):
    fail(running, range(1, 5))
    running.pass_time(seconds=10)
    running.settle()
    assert counted(running) == {"ExecutorFailed": 4}
    running.pass_time(minutes=20)
    fail(running, (5,), code=3)
    running.pass_time(seconds=10)
    assert counted(running) == {"ExecutorFailed": 4, "OutOfMemory": 1}
    running.delete()
    running.settle()
    assert not running.reconciler.observations._records


@pytest.mark.parametrize("seen_first", ["executors", "driver"])
def test_executors_that_end_with_their_driver_are_no_failures(running, seen_first):
    executors = [running.executor(number) for number in range(5)]
    running.pass_time(seconds=30)
    if seen_first == "driver":
        running.pod_fails()
    for each in executors:
        running.executor_ends(each)
    if seen_first == "executors":
        running.pod_fails()
    running.pass_time(seconds=20)
    running.pod_is_ready()
    running.pass_time(minutes=2)
    assert degraded(running) == ("AsExpected", "")
    assert counted(running) == {}


def test_executors_of_an_earlier_run_are_none_of_this_one(running):
    executors = [running.executor(number) for number in range(5)]
    running.pass_time(seconds=30)
    running.pod_is_ready()  # Kubernetes has started the container again
    for each in executors:
        running.executor_ends(each)
    running.pass_time(minutes=1)
    for number in range(5, 10):
        running.executor_ends(running.executor(number, driver="a pod before this one"))
    running.pass_time(minutes=1)
    assert counted(running) == {}


def test_failing_executors_are_reported_while_the_spec_is_invalid(running):
    running.put(INVALID, {"millrace.io/paused": "true"})
    running.settle()
    fail(running, (1, 2, 3))
    running.pass_time(seconds=5)
    assert degraded(running)[0] == "ExecutorsFailing"
    running.pass_time(minutes=11)
    assert degraded(running)[0] == "AsExpected"


def test_failing_executors_are_reported_in_time_while_the_api_server_refuses_the_spec(running):
    running.put(REFUSED)
    running.settle()
    running.pass_time(minutes=30)  # until it is tried again every ten minutes only
    for number in (1, 2, 3):
        running.executor_ends(running.executor(number))
    running.pass_time(seconds=5)
    assert degraded(running)[0] == "ExecutorsFailing"
    running.pass_time(minutes=10)
    assert degraded(running)[0] == "AsExpected"


def test_only_the_last_hundred_failures_are_kept_and_the_status_is_written_once(running):
    fail(running, (1, 2, 3))
    running.pass_time(seconds=5)
    writes = running.writes
    for number in range(4, 150):
        running.executor_ends(running.executor(number))
        running.pass_time(seconds=1)
    running.pass_time(seconds=5)
    assert running.writes == writes
    assert len(running.reconciler.observations.of(KEY).failed_executors) == 100


def test_an_edit_whose_executors_fail_is_rolled_back(running):
    running.put(OTHER)
    running.settle()
    running.pod_is_ready()
    fail(running, (1, 2))
    running.executor_ends(running.executor(3))
    running.pass_time(seconds=4)
    assert running.status.rejected is None
    running.pass_time(seconds=1)
    assert running.status.rejected.message == (
        "executors fail again and again, the last one with: the executor ended with status 1"
    )
    running.pod_is_ready()
    running.pass_time(seconds=70)
    assert degraded(running)[0] == "RolledBack"
    assert running.condition("Ready").status == "True"


def test_nodes_that_are_lost_are_no_reason_to_roll_back(running):
    running.put(OTHER)
    running.settle()
    running.pod_is_ready()
    for number in range(3):
        running.pod_shows(running.executor(number), phase="Failed", reason="Evicted", message="disk")
    running.pass_time(seconds=5)
    assert running.status.rejected is None
    assert degraded(running)[0] == "ExecutorsFailing"


def test_a_spec_whose_executors_fail_is_not_healthy(cluster):
    cluster.put(MINIMAL)
    cluster.settle()
    cluster.pod_is_ready()
    for number in (1, 2, 3):
        cluster.executor_ends(cluster.executor(number))
    cluster.pass_time(minutes=3)
    assert HEALTHY not in cluster.objects
    cluster.pass_time(minutes=10)
    assert HEALTHY in cluster.objects
