"""Pods that wait in the queue of a batch scheduler: they are named as what they are, and a spec that asks for the same waits."""

from contextlib import suppress

import pytest

from unit.resources.cases import SMALLEST

from .cluster import POD, stamp

QUERY = SMALLEST + "  scaling: {mode: 'Off'}\n  executors: {initial: 2, min: 2}\n"
KUEUE = QUERY + "  scheduling: {scheduler: Kueue, queue: team-a}\n"
VOLCANO = QUERY + "  scheduling: {scheduler: Volcano, queue: team-a}\n"
SQL = KUEUE.replace("count(*) AS n", "count(*) AS trips")
YUNIKORN = QUERY + "  scheduling: {scheduler: YuniKorn, queue: root.team-a}\n"
LARGER = "  driver: {memory: 64g}\n"
NO_NODE = "0/3 nodes are available: 3 Insufficient memory."
GATED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}
GROUP = ("PodGroup", "trips-by-cell")
WAITS = "waits for quota in queue team-a of Kueue"


def is_gated(cluster, key=POD):
    """Let Kueue hold a pod back, as its webhook does when the pod is created."""
    cluster.objects[key]["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    cluster.pod_shows(key, phase="Pending", conditions=[GATED])


def is_admitted(cluster, key=POD):
    """Let Kueue take its gate away; the pod gets a node, and its image is pulled."""
    cluster.objects[key]["spec"] |= {"schedulingGates": [], "nodeName": "a"}
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(cluster.time)}
    waiting = {"reason": "ContainerCreating"}
    name = "driver" if key == POD else "executor"
    cluster.pod_shows(
        key, phase="Pending", conditions=[scheduled], containerStatuses=[{"name": name, "state": {"waiting": waiting}}]
    )


def is_unschedulable(cluster, message, key=POD):
    cluster.objects[key]["spec"]["schedulingGates"] = []
    found = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    cluster.pod_shows(key, phase="Pending", conditions=[found])


def waiting_executor(cluster, number):
    key = cluster.executor(number, runs=False)
    cluster.objects[key]["metadata"].setdefault("labels", {})["kueue.x-k8s.io/queue-name"] = "team-a"
    is_gated(cluster, key)
    return key


@pytest.fixture
def deployed(cluster):
    """A query whose driver's pod has been created."""
    cluster.put(KUEUE)
    cluster.settle()
    return cluster


@pytest.fixture
def healthy(deployed):
    """A query that has been ready for long enough."""
    deployed.driver_starts()
    deployed.executor(0)
    deployed.executor(1)
    deployed.pod_is_ready()
    deployed.pass_time(seconds=61)
    return deployed


def runs(cluster):
    return cluster.pod["metadata"]["annotations"]["millrace.io/revision"]


def change(cluster, text):
    before = runs(cluster)
    cluster.put(text)
    cluster.settle()
    return before, runs(cluster)


def test_a_driver_that_waits_for_quota_is_queued_and_not_degraded(deployed):
    is_gated(deployed)
    deployed.pass_time(hours=3)
    ready = deployed.condition("Ready")
    assert (ready.status, ready.reason, ready.message) == ("False", "Queued", f"the driver {WAITS}")
    assert deployed.condition("Degraded").status == "False"
    assert not deployed.status.attempts


def test_a_changed_spec_that_asks_for_the_same_waits_for_quota_as_long_as_it_takes(healthy):
    before, changed = change(healthy, SQL)
    is_gated(healthy)
    healthy.pass_time(hours=3)
    assert (runs(healthy), healthy.status.rejected) == (changed, None)
    assert changed != before


@pytest.mark.parametrize(
    "text",
    [
        KUEUE.replace("team-a", "team-typo"),
        KUEUE.replace("team-a", "team-a, priorityClass: urgent"),
        KUEUE + LARGER,
        KUEUE.replace("min: 2}", "min: 2, memory: 64g}"),
    ],
)
def test_a_changed_spec_that_asks_for_something_else_and_is_not_admitted_is_rolled_back(healthy, text):
    before, changed = change(healthy, text)
    is_gated(healthy)
    healthy.pass_time(minutes=29)
    assert runs(healthy) == changed
    healthy.pass_time(minutes=2)
    assert runs(healthy) == before
    assert "not admitted within 30 minutes: the driver waits for quota" in healthy.status.rejected.message
    assert healthy.condition("Degraded").reason == "RolledBack"


def test_a_changed_spec_has_ten_minutes_to_start_from_its_admission(healthy):
    before, changed = change(healthy, KUEUE + LARGER)
    is_gated(healthy)
    healthy.pass_time(minutes=29)
    is_admitted(healthy)
    healthy.pass_time(minutes=9)
    assert (runs(healthy), healthy.status.rejected) == (changed, None), "the time to start begins with the admission"
    healthy.pass_time(minutes=2)
    assert runs(healthy) == before
    assert "not ready within 10 minutes" in healthy.status.rejected.message


