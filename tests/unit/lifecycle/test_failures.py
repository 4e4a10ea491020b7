"""Drivers that fail: which class it was, when there is another run, and when it is given up."""

from datetime import timedelta

import pytest

from millrace_api.model.status import FailureClass
from millrace_operator.lifecycle.pods.driver_health import RESTART_POLICIES, RestartPolicy, blocked, failed_runs
from unit.api.documents import MINIMAL, changed

from .cluster import NOW, stamp

SAID = '{{"failure": "{}", "message": "what the driver said"}}'


def pod(**status):
    return {"kind": "Pod", "metadata": {"name": "p", "uid": "p"}, "status": status}


def container(**parts):
    return pod(containerStatuses=[{"name": "driver", **parts}])


def ended(**parts):
    return container(lastState={"terminated": {"exitCode": 1, "finishedAt": stamp(NOW), **parts}})


@pytest.mark.parametrize(
    ("found", "failure", "message"),
    [
        (ended(message=SAID.format("SourceFailed")), "SourceFailed", "what the driver said"),
        (ended(message=SAID.format("StateUnusable")), "StateUnusable", "what the driver said"),
        (ended(message="last lines of the log"), "DriverFailed", "last lines of the log"),
        (ended(exitCode=2), "DriverFailed", "the driver ended with status 2 and without a message"),
        (ended(exitCode=137, reason="OOMKilled"), "OutOfMemory", "the driver exceeded its memory limit"),
        (ended(exitCode=137, reason="Error"), "Hung", "the driver ended with status 137"),
        (pod(phase="Failed", reason="Evicted", message="low on disk"), "NodeLost", "Evicted: low on disk"),
        (pod(phase="Failed", reason="NodeLost"), "NodeLost", "NodeLost"),
        (pod(phase="Failed", reason="OutOfcpu"), "DriverFailed", "OutOfcpu"),
        (
            pod(phase="Failed", conditions=[{"type": "DisruptionTarget", "lastTransitionTime": stamp(NOW)}]),
            "NodeLost",
            "the driver's pod failed",
        ),
    ],
)
def test_a_failed_run_has_its_class_and_message(found, failure, message):
    (attempt,) = failed_runs(found)
    assert attempt.reason == failure
    assert attempt.message.startswith(message)


@pytest.mark.parametrize(
    "found",
    [pod(), ended(exitCode=0), container(state={"running": {}}), pod(phase="Succeeded")],
    ids=["new", "restarted after success", "running", "succeeded"],
)
def test_a_driver_that_runs_or_ended_well_has_not_failed(found):
    assert failed_runs(found) == []
    assert blocked(found, NOW) is None


