"""Sequences of events that happen in production, and what must not come of them."""

from datetime import timedelta

import pytest

from millrace_operator.lifecycle.objects.as_applied import has_all_of
from unit.api.documents import MINIMAL, changed

from .cluster import KEY, POD, stamp

BROKEN = changed(MINIMAL, 10, "    sql: SELECT cel FROM trips")
OTHER_SQL = changed(MINIMAL, 10, "    sql: SELECT cell, count(*) AS trips FROM trips GROUP BY cell")
SUSPENDED = "  suspend: true\n"
LARGE = "  executors: {initial: 20, max: 32}\n  parallelism: {initial: 40, max: 64}\n"
HEALTHY = ("ConfigMap", "trips-by-cell-healthy")


def runs(cluster):
    return cluster.pod["metadata"]["annotations"]["millrace.io/revision"]


@pytest.fixture
def healthy(cluster):
    """A query whose driver has been ready for long enough."""
    cluster.put(MINIMAL)
    cluster.settle()
    cluster.pod_is_ready()
    cluster.pass_time(seconds=61)
    return cluster


def fails(cluster, failure="UserCodeFailed", times=3):
    for _ in range(times):
        cluster.pod_fails(f'{{"failure": "{failure}", "message": "no"}}')
        cluster.pass_time(minutes=6)


def test_a_rollback_keeps_what_needs_no_other_driver(healthy):
    healthy.put(MINIMAL + LARGE)
    assert healthy.settle().plan.shape == "20/40/2"
    healthy.put(OTHER_SQL + LARGE)
    healthy.settle()
    fails(healthy)
    assert healthy.status.rejected is not None
    assert healthy.status.plan.shape == "20/40/2"
    healthy.put(OTHER_SQL + LARGE.replace("initial: 20", "initial: 30"))
    assert healthy.settle().plan.shape == "30/40/2"


def test_a_driver_whose_pod_is_never_made_is_rolled_back(healthy):
    before = runs(healthy)
    healthy.put(changed(MINIMAL, 12, "  serviceAccountName: nobody"))
    control = healthy.control

    def refuse():
        wanted = healthy.objects[("StatefulSet", "trips-by-cell-driver")]["spec"]
        if wanted["template"]["spec"]["serviceAccountName"] != "nobody" or not wanted["replicas"]:
            control()

    healthy.control = refuse
    assert healthy.settle().phase == "Deploying"
    healthy.pass_time(minutes=3)
    degraded = healthy.condition("Degraded")
    assert (degraded.status, degraded.message) == (
        "True",
        "the driver's pod is missing: see the events of its StatefulSet",
    )
    healthy.pass_time(minutes=8)
    assert healthy.status.rejected is not None
    assert runs(healthy) == before


def test_what_the_api_server_would_refuse_drains_nothing(healthy):
    pod = healthy.pod["metadata"]["uid"]
    healthy.put(changed(MINIMAL, 12, "  driver: {podTemplate: {spec: {nodeSelector: {'not a label': ssd}}}}"))
    assert healthy.settle().phase == "Running"
    ready = healthy.condition("Ready")
    assert (ready.reason, ready.message) == (
        "InvalidQuery",
        "spec.template.spec.nodeSelector: Invalid value: 'not a label'",
    )
    assert healthy.pod["metadata"]["uid"] == pod
    healthy.put(OTHER_SQL)
    assert healthy.settle().phase == "Deploying"


def test_a_failure_of_another_class_after_many_is_not_the_last(cluster):
    cluster.put(MINIMAL)
    cluster.settle()
    fails(cluster, "SourceFailed", 8)
    status = cluster.pod_fails(code=137)
    assert (status.failures, status.attempts[-1].reason) == (9, "Hung")
    assert cluster.pass_time(minutes=6).phase == "Deploying"


