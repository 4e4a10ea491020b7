"""Partitioner replicas in pods of their own: how many run when, and what is said of those that do not."""

import json
from datetime import timedelta

import pytest

from millrace_operator.lifecycle.autoscaling.scaling_inputs import bounds_of
from millrace_operator.lifecycle.autoscaling.scaling_status import ScalingResult
from millrace_operator.lifecycle.target import spec_to_run
from millrace_operator.resources.pod_defaults import PodDefaults
from millrace_operator.scaling.shape import Shape

from .cluster import KEY, POD, REPLICAS, SET, stamp
from .dedicated_queries import DEDICATED, INLINE, NAME, OTHER_SQL, follows, pods, ready, running, wanted

MADE = ("ServiceAccount", "Service", "NetworkPolicy", "PodDisruptionBudget", "StatefulSet")


@pytest.fixture
def inline(cluster):
    return running(cluster, INLINE)


@pytest.fixture
def dedicated(cluster):
    return running(cluster, DEDICATED)


def test_a_query_whose_replicas_are_tasks_has_no_objects_for_them(inline):
    assert [key for key in inline.objects if key[1].startswith(NAME)] == []
    assert inline.status.partitioner is None


def test_a_query_has_as_many_replicas_as_its_plan(dedicated):
    assert {kind for kind, name in dedicated.objects if name == NAME} == set(MADE)
    assert pods(dedicated) == [f"{NAME}-0", f"{NAME}-1"]
    status = dedicated.status
    assert (status.partitioner.replicas, status.partitioner.ready, status.plan.placement) == (2, 2, "Dedicated")
    dedicated.memory.scaling = ScalingResult(change=Shape(1, 8, 5), epoch=1)
    dedicated.settle()
    assert (wanted(dedicated), dedicated.status.plan.shape) == (5, "1/8/5")
    dedicated.memory.scaling = ScalingResult(change=Shape(1, 8, 1), epoch=2)
    dedicated.settle()
    assert pods(dedicated) == [f"{NAME}-0"]


def test_another_placement_is_another_plan_for_the_same_driver(inline):
    driver = inline.pod["metadata"]["uid"]
    inline.put(DEDICATED)
    inline.settle()
    assert (inline.status.plan.placement, inline.status.plan.epoch, wanted(inline)) == ("Dedicated", 2, 2)
    assert (
        json.loads(inline.objects["ConfigMap", "trips-by-cell-plan"]["data"]["plan.yaml"])["placement"] == "Dedicated"
    )
    inline.put(INLINE)
    assert inline.settle().plan.epoch == 3
    assert inline.pod["metadata"]["uid"] == driver
    assert ("drain", SET[1]) not in inline.actions


def test_replicas_stay_until_the_driver_no_longer_needs_what_they_write(dedicated):
    dedicated.put(INLINE)
    dedicated.settle()
    assert (dedicated.status.plan.placement, dedicated.status.plan.applied_epoch, wanted(dedicated)) == ("Inline", 1, 2)
    dedicated.memory.scaling = ScalingResult(change=Shape(1, 8, 4), epoch=2)
    dedicated.settle()
    assert (dedicated.status.plan.replicas, wanted(dedicated)) == (4, 2)
    follows(dedicated)
    assert (wanted(dedicated), pods(dedicated), dedicated.status.partitioner) == (0, [], None)
    dedicated.memory.scaling = ScalingResult(change=Shape(1, 8, 3), epoch=3)
    dedicated.settle()
    assert wanted(dedicated) == 0
    dedicated.put(DEDICATED)
    dedicated.settle()
    assert wanted(dedicated) == 3


def test_a_suspended_query_has_no_replicas(dedicated):
    dedicated.put(DEDICATED + "  suspend: true\n")
    assert dedicated.settle().phase == "Suspended"
    assert pods(dedicated) == []
    dedicated.put(DEDICATED)
    dedicated.settle()
    assert len(pods(dedicated)) == 2


def test_a_query_that_was_given_up_has_no_replicas(cluster):
    cluster.put(DEDICATED)
    cluster.settle()
    for _ in range(2):
        cluster.pod_fails('{"failure": "StateUnusable", "message": "no"}')
        cluster.pass_time(minutes=6)
    assert cluster.status.phase == "Failed"
    assert (wanted(cluster), pods(cluster)) == (0, [])


def test_replicas_are_replaced_with_the_driver_and_run_its_image(dedicated):
    before = dedicated.objects[REPLICAS]["spec"]["template"]
    dedicated.actions.clear()
    dedicated.put(OTHER_SQL + "  image: example.org/jobs:2\n")
    dedicated.settle()
    drained = [name for what, *name in dedicated.actions if what == "drain"]
    assert drained == [[SET[1]], [NAME]]
    after = dedicated.objects[REPLICAS]["spec"]["template"]
    images = [each["spec"]["containers"][0]["image"] for each in (before, after, dedicated.pod)]
    assert images == ["example.org/jobs", "example.org/jobs:2", "example.org/jobs:2"]


