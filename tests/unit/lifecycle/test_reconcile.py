"""One step for one query: what is written, and that nothing is where nothing has changed."""

import copy

import pytest

from millrace_api.model.status import ConditionType
from millrace_operator.lifecycle.events import EVENTS_OF_NAMESPACE, event_bucket
from millrace_operator.lifecycle.query_memory import ApplyBackoff
from millrace_operator.lifecycle.reconcile import REQUESTS, UNSEEN_SECONDS
from unit.api.documents import MINIMAL, changed

from .cluster import KEY

BROKEN = changed(MINIMAL, 10, "    sql: SELECT cel FROM trips")
SUSPENDED = changed(MINIMAL, 12, "  suspend: true")


def see(cluster, text):
    """Apply it, and let the operator work; the status that came of it."""
    cluster.put(text)
    return cluster.settle()


def applied(cluster):
    return [action[1:] for action in cluster.actions if action[0] == "apply"]


def ready_of(cluster):
    return cluster.condition("Ready")


def test_a_valid_query_is_deployed(cluster):
    status = see(cluster, MINIMAL)
    assert (status.phase, status.observed_generation) == ("Deploying", 1)
    assert [(c.type, c.status, c.reason) for c in status.conditions] == [
        ("Ready", "False", "Deploying"),
        ("Progressing", "True", "Deploying"),
        ("UpstreamReady", "True", "NoUpstream"),
        ("MetricsAvailable", "Unknown", "NotRunning"),
        ("ScalingLimited", "Unknown", "NotRunning"),
        ("ScalingIneffective", "Unknown", "NotRunning"),
        ("ScalingActive", "False", "NotRunning"),
        ("Degraded", "False", "AsExpected"),
    ]
    assert (status.plan.shape, status.selector) == (
        "1/8/2",
        "millrace.io/query=trips-by-cell,millrace.io/role=executor",
    )
    assert cluster.events == []
    assert len(applied(cluster)) == 9
    assert applied(cluster)[-1] == ("StatefulSet", "trips-by-cell-driver")
    assert cluster.query["metadata"]["finalizers"] == ["millrace.io/drain"]


def test_what_is_about_to_be_done_is_in_the_status_before_it_is_done(cluster):
    cluster.put(MINIMAL)
    cluster.dies_at = 3  # after the status, its event, and the finalizer
    with pytest.raises(ConnectionError):
        cluster.settle()
    progress = cluster.condition("Progressing")
    assert (progress.status, progress.reason) == ("True", "Applying")
    assert "StatefulSet trips-by-cell-driver" in progress.message
    assert applied(cluster) == []


def test_nothing_of_an_invalid_query_is_deployed(cluster):
    see(cluster, BROKEN)
    see(cluster, changed(MINIMAL, 12, "  sparkConf: {spark.master: local}"))
    assert applied(cluster) == []
    assert cluster.events == [(True, "InvalidQuery")]


def test_a_query_is_running_when_its_driver_is_ready_and_says_what_it_waits_for_before(cluster):
    see(cluster, MINIMAL)
    waiting = {"name": "driver", "restartCount": 2, "state": {"waiting": {"reason": "ErrImagePull", "message": "no"}}}
    unscheduled = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
    for found, message in (
        ({}, "the driver is starting"),
        ({"conditions": [unscheduled]}, "the driver cannot be scheduled: 0/3 nodes are available"),
        ({"containerStatuses": [waiting]}, "container driver: ErrImagePull: no"),
    ):
        cluster.pod_shows(**found)
        assert (ready_of(cluster).reason, ready_of(cluster).message) == ("Deploying", message)
    status = cluster.pod_is_ready()
    assert (status.phase, ready_of(cluster).status, status.driver.pod) == ("Running", "True", "trips-by-cell-driver-0")
    assert cluster.condition("Progressing").reason == "Settled"
    assert see(cluster, BROKEN).phase == "Running"
    assert len(applied(cluster)) == 9