def test_a_change_while_the_source_is_away_is_not_rejected(healthy):
    healthy.put(OTHER_SQL)
    healthy.settle()
    fails(healthy, "SourceFailed", 5)
    assert healthy.status.rejected is None


def test_an_evicted_driver_has_lost_its_node(cluster):
    cluster.put(MINIMAL)
    cluster.settle()
    ended = {"exitCode": 137, "finishedAt": stamp(cluster.time), "containerID": "a"}
    state = {"name": "driver", "state": {"terminated": ended}}
    disrupted = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": stamp(cluster.time)}
    status = cluster.pod_shows(
        phase="Failed", reason="Evicted", message="low on disk", containerStatuses=[state], conditions=[disrupted]
    )
    assert [each.reason for each in status.attempts] == ["NodeLost"]


def test_an_invalid_change_in_the_middle_of_a_replacement_leaves_the_last_healthy_spec_running(healthy):
    before = runs(healthy)
    healthy.put(OTHER_SQL)
    control, healthy.control = healthy.control, lambda: None
    healthy.settle()  # drained, as far as the operator goes
    healthy.put(BROKEN)
    healthy.control = control
    healthy.settle()
    assert runs(healthy) == before
    assert healthy.condition("Ready").reason == "InvalidQuery"
    assert healthy.pod_is_ready().phase == "Running"


def test_a_driver_that_does_not_end_on_a_lost_node_is_told_of(healthy):
    healthy.pod["metadata"]["deletionTimestamp"] = stamp(healthy.time)
    healthy.pod["spec"]["nodeName"] = "node-7"
    healthy.control = lambda: None
    healthy._changed(healthy.pod)
    healthy.settle()
    assert healthy.condition("Degraded").status == "False"
    healthy.pass_time(minutes=2)
    degraded = healthy.condition("Degraded")
    assert (degraded.status, degraded.reason) == ("True", "NodeLost")
    assert "should have ended by 2026-01-31T12:" in degraded.message
    assert "node node-7 does not respond" in degraded.message


def test_a_lost_node_is_told_of_also_when_a_suspended_spec_has_become_invalid(healthy):
    healthy.control = lambda: None
    healthy.pod["metadata"]["deletionTimestamp"] = stamp(healthy.time)
    healthy._changed(healthy.pod)
    healthy.put(MINIMAL + SUSPENDED)
    healthy.settle()
    healthy.put(BROKEN + SUSPENDED)
    healthy.show()
    healthy.reconciler.queue.add(healthy.key)
    assert healthy.reconciler.queue.get() == healthy.key  # what was due before is due no longer
    healthy.settle()
    healthy.reconciler.queue.done(healthy.key)
    healthy.pass_time(minutes=2)
    assert healthy.condition("Degraded").reason == "NodeLost"


def test_a_rolled_back_query_whose_healthy_spec_is_lost_is_left_alone(healthy):
    healthy.put(OTHER_SQL)
    healthy.settle()
    fails(healthy)
    healthy.pod_is_ready()
    before = runs(healthy)
    healthy.reconciler.observations.object_gone(healthy.objects.pop(HEALTHY))
    healthy.pass_time(minutes=1)
    assert runs(healthy) == before
    assert healthy.condition("Progressing").message.startswith("the last healthy spec, which runs, is lost")


def test_objects_of_a_former_query_of_the_name_are_not_believed(healthy):
    body, healthy.query = healthy.query, None
    healthy.reconciler.observations.query_gone(body)
    healthy.put(OTHER_SQL)
    healthy.query["metadata"]["uid"] = "another"
    seen = healthy.reconciler.observations
    seen.query_seen(healthy.query)
    of_it = seen.of(KEY)
    assert (of_it.plan, of_it.healthy, of_it.plan_settings) == (None, None, None)