@pytest.mark.parametrize(
    ("found", "failure"),
    [
        (container(state={"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}), "ImageUnavailable"),
        (container(state={"waiting": {"reason": "InvalidImageName"}}), "ImageUnavailable"),
        (container(state={"waiting": {"reason": "CreateContainerConfigError"}}), "InvalidConfiguration"),
        (
            pod(conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1"}]),
            "Unschedulable",
        ),
    ],
)
def test_a_driver_that_cannot_start_has_the_class_of_its_failure(found, failure):
    assert blocked(found, NOW)[0] == failure


def test_every_class_has_its_patience():
    assert set(RESTART_POLICIES) == set(FailureClass)


def test_pauses_double_up_to_the_longest():
    policy = RestartPolicy(6, first=15, longest=100)
    assert [policy.pause_after(failures) for failures in range(1, 7)] == [0, 15, 30, 60, 100, 100]
    assert policy.pause_after(10**6) == 100


@pytest.fixture
def deployed(cluster):
    cluster.put(MINIMAL)
    cluster.settle()
    return cluster


def test_a_driver_without_a_node_is_reported_after_two_minutes(deployed):
    """Nothing happens meanwhile, so that the operator has to look by itself."""
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    deployed.pod_shows(conditions=[unschedulable])
    deployed.pass_time(seconds=119)
    assert deployed.condition("Degraded").status == "False"
    deployed.pass_time(seconds=1)
    degraded = deployed.condition("Degraded")
    assert (degraded.status, degraded.reason) == ("True", "Unschedulable")
    assert degraded.message == "the driver cannot be scheduled: 0/1 nodes"


@pytest.mark.parametrize(
    ("reason", "hint"),
    [
        ("0/3 nodes are available: 3 node(s) had volume node affinity conflict.", "add a node there"),
        ("0/3 nodes are available: 3 node(s) didn't match PersistentVolume's node affinity.", "add a node there"),
        ("pod has unbound immediate PersistentVolumeClaims.", "See the events of the claim"),
    ],
)
def test_what_the_scheduler_says_of_volumes_comes_with_what_to_do(deployed, reason, hint):
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": reason}
    deployed.pod_shows(conditions=[unschedulable])
    deployed.pass_time(minutes=2)
    message = deployed.condition("Degraded").message
    assert message.startswith(f"the driver cannot be scheduled: {reason} ")
    assert hint in message


def test_the_first_failure_is_left_to_kubernetes(deployed):
    pod = deployed.pod["metadata"]["uid"]
    status = deployed.pod_fails(SAID.format("SinkFailed"))
    assert (status.phase, status.failures, status.retry_time) == ("Deploying", 1, None)
    assert deployed.pod["metadata"]["uid"] == pod
    degraded = deployed.condition("Degraded")
    assert (degraded.status, degraded.reason, degraded.message) == ("True", "SinkFailed", "what the driver said")
    assert (True, "SinkFailed") in deployed.events


def test_later_failures_wait_longer_and_longer(deployed):
    deployed.pod_fails(SAID.format("SourceFailed"))
    for failures, seconds in ((2, 15), (3, 30), (4, 60), (5, 120), (6, 240), (7, 300), (8, 300)):
        status = deployed.pod_fails(SAID.format("SourceFailed"))
        assert (status.phase, status.failures) == ("Failed", failures)
        assert status.retry_time == stamp(deployed.time + timedelta(seconds=seconds))
        assert deployed.pod is None
        assert deployed.condition("Ready").reason == "BackingOff"
        assert deployed.pass_time(seconds=seconds - 1).phase == "Failed"
        assert deployed.pass_time(seconds=1).phase == "Deploying"
    assert len(status.attempts) == 8


def test_one_run_counts_once(deployed):
    deployed.pod_fails(SAID.format("SourceFailed"))
    for _ in range(3):
        assert deployed.pass_time(seconds=5).failures == 1
    deployed.start_operator()
    assert deployed.pass_time(seconds=5).failures == 1


def test_a_driver_that_is_healthy_again_restarts(deployed):
    for _ in range(3):
        deployed.pod_fails(SAID.format("SourceFailed"))
        deployed.pass_time(minutes=5)
    assert deployed.pod_is_ready().failures == 3
    status = deployed.pass_time(seconds=61)
    assert (status.phase, status.failures) == ("Running", 0)
    assert deployed.condition("Degraded").status == "False"
    assert len(status.attempts) == 3


@pytest.mark.parametrize(("failure", "runs"), [("InvalidConfiguration", 2), ("UserCodeFailed", 4), ("OutOfMemory", 6)])
def test_what_another_run_does_not_mend_is_given_up(deployed, failure, runs):
    for _ in range(runs):
        assert deployed.pod is not None
        deployed.pod_fails(SAID.format(failure))
        deployed.pass_time(minutes=5)
    status = deployed.pass_time(hours=1)
    assert (status.phase, deployed.pod, status.retry_time) == ("Failed", None, None)
    ready, progress = deployed.condition("Ready"), deployed.condition("Progressing")
    assert (ready.reason, ready.message) == ("Failed", "what the driver said")
    assert (progress.status, progress.message) == (
        "False",
        f"given up after {runs} runs; change the spec, or spec.restartNonce, to try again",
    )
    deployed.put(changed(MINIMAL, 12, "  restartNonce: 1"))
    status = deployed.settle()
    assert (status.phase, status.failures) == ("Deploying", 0)
    assert deployed.pod is not None


def test_failures_before_it_was_healthy_do_not_count_towards_giving_up(deployed):
    for _ in range(3):
        deployed.pod_fails(SAID.format("UserCodeFailed"))
        deployed.pass_time(minutes=5)
    deployed.pod_is_ready()
    deployed.pass_time(seconds=61)
    status = deployed.pod_fails(SAID.format("UserCodeFailed"), restarts=2)
    assert (status.phase, status.failures, len(status.attempts)) == ("Deploying", 1, 4)
    assert deployed.pod is not None


def test_no_more_than_ten_attempts_are_kept(deployed):
    for _ in range(15):
        deployed.pod_fails(SAID.format("SourceFailed"))
        deployed.pass_time(minutes=5)
    assert (len(deployed.status.attempts), deployed.status.failures) == (10, 15)


def test_a_long_error_fits_into_the_status(deployed):
    said = SAID.format("UserCodeFailed").replace("what the driver said", "x" * 3000)
    assert len(deployed.pod_fails(said).attempts[0].message) == 1024


def test_a_driver_that_is_on_its_way_out_has_not_failed(deployed):
    deployed.pod["metadata"]["deletionTimestamp"] = stamp(NOW)
    assert deployed.pod_fails("it was in the middle of a batch", code=143).failures == 0


def test_to_suspend_and_resume_is_another_try(deployed):
    for _ in range(2):
        deployed.pod_fails(SAID.format("InvalidConfiguration"))
    assert deployed.status.phase == "Failed"
    deployed.put(changed(MINIMAL, 12, "  suspend: true"))
    assert deployed.settle().phase == "Suspended"
    deployed.put(MINIMAL)
    status = deployed.settle()
    assert (status.phase, status.failures) == ("Deploying", 0)