def test_another_default_image_reaches_replicas_with_the_drivers_next_start(dedicated):
    dedicated.start_operator()
    dedicated.reconciler._defaults = PodDefaults("example.org/jobs:next")
    dedicated.settle()
    image = dedicated.objects[REPLICAS]["spec"]["template"]["spec"]["containers"][0]["image"]
    assert image == "example.org/jobs"
    dedicated.reconciler.observations.object_gone(dedicated.objects.pop(POD))
    dedicated.settle()
    image = dedicated.objects[REPLICAS]["spec"]["template"]["spec"]["containers"][0]["image"]
    assert image == dedicated.pod["spec"]["containers"][0]["image"] == "example.org/jobs:next"


def test_another_size_of_replicas_leaves_the_driver(dedicated):
    driver = dedicated.pod["metadata"]["uid"]
    larger = DEDICATED.replace("Dedicated}", "Dedicated, pod: {cores: 3, memory: 2g}}")
    dedicated.put(larger)
    dedicated.settle()
    (container,) = dedicated.objects[REPLICAS]["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": "3", "memory": "2Gi"}
    assert dedicated.pod["metadata"]["uid"] == driver


def test_what_the_api_server_would_refuse_of_replicas_drains_nothing(dedicated):
    driver = dedicated.pod["metadata"]["uid"]
    bad = OTHER_SQL.replace(
        "Dedicated}", "Dedicated, pod: {podTemplate: {spec: {nodeSelector: {'not a label': ssd}}}}}"
    )
    dedicated.put(bad)
    dedicated.settle()
    assert dedicated.condition("Ready").reason == "InvalidQuery"
    assert dedicated.pod["metadata"]["uid"] == driver
    assert wanted(dedicated) == 2


def test_a_stateful_set_of_an_earlier_query_of_the_same_name_is_not_this_ones(inline):
    inline.put(DEDICATED)
    inline.settle()
    inline.objects[REPLICAS]["metadata"]["ownerReferences"][0]["uid"] = "another"
    inline.put(INLINE)
    inline.actions.clear()
    inline.settle()
    assert not any(name == [*REPLICAS] for what, *name in inline.actions if what == "apply")
    assert wanted(inline) == 2


def test_replicas_leave_with_a_query_that_is_deleted(dedicated):
    dedicated.actions.clear()
    dedicated.delete()
    dedicated.settle()
    assert [name for what, *name in dedicated.actions if what == "drain"] == [[SET[1]], [NAME]]
    assert dedicated.objects == {}


def test_replicas_that_are_not_ready_become_a_fault(dedicated):
    dedicated.memory.scaling = ScalingResult(change=Shape(1, 8, 3), epoch=1)
    status = dedicated.settle()
    assert (status.phase, status.partitioner.ready) == ("Running", 2)
    assert status.partitioner.not_ready_since == stamp(dedicated.time)
    dedicated.pass_time(minutes=4)
    assert dedicated.condition("Degraded").status == "False"
    dedicated.pass_time(minutes=1)
    degraded = dedicated.condition("Degraded")
    assert (degraded.reason, degraded.message) == (
        "ReplicasNotReady",
        f"partitioner replica {NAME}-2: the partitioner is starting",
    )
    ready(dedicated, 2)
    assert dedicated.condition("Degraded").status == "False"
    assert dedicated.status.partitioner.not_ready_since is None


def test_replicas_that_end_or_roll_one_after_the_other_are_no_fault(dedicated):
    dedicated.memory.scaling = ScalingResult(change=Shape(1, 8, 8), epoch=1)
    dedicated.settle()
    ready(dedicated, *range(2, 8))
    for number in reversed(range(8)):
        dedicated.pod_shows(("Pod", f"{NAME}-{number}"))
        assert dedicated.status.partitioner.ready == 7
        dedicated.pass_time(seconds=50)
        assert dedicated.condition("Degraded").status == "False"
        dedicated.pod_is_ready(("Pod", f"{NAME}-{number}"))
    dedicated.control = lambda: None  # the pod of the last takes its time
    dedicated.objects["Pod", f"{NAME}-7"]["metadata"]["deletionTimestamp"] = stamp(
        dedicated.time + timedelta(minutes=9)
    )
    dedicated.memory.scaling = ScalingResult(change=Shape(1, 8, 7), epoch=2)
    dedicated.settle()
    dedicated.pass_time(minutes=8)
    assert dedicated.condition("Degraded").status == "False"