def test_a_suspended_query_drains_and_is_suspended_and_comes_back(cluster):
    see(cluster, MINIMAL)
    cluster.pod_is_ready()
    assert see(cluster, SUSPENDED).phase == "Suspended"
    phases = [action[1] for action in cluster.actions if action[0] == "status"]
    assert phases[-2:] == ["Draining", "Suspended"]
    assert cluster.pod is None
    assert see(cluster, MINIMAL).phase == "Deploying"
    assert cluster.pod_is_ready().phase == "Running"


def test_what_somebody_takes_away_or_changes_is_put_right(cluster):
    see(cluster, MINIMAL)
    service = cluster.objects.pop(("Service", "trips-by-cell-driver"))
    cluster.reconciler.observations.object_gone(service)
    budget = cluster.objects["PodDisruptionBudget", "trips-by-cell-exec"]
    budget["spec"]["minAvailable"] = 7
    budget["spec"]["unhealthyPodEvictionPolicy"] = "IfHealthyBudget"
    cluster.actions.clear()
    cluster.settle()
    assert applied(cluster) == [("Service", "trips-by-cell-driver"), ("PodDisruptionBudget", "trips-by-cell-exec")]


def test_a_paused_query_is_left_as_it_is(cluster):
    see(cluster, MINIMAL)
    cluster.pod_is_ready()
    service = cluster.objects.pop(("Service", "trips-by-cell-driver"))
    cluster.reconciler.observations.object_gone(service)
    cluster.put(changed(MINIMAL, 12, "  image: example.org/other"), annotations={"millrace.io/paused": "true"})
    assert cluster.settle().phase == "Running"
    assert cluster.condition("Progressing").reason == "Paused"
    assert len(applied(cluster)) == 9
    cluster.put(changed(MINIMAL, 12, "  image: example.org/other"), annotations={"millrace.io/paused": "false"})
    assert cluster.settle().phase == "Deploying"
    assert cluster.pod["spec"]["containers"][0]["image"] == "example.org/other"


def test_whoever_fights_over_an_object_is_met_more_and_more_seldom():
    now = 0.0
    rounds = ApplyBackoff()
    begun = []
    for _ in range(20_000):
        if not rounds.wait("a", now):
            begun.append(now)
        now += 0.1
    assert len(begun) < 20
    assert rounds.wait("a", now) > 0
    assert rounds.wait("b", now) == 0
    now += 1000
    assert rounds.wait("b", now) == 0
    assert 0 < rounds.wait("b", now) <= ApplyBackoff.FIRST


def test_events_come_in_a_burst_and_then_seldom():
    now = 0.0
    events = event_bucket()
    assert sum(events.take(now) for _ in range(100)) == events.burst
    allowed = 0
    for _ in range(100):
        now += 10
        allowed += events.take(now)
    assert allowed == 1000 // events.seconds_each


def test_all_queries_of_a_namespace_share_its_events(cluster):
    cluster.reconciler._events.spend(KEY.namespace, EVENTS_OF_NAMESPACE + 1000)
    cluster.put(MINIMAL.replace("SELECT", "SELECTED"))
    cluster.settle()
    assert (cluster.condition("Ready").reason, cluster.events) == ("InvalidQuery", [])


def test_a_namespace_that_has_spent_its_requests_waits_for_more(cluster):
    cluster.put(MINIMAL)
    cluster.reconciler._requests.spend(KEY.namespace, REQUESTS + 1)
    cluster.reconciler.reconcile(KEY)
    assert cluster.actions == []
    cluster.reconciler._requests._buckets.clear()
    cluster.settle()
    assert cluster.status.phase == "Deploying"
    assert cluster.reconciler._requests.wait(KEY.namespace) == 0
    cluster.reconciler._requests.spend("another", REQUESTS)
    assert cluster.reconciler._requests.wait("another") > 0
    assert cluster.reconciler._requests.wait(KEY.namespace) == 0


def test_what_is_wrong_is_in_the_condition_with_its_place(cluster):
    see(cluster, BROKEN)
    ready = ready_of(cluster)
    assert (ready.type, ready.reason) == (ConditionType.READY, "InvalidQuery")
    said = 'spec.query.sql: there is no column "cel" (line 1, column 8 of the SQL); did you mean "cell"?'
    assert ready.message == said
    assert cluster.events == [(True, "InvalidQuery")]