def test_a_node_whose_clock_is_ahead_delays_nothing(cluster):
    cluster.put(MINIMAL)
    cluster.settle()
    cluster.pod_fails()
    cluster.time += timedelta(hours=1)
    late = stamp(cluster.time)
    cluster.time -= timedelta(hours=1)
    ended = {"exitCode": 1, "finishedAt": late, "containerID": "b"}
    status = cluster.pod_shows(containerStatuses=[{"name": "driver", "lastState": {"terminated": ended}}])
    assert status.retry_time == stamp(cluster.time + timedelta(seconds=15))


def test_nobody_is_woken_again_and_again_for_a_driver_that_waits_for_a_node(cluster, monkeypatch):
    cluster.put(MINIMAL)
    cluster.settle()
    pauses = []
    monkeypatch.setattr(cluster.reconciler.queue, "add_later", lambda key, pause: pauses.append(pause))
    cluster.pass_time(minutes=30)
    assert all(pause > 1 for pause in pauses[-2:])


def test_a_pod_that_is_gone_with_its_query_leaves_nothing_behind(healthy):
    healthy.delete()
    healthy.settle()
    assert healthy.reconciler.observations.of(KEY) is None
    assert POD not in healthy.objects


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ({"memory": "7Gi"}, {"memory": "7168Mi"}),
        ({"cpu": "1"}, {"cpu": "1000m"}),
        ({}, {"tolerations": []}),
        ({}, {"hostNetwork": False}),
        ({}, {"value": ""}),
        ({}, {"emptyDir": {}}),
    ],
)
def test_what_the_api_server_writes_in_another_way_is_the_same(found, wanted):
    assert has_all_of(found, wanted)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ({"memory": "6Gi"}, {"memory": "7168Mi"}),
        ({"name": "1"}, {"name": "1000m"}),
        ({}, {"replicas": 0}),
        ({}, {"value": "a"}),
        ({"value": "a"}, {"value": ""}),
        ({"memory": None}, {"memory": "much"}),
    ],
)
def test_other_values_of_an_object_are_a_difference(found, wanted):
    assert not has_all_of(found, wanted)


def test_a_driver_that_does_not_end_when_it_has_to_is_reported(healthy):
    """A suspended query, whose driver's node is lost: no event comes, so that the operator has to look by itself."""
    healthy.control = lambda: None
    healthy.put(changed(MINIMAL, 12, "  suspend: true"))
    healthy.pod["metadata"]["deletionTimestamp"] = stamp(healthy.time)
    healthy.settle()
    assert healthy.condition("Degraded").status == "False"
    healthy.pass_time(minutes=2)
    degraded = healthy.condition("Degraded")
    assert (degraded.status, degraded.reason) == ("True", "NodeLost")


def test_a_pause_ends_although_the_failed_driver_is_still_there(healthy):
    healthy.pod_fails('{"failure": "SourceFailed", "message": "no"}')
    healthy.control = lambda: None
    assert healthy.pod_fails('{"failure": "SourceFailed", "message": "no"}', restarts=2).phase == "Failed"
    status = healthy.pass_time(seconds=15)
    assert (status.phase, status.retry_time) == ("Deploying", None)
    assert healthy.objects["StatefulSet", "trips-by-cell-driver"]["spec"]["replicas"] == 1


def test_a_paused_query_has_no_time_for_a_retry_that_has_passed(healthy):
    for _ in range(2):
        status = healthy.pod_fails('{"failure": "SourceFailed", "message": "no"}')
    assert status.retry_time is not None
    healthy.put(MINIMAL, annotations={"millrace.io/paused": "true"})
    assert healthy.settle().retry_time is not None
    assert healthy.pass_time(seconds=15).retry_time is None


def test_a_paused_query_is_healthy_again_without_an_event(healthy):
    healthy.pod_fails('{"failure": "SourceFailed", "message": "no"}')
    healthy.pod_is_ready()
    healthy.put(MINIMAL, annotations={"millrace.io/paused": "true"})
    assert healthy.settle().failures == 1
    assert healthy.pass_time(seconds=60).failures == 0
    assert healthy.condition("Degraded").status == "False"