def test_a_pod_that_ends_is_not_the_one_that_is_missing(dedicated):
    dedicated.control = lambda: None
    dedicated.objects["Pod", f"{NAME}-1"]["metadata"]["deletionTimestamp"] = stamp(
        dedicated.time + timedelta(minutes=9)
    )
    dedicated.settle()
    dedicated.pass_time(minutes=5)
    assert dedicated.condition("Degraded").message.startswith("1 of 2 partitioner pods exist")


def test_pods_that_are_never_made_are_a_fault(dedicated):
    dedicated.control = lambda: None
    dedicated.memory.scaling = ScalingResult(change=Shape(1, 8, 4), epoch=1)
    dedicated.settle()
    dedicated.pass_time(minutes=5)
    assert dedicated.condition("Degraded").message == (
        "2 of 4 partitioner pods exist: see the events of their StatefulSet"
    )


def test_a_replica_that_fails_again_and_again_is_a_fault_with_its_own_error(dedicated):
    pod = ("Pod", f"{NAME}-1")
    dedicated.pod_fails("a chance", key=pod)
    assert dedicated.condition("Degraded").status == "False"
    dedicated.pod_fails('{"failure": "SourceFailed", "message": "no broker"}', restarts=2, key=pod)
    degraded = dedicated.condition("Degraded")
    assert (degraded.status, degraded.reason) == ("True", "SourceFailed")
    assert degraded.message == f"partitioner replica {NAME}-1: failed 2 times, last with: no broker"
    assert (True, "SourceFailed") in dedicated.events
    assert dedicated.status.phase == "Running"


@pytest.mark.parametrize(
    ("ended", "reason", "said"),
    [
        ({"reason": "OOMKilled", "code": 137}, "OutOfMemory", "raise spec.partitioner.pod.memory"),
        ({"message": "last lines of the log"}, "ReplicaFailed", "last with: last lines of the log"),
    ],
)
def test_a_failing_replica_has_its_class_and_message(dedicated, ended, reason, said):
    dedicated.pod_fails(**ended, restarts=5, key=("Pod", f"{NAME}-0"))
    assert dedicated.condition("Degraded").reason == reason
    assert dedicated.condition("Degraded").message.endswith(said)


def test_a_replica_counts_as_well_after_a_minute(dedicated):
    dedicated.pod_fails("no", restarts=3, key=("Pod", f"{NAME}-0"))
    state = dedicated.objects["Pod", f"{NAME}-0"]["status"]["containerStatuses"]
    now = {"type": "Ready", "status": "True", "lastTransitionTime": stamp(dedicated.time)}
    dedicated.pod_shows(("Pod", f"{NAME}-0"), conditions=[now], containerStatuses=state)
    assert dedicated.condition("Degraded").status == "True"
    dedicated.pass_time(seconds=60)
    assert dedicated.condition("Degraded").status == "False"


def test_an_image_that_cannot_be_pulled_is_a_fault_at_once(dedicated):
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    dedicated.pod_shows(
        ("Pod", f"{NAME}-0"), containerStatuses=[{"name": "partitioner", "state": {"waiting": waiting}}]
    )
    assert dedicated.condition("Degraded").reason == "ImageUnavailable"


def test_replicas_that_wait_for_the_driver_are_no_fault(cluster):
    cluster.put(DEDICATED)
    cluster.settle()
    cluster.pass_time(minutes=9)
    assert cluster.condition("Degraded").status == "False"
    cluster.pod_is_ready()
    cluster.pass_time(minutes=4)
    assert cluster.condition("Degraded").status == "False"
    cluster.pass_time(minutes=1)
    assert cluster.condition("Degraded").reason == "ReplicasNotReady"


def test_the_reconciler_looks_again_when_something_may_have_become_a_fault(dedicated):
    dedicated.memory.scaling = ScalingResult(change=Shape(1, 8, 3), epoch=1)
    dedicated.settle()
    later = []
    dedicated.reconciler.queue.add_later = lambda key, seconds: later.append(seconds)
    dedicated.reconciler.reconcile(KEY)
    assert min(later) <= 300.5


def test_scaling_counts_the_cores_of_replicas_in_pods_of_their_own(inline):
    def cores():
        observed = inline.reconciler.observations.of(KEY)
        query = inline.reconciler.query_of(KEY, observed)
        return bounds_of(spec_to_run(observed, query.spec)).replica_cores

    assert cores() == 0
    inline.put(DEDICATED.replace("Dedicated}", "Dedicated, pod: {cores: 3}}"))
    inline.settle()
    assert cores() == 3