def test_every_problem_is_told_but_never_more_than_a_status_holds(cluster):
    many = ", ".join(f"missing_{n}" for n in range(200))
    see(cluster, changed(MINIMAL, 10, f"    sql: SELECT {many} FROM trips"))
    message = ready_of(cluster).message
    assert '"missing_0"' in message
    assert '"missing_1"' in message
    assert len(message) <= 1024


def test_nothing_is_written_where_nothing_has_changed(cluster):
    see(cluster, BROKEN)
    see(cluster, MINIMAL)
    cluster.pod_is_ready()
    cluster.pass_time(minutes=2)
    done = len(cluster.actions)
    for _ in range(3):
        cluster.pass_time(minutes=1)
    cluster.start_operator()
    cluster.pass_time(minutes=1)
    assert cluster.actions[done:] == []


def test_a_condition_keeps_the_time_of_its_change_while_its_status_stays(cluster):
    see(cluster, BROKEN)
    cluster.pass_time(hours=1)
    status = see(cluster, MINIMAL)
    ready = ready_of(cluster)
    assert status.observed_generation == 2
    assert (ready.reason, ready.last_transition_time) == ("Deploying", "2026-01-31T12:00:00Z")
    assert cluster.events == [(True, "InvalidQuery"), (False, "Deploying")]


def test_a_status_of_another_version_is_replaced(cluster):
    cluster.put(MINIMAL)
    cluster.query["status"] = {"phase": "Dreaming", "color": "blue"}
    assert cluster.settle().phase == "Deploying"


def test_a_query_that_is_gone_is_left_alone(cluster):
    cluster.put(MINIMAL)
    cluster.reconciler.observations.query_seen(cluster.query)
    body, cluster.query = cluster.query, None
    cluster.reconciler.reconcile(KEY)
    assert cluster.events == []
    cluster.reconciler.observations.query_gone(body)
    cluster.reconciler.reconcile(KEY)
    assert cluster.reconciler.observations.of(KEY) is None


def test_the_end_of_an_older_object_of_the_name_is_not_the_end_of_this_one(cluster):
    older = cluster.put(MINIMAL)
    newer = copy.deepcopy(older)
    newer["metadata"] |= {"uid": "another", "resourceVersion": "1000"}
    cluster.reconciler.observations.query_seen(newer)
    cluster.reconciler.observations.query_gone(older)
    assert cluster.reconciler.observations.of(KEY).owner.uid == "another"


def test_an_older_state_of_an_object_does_not_hide_a_newer_one(cluster):
    see(cluster, MINIMAL)
    older = copy.deepcopy(cluster.pod)
    cluster.pod_is_ready()
    cluster.reconciler.observations.object_seen(older)
    assert cluster.reconciler.observations.of(KEY).driver["status"] == cluster.pod["status"]


def test_a_request_that_fails_is_not_taken_for_somebody_who_changes_things_back(cluster):
    cluster.put(MINIMAL)
    for deaths in range(5):
        cluster.show()
        cluster.dies_at = 2 if deaths == 0 else 0
        with pytest.raises(ConnectionError):
            cluster.reconciler.reconcile(KEY)
    cluster.dies_at = None
    cluster.show()
    cluster.reconciler.reconcile(KEY)  # makes the Secret that the objects name
    cluster.reconciler.reconcile(KEY)
    assert len(applied(cluster)) == 9


def test_a_query_whose_objects_cannot_be_listed_yet_is_left_alone(cluster):
    cluster.put(MINIMAL)
    cluster.settle()
    cluster.actions.clear()
    cluster.metrics.watches.of("pods", KEY.namespace).refuse()
    for kind_and_name in list(cluster.objects):
        cluster.reconciler.observations.object_gone(cluster.objects[kind_and_name])
    cluster.put(changed(MINIMAL, 12, "  executors: {initial: 5}"))
    cluster.reconciler.reconcile(KEY)
    assert (cluster.actions, cluster.status.plan.executors) == ([], 1)
    cluster.pass_time(seconds=UNSEEN_SECONDS)
    assert cluster.actions == []
    cluster.metrics.watches.of("pods", KEY.namespace).heard(1)
    cluster.pass_time(seconds=UNSEEN_SECONDS)
    assert cluster.status.plan.executors == 5