def test_a_changed_spec_that_has_waited_for_quota_has_the_same_time_for_its_runs(healthy):
    before, changed = change(healthy, KUEUE.replace("topic: trips}", "topic: rides}"))
    is_gated(healthy)
    healthy.pass_time(hours=3)
    is_admitted(healthy)
    healthy.pass_time(seconds=20)
    healthy.pod_fails('{"failure": "SourceMissing", "message": "no topic rides"}')
    healthy.pass_time(minutes=9)
    assert runs(healthy) == changed
    healthy.pass_time(minutes=2)
    assert runs(healthy) == before


def test_a_changed_spec_whose_driver_is_admitted_and_finds_no_node_is_rolled_back(healthy):
    before, changed = change(healthy, KUEUE + LARGER)
    is_gated(healthy)
    healthy.pass_time(minutes=20)
    is_unschedulable(healthy, NO_NODE)
    healthy.pass_time(minutes=9)
    assert runs(healthy) == changed, "the time to start begins with the admission"
    healthy.pass_time(minutes=2)
    assert runs(healthy) == before
    assert NO_NODE in healthy.status.rejected.message


def test_a_changed_spec_whose_executors_are_admitted_and_find_no_node_is_rolled_back(healthy):
    before, changed = change(healthy, KUEUE.replace("min: 2}", "min: 2, memory: 64g}"))
    is_admitted(healthy)
    healthy.driver_starts()
    key = waiting_executor(healthy, 6)
    healthy.pass_time(hours=1)
    is_unschedulable(healthy, NO_NODE, key)
    healthy.pass_time(minutes=9)
    assert runs(healthy) == changed, "the time to start begins with the admission"
    healthy.pass_time(minutes=2)
    assert runs(healthy) == before


def test_executors_that_wait_for_quota_before_the_first_batch_are_queued(healthy):
    _, changed = change(healthy, KUEUE + LARGER)
    is_admitted(healthy)
    healthy.driver_starts()
    healthy.executor(5)
    key = waiting_executor(healthy, 6)
    ready = healthy.condition("Ready")
    assert (ready.reason, ready.message) == (
        "Queued",
        f"the driver's first batch has not finished; 1 of 2 executors run: {key[1]}: the executor {WAITS}",
    )
    healthy.pass_time(hours=1)
    assert runs(healthy) == changed
    degraded = healthy.condition("Degraded")
    assert (degraded.status, degraded.reason) == ("True", "ExecutorsQueued")
    assert degraded.message == f"1 of 2 executors run: {key[1]}: the executor {WAITS}"
    assert f"not rolled back: an executor {WAITS}" in healthy.condition("Progressing").message
    is_admitted(healthy, key)
    healthy.pass_time(minutes=9)
    assert (runs(healthy), healthy.status.rejected) == (changed, None)


def test_an_executor_in_a_queue_does_not_hide_one_that_is_admitted_and_broken(healthy):
    before, changed = change(healthy, KUEUE + "  image: example.org/other\n")
    is_admitted(healthy)
    healthy.driver_starts()
    waiting_executor(healthy, 6)
    healthy.pass_time(seconds=1)
    broken = waiting_executor(healthy, 7)
    is_admitted(healthy, broken)
    waiting = {"reason": "ImagePullBackOff", "message": "example.org/other: not found"}
    state = {"name": "executor", "state": {"waiting": waiting}}
    healthy.pod_shows(broken, conditions=healthy.objects[broken]["status"]["conditions"], containerStatuses=[state])
    healthy.pass_time(minutes=9)
    assert (runs(healthy), healthy.condition("Degraded").reason) == (changed, "ExecutorsPending")
    healthy.pass_time(minutes=2)
    assert runs(healthy) == before
    assert f"{broken[1]}: container executor: ImagePullBackOff" in healthy.status.rejected.message


def test_a_running_query_says_that_its_further_executors_wait(healthy):
    healthy.put(KUEUE.replace("initial: 2", "initial: 3"))
    healthy.settle()
    key = waiting_executor(healthy, 7)
    healthy.pass_time(minutes=3)
    assert healthy.condition("Ready").status == "True"
    degraded = healthy.condition("Degraded")
    assert (degraded.reason, degraded.message) == (
        "ExecutorsQueued",
        f"2 of 3 executors run: {key[1]}: the executor {WAITS}",
    )
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": stamp(healthy.time)}
    healthy.objects[key]["spec"]["schedulingGates"] = []
    healthy.pod_shows(key, phase="Running", conditions=[ready])
    assert healthy.condition("Degraded").status == "False"


def test_a_pod_that_another_gate_holds_does_not_wait_for_kueue(deployed):
    deployed.objects[POD]["spec"]["schedulingGates"] = [{"name": "example.org/approval"}]
    deployed.pod_shows(phase="Pending", conditions=[GATED])
    assert deployed.condition("Ready").reason == "Deploying"


