"""What the API server does not let the operator do, or what it must not do: said, left alone, and tried again."""

from datetime import timedelta

import pytest

from millrace_operator.lifecycle.refusals import LONGEST_PAUSE
from unit.api.documents import MINIMAL, changed

from .cluster import SET, stamp

POLICY = ("NetworkPolicy", "trips-by-cell-driver")
TAKEN = (
    "NetworkPolicy trips-by-cell-driver exists and is not this query's; "
    "rename or delete it, or give the query another name"
)


def applied(cluster):
    return {name for what, *name in cluster.actions if what == "apply"}


@pytest.fixture
def taken(cluster):
    """A query whose NetworkPolicy would have the name of one that is not its own."""
    cluster.foreign.add(POLICY)
    cluster.put(MINIMAL)
    cluster.settle()
    return cluster


def test_an_object_of_someone_else_is_left_alone_and_named(taken):
    assert POLICY not in taken.objects
    assert SET not in taken.objects, "no driver runs without its policy"
    assert (taken.status.phase, taken.condition("Ready").status) == ("Pending", "False")
    assert (taken.condition("Ready").reason, taken.condition("Ready").message) == ("NameTaken", TAKEN)
    assert (True, "NameTaken") in taken.events
    progress = taken.condition("Progressing")
    again = stamp(taken.time + timedelta(seconds=15))
    assert (progress.reason, progress.message) == ("BackingOff", f"tried again at {again}")


def test_a_name_that_has_become_free_is_found(taken):
    taken.foreign.clear()
    assert taken.pass_time(seconds=14).phase == "Pending"
    assert taken.pass_time(seconds=1).phase == "Deploying"
    assert taken.pod_is_ready().phase == "Running"
    assert taken.condition("Ready").reason == "Running"


def test_pauses_grow_and_the_reason_stays_the_same_meanwhile(taken):
    events, writes = list(taken.events), taken.writes
    taken.pass_time(hours=2)
    assert taken.events == events
    assert taken.writes - writes < 2 * 3600 / LONGEST_PAUSE + 10
    assert taken.condition("Ready").reason == "NameTaken"
    taken.foreign.clear()
    taken.pass_time(seconds=LONGEST_PAUSE)
    assert taken.condition("Ready").reason == "Deploying"


def test_another_spec_is_tried_at_once(taken):
    taken.pass_time(hours=1)
    taken.foreign.clear()
    taken.put(changed(MINIMAL, 12, "  driver: {cores: 2}"))
    assert taken.settle().phase == "Deploying"


def test_a_labeled_object_of_someone_else_is_left_alone(cluster):
    metadata = {
        "name": POLICY[1],
        "namespace": "default",
        "uid": "theirs",
        "labels": {"millrace.io/query": "trips-by-cell"},
    }
    theirs = {"kind": POLICY[0], "metadata": metadata | {"resourceVersion": "1"}, "spec": {"podSelector": {}}}
    cluster.objects[POLICY] = theirs
    cluster.put(MINIMAL)
    cluster.settle()
    assert cluster.objects[POLICY]["spec"] == {"podSelector": {}}
    assert cluster.condition("Ready").reason == "NameTaken"


@pytest.mark.parametrize("lost", ["ownerReferences", "labels"])
def test_an_object_that_lost_its_owner_or_its_labels_is_still_known(cluster, lost):
    cluster.put(MINIMAL)
    cluster.settle()
    found = cluster.objects[POLICY]
    found["metadata"][lost] = [] if lost == "ownerReferences" else {"millrace.io/query": "trips-by-cell"}
    cluster._changed(found)
    cluster.settle()
    assert cluster.objects[POLICY]["metadata"]["ownerReferences"][0]["name"] == "trips-by-cell"
    assert cluster.objects[POLICY]["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "millrace-operator"


def test_what_the_api_server_refuses_is_tried_again(cluster):
    cluster.policy = "PodDisruptionBudget"
    cluster.put(MINIMAL)
    cluster.settle()
    assert (cluster.condition("Ready").reason, cluster.status.phase) == ("InvalidQuery", "Pending")
    assert cluster.condition("Ready").message == "PodDisruptionBudget: a policy of the cluster says no"
    cluster.policy = None
    assert cluster.pass_time(seconds=15).phase == "Deploying"


def test_what_runs_goes_on_while_a_change_is_refused(cluster):
    cluster.put(MINIMAL)
    cluster.settle()
    cluster.pod_is_ready()
    cluster.pass_time(seconds=61)
    pod = cluster.pod["metadata"]["uid"]
    cluster.policy = "StatefulSet"
    cluster.put(changed(MINIMAL, 12, "  driver: {cores: 2}"))
    cluster.settle()
    assert (cluster.status.phase, cluster.condition("Ready").reason) == ("Running", "InvalidQuery")
    assert cluster.pod["metadata"]["uid"] == pod
    cluster.policy = None
    cluster.pass_time(seconds=15)
    assert cluster.pod["metadata"]["uid"] != pod
    assert cluster.condition("Ready").reason == "Deploying"


def test_a_healthy_spec_is_saved_with_what_needs_no_other_driver(cluster):
    """It is what scaling follows after an invalid change."""
    cluster.put(MINIMAL)
    cluster.settle()
    cluster.pod_is_ready()
    cluster.pass_time(seconds=61)
    cluster.put(MINIMAL + "  executors: {initial: 20, max: 32}\n  parallelism: {initial: 40, max: 64}\n")
    cluster.settle()
    assert cluster.status.plan.shape == "20/40/2"
    cluster.put(changed(MINIMAL, 10, "    sql: SELECT cel FROM trips"))
    cluster.settle()
    assert cluster.status.plan.shape == "20/40/2"
    assert cluster.condition("Ready").reason == "InvalidQuery"


def test_a_labeled_stateful_set_of_someone_else_is_never_drained(cluster):
    labels = {"millrace.io/query": "trips-by-cell"}
    metadata = {"name": SET[1], "namespace": "default", "uid": "theirs", "generation": 1, "labels": labels}
    template = {"metadata": {"labels": labels | {"millrace.io/role": "theirs"}}, "spec": {"containers": []}}
    theirs = {"kind": SET[0], "metadata": metadata, "spec": {"replicas": 3, "template": template}}
    cluster.objects[SET] = theirs
    cluster._changed(theirs)
    cluster.put(changed(MINIMAL, 12, "  suspend: true"))
    cluster.settle()
    cluster.delete()
    cluster.settle()
    assert ("drain", SET[1]) not in cluster.actions
    assert theirs["spec"]["replicas"] == 3