@pytest.mark.parametrize(("text", "queue"), [(VOLCANO, "team-a of Volcano"), (YUNIKORN, "root.team-a of YuniKorn")])
def test_other_schedulers_say_in_words_whether_it_is_the_queue_or_the_nodes(cluster, text, queue):
    cluster.put(text)
    cluster.settle()
    is_unschedulable(cluster, "queue resource quota insufficient")
    cluster.pass_time(minutes=3)
    ready = cluster.condition("Ready")
    says = f"the driver waits for quota in queue {queue}: queue resource quota insufficient"
    assert (ready.reason, ready.message) == ("Queued", says)
    assert cluster.condition("Degraded").status == "False"
    is_unschedulable(cluster, "0/3 nodes are available: 3 Insufficient cpu.")
    cluster.pass_time(minutes=3)
    assert cluster.condition("Ready").reason == "Deploying"
    assert cluster.condition("Degraded").reason == "Unschedulable"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (VOLCANO, "predicate is not satisfied: node(s) didn't match Pod's node affinity/selector"),
        (YUNIKORN, 'persistentvolumeclaim "queue" not found'),
    ],
)
def test_what_else_these_schedulers_say_is_about_the_pod(cluster, text, message):
    cluster.put(text)
    cluster.settle()
    is_unschedulable(cluster, message)
    cluster.pass_time(minutes=3)
    assert cluster.condition("Ready").reason == "Deploying"
    assert cluster.condition("Degraded").reason == "Unschedulable"


def test_a_pod_group_of_volcano_reserves_nothing_for_a_query_that_is_suspended(cluster):
    cluster.put(VOLCANO)
    cluster.settle()
    assert cluster.objects[GROUP]["spec"]["minResources"]["cpu"] == "5", "one of the driver, two of each executor"
    cluster.put(VOLCANO + "  suspend: true\n")
    cluster.settle()
    assert cluster.objects[GROUP]["spec"]["minResources"] == {"cpu": "0", "memory": "0Mi"}


def test_room_for_one_executor_is_reserved_for_a_query_that_may_have_none(cluster):
    cluster.put(VOLCANO.replace("min: 2", "min: 0"))
    cluster.settle()
    assert cluster.objects[GROUP]["spec"]["minResources"]["cpu"] == "3", "one of the driver, two of an executor"


def test_a_query_of_volcano_that_is_deleted_can_be_created_again(cluster):
    cluster.put(VOLCANO)
    cluster.settle()
    before = cluster.objects[GROUP]["metadata"]["uid"]
    cluster.delete()
    cluster.settle()
    assert not cluster.reconciler.observations.kept_bytes(), "what no watch reports would be kept forever"
    cluster.put(VOLCANO)
    cluster.settle()
    assert POD in cluster.objects
    assert cluster.objects[GROUP]["metadata"]["uid"] != before


def test_a_pod_group_that_was_deleted_comes_back_with_the_next_driver(cluster):
    cluster.put(VOLCANO)
    cluster.settle()
    del cluster.objects[GROUP]
    cluster.put(VOLCANO + "  image: example.org/other\n")
    cluster.settle()
    assert GROUP in cluster.objects


@pytest.mark.parametrize("text", [KUEUE, YUNIKORN, QUERY], ids=["Kueue", "YuniKorn", "none"])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_pod_group_goes_with_the_last_driver_of_volcano(cluster, text, restarts):
    cluster.put(VOLCANO)
    cluster.settle()
    if restarts:
        cluster.start_operator()  # it knows no PodGroup by itself
    cluster.put(text)
    cluster.settle()
    assert GROUP not in cluster.objects
    cluster.settle()
    assert cluster.actions.count(("drop", "PodGroup")) == 1
    cluster.put(VOLCANO)
    cluster.settle()
    assert GROUP in cluster.objects


def test_a_pod_group_stays_while_volcano_schedules_the_query(cluster):
    cluster.put(VOLCANO)
    cluster.settle()
    cluster.put(VOLCANO.replace("team-a", "team-b") + "  image: example.org/other\n")
    cluster.settle()
    cluster.put(VOLCANO + "  suspend: true\n")
    cluster.settle()
    assert ("drop", "PodGroup") not in cluster.actions
    assert GROUP in cluster.objects


@pytest.mark.parametrize("requests", range(25))
def test_a_pod_group_goes_whichever_request_the_operator_dies_at(cluster, requests):
    cluster.put(VOLCANO)
    cluster.settle()
    cluster.put(KUEUE)
    cluster.dies_at = requests
    with suppress(ConnectionError):
        cluster.settle()
    cluster.dies_at = None
    cluster.start_operator()
    cluster.settle()
    assert GROUP not in cluster.objects
    assert POD in cluster.objects


def test_a_pod_group_that_was_deleted_may_change(cluster):
    cluster.put(VOLCANO)
    cluster.settle()
    del cluster.objects[GROUP]
    cluster.put(VOLCANO.replace("team-a", "team-b"))
    cluster.settle()
    assert cluster.objects[GROUP]["spec"]["queue"] == "team-b"


def test_a_pod_group_is_applied_once_for_each_change(cluster):
    cluster.put(VOLCANO)
    cluster.settle()
    cluster.start_operator()
    cluster.actions.clear()
    cluster.settle()
    cluster.settle()
    assert cluster.actions.count(("apply", *GROUP)) == 1, "what another operator has applied is not known"
