"""One step for one query: what is written, and that nothing is where nothing has changed."""

import copy
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from millrace_api.status import ConditionType
from millrace_operator.lifecycle.observe import QueryKey
from millrace_operator.lifecycle.reconcile import GoneError, Reconciler
from millrace_operator.lifecycle.rounds import Rounds
from unit.api.documents import MINIMAL, changed

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
KEY = QueryKey("default", "trips-by-cell")


class Cluster:
    """Holds objects as an API server does, and what was done to them."""

    def __init__(self):
        self.objects, self.writes, self.told, self.applied, self.gone = {}, 0, [], [], False

    def write_status(self, key, uid, status):
        if self.gone:
            raise GoneError
        self.writes += 1
        self.objects[key]["status"] = status.to_document()

    def apply(self, manifest):
        self.applied.append((manifest["kind"], manifest["metadata"]["name"]))
        return copy.deepcopy(manifest) | {"extra": "the API server's"}

    def tell(self, key, uid, *, warning, reason, message):
        self.told.append((warning, reason))

    def put(self, text, generation=1):
        document = yaml.safe_load(text)
        document["metadata"] |= {
            "namespace": KEY.namespace,
            "uid": "u",
            "resourceVersion": "1",
            "generation": generation,
            "managedFields": [{"manager": "kubectl"}],
        }
        before = self.objects.get(KEY, {})
        self.objects[KEY] = document | ({"status": before["status"]} if "status" in before else {})
        return self.objects[KEY]


@pytest.fixture
def cluster():
    return Cluster()


@pytest.fixture
def reconciler(cluster):
    made = Reconciler(cluster, cluster, "example.org/jobs", lambda: made.time)
    made.time = NOW
    return made


def see(reconciler, cluster, text, generation=1):
    """Apply it, and let the operator take its step; the status that came of it."""
    reconciler.observations.query_seen(cluster.put(text, generation))
    reconciler.reconcile(KEY)
    for _ in range(2):  # what its own change brought
        reconciler.observations.query_seen(cluster.objects[KEY])
        reconciler.reconcile(KEY)
    reconciler.observations.query_seen(cluster.objects[KEY])
    return reconciler.observations.of(KEY).status


def ready_of(status):
    return next(each for each in status.conditions if each.type == "Ready")


def progress_of(status):
    return next((each.status, each.reason) for each in status.conditions if each.type == "Progressing")


BROKEN = changed(MINIMAL, 10, "    sql: SELECT cel FROM trips")


def pod(**status):
    labels = {"millrace.io/query": KEY.name, "millrace.io/role": "driver"}
    metadata = {"name": "trips-by-cell-driver-0", "namespace": KEY.namespace, "labels": labels, "uid": "p"}
    return {"kind": "Pod", "metadata": metadata, "status": status}


READY = {"conditions": [{"type": "Ready", "status": "True"}], "startTime": "2026-01-31T11:00:00Z"}


def test_a_valid_query_is_deployed(reconciler, cluster):
    status = see(reconciler, cluster, MINIMAL)
    assert (status.phase, status.observed_generation) == ("Deploying", 1)
    assert [(c.type, c.status, c.reason) for c in status.conditions] == [
        ("Ready", "False", "Deploying"),
        ("Progressing", "True", "Deploying"),
    ]
    assert (status.plan.shape, status.selector) == (
        "1/8/2",
        "millrace.io/query=trips-by-cell,millrace.io/role=executor",
    )
    assert cluster.told == [(False, "Deploying")]
    assert len(cluster.applied) == 9
    assert cluster.applied[-1] == ("StatefulSet", "trips-by-cell-driver")


def test_what_is_about_to_be_done_is_in_the_status_before_it_is_done(reconciler, cluster):
    def die(manifest):
        raise ConnectionError

    cluster.apply = die
    reconciler.observations.query_seen(cluster.put(MINIMAL))
    with pytest.raises(ConnectionError):
        reconciler.reconcile(KEY)
    reconciler.observations.query_seen(cluster.objects[KEY])
    status = reconciler.observations.of(KEY).status
    assert progress_of(status) == ("True", "Applying")
    assert "StatefulSet trips-by-cell-driver" in status.conditions[1].message


def test_nothing_of_an_invalid_query_is_deployed(reconciler, cluster):
    see(reconciler, cluster, BROKEN)
    see(reconciler, cluster, changed(MINIMAL, 12, "  sparkConf: {spark.master: local}"), generation=2)
    assert cluster.applied == []
    assert cluster.told == [(True, "InvalidQuery")]


def test_it_is_running_when_its_driver_is_ready_and_says_what_it_waits_for_before(reconciler, cluster):
    see(reconciler, cluster, MINIMAL)
    waiting = {"name": "driver", "restartCount": 2, "state": {"waiting": {"reason": "ErrImagePull", "message": "no"}}}
    unscheduled = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
    for found, message in (
        ({}, "the driver is starting"),
        ({"conditions": [unscheduled]}, "the driver cannot be scheduled: 0/3 nodes are available"),
        ({"containerStatuses": [waiting]}, "container driver: ErrImagePull: no"),
    ):
        reconciler.observations.object_seen(pod(**found))
        ready = ready_of(see(reconciler, cluster, MINIMAL))
        assert (ready.reason, ready.message) == ("Deploying", message)
    reconciler.observations.object_seen(pod(**READY))
    status = see(reconciler, cluster, MINIMAL)
    assert progress_of(status) == ("False", "Settled")
    assert (status.phase, ready_of(status).status, status.driver.pod) == (
        "Running",
        "True",
        "trips-by-cell-driver-0",
    )
    assert see(reconciler, cluster, BROKEN, generation=2).phase == "Running"
    assert len(cluster.applied) == 9


def test_a_suspended_query_drains_and_is_suspended(reconciler, cluster):
    see(reconciler, cluster, MINIMAL)
    reconciler.observations.object_seen(pod(**READY))
    suspended = changed(MINIMAL, 12, "  state: Suspended")
    assert see(reconciler, cluster, suspended, generation=2).phase == "Draining"
    reconciler.observations.object_gone(pod(**READY))
    assert see(reconciler, cluster, suspended, generation=2).phase == "Suspended"


def test_what_somebody_takes_away_or_changes_is_put_right(reconciler, cluster):
    see(reconciler, cluster, MINIMAL)
    seen = reconciler.observations.of(KEY).objects
    service = seen["Service", "trips-by-cell-driver"]
    budget = copy.deepcopy(seen["PodDisruptionBudget", "trips-by-cell-exec"])
    service["metadata"]["uid"] = "s"
    reconciler.observations.object_gone(service)
    budget["spec"]["minAvailable"] = 7
    budget["spec"]["unhealthyPodEvictionPolicy"] = "AlwaysAllow"  # somebody's own
    reconciler.observations.object_seen(budget)
    cluster.applied.clear()
    reconciler._rounds = Rounds()
    reconciler.reconcile(KEY)
    assert cluster.applied == [("Service", "trips-by-cell-driver"), ("PodDisruptionBudget", "trips-by-cell-exec")]


def test_whoever_fights_over_an_object_is_met_more_and_more_seldom():
    now = 0.0
    rounds = Rounds(lambda: now)
    begun = []
    for _ in range(20_000):
        if not rounds.wait(KEY):
            begun.append(now)
        now += 0.1
    assert len(begun) < 20
    now += 1000
    assert rounds.wait(KEY) == 0
    assert 0 < rounds.wait(KEY) <= Rounds.FIRST


def test_what_is_wrong_is_in_the_condition_with_its_place(reconciler, cluster):
    ready = ready_of(see(reconciler, cluster, BROKEN))
    assert (ready.type, ready.reason) == (ConditionType.READY, "InvalidQuery")
    said = 'spec.query.sql: there is no column "cel" (line 1, column 8 of the SQL); did you mean "cell"?'
    assert ready.message == said
    assert cluster.told == [(True, "InvalidQuery")]


def test_every_problem_is_told_but_never_more_than_a_status_holds(reconciler, cluster):
    many = ", ".join(f"missing_{n}" for n in range(200))
    ready = ready_of(see(reconciler, cluster, changed(MINIMAL, 10, f"    sql: SELECT {many} FROM trips")))
    assert '"missing_0"' in ready.message
    assert '"missing_1"' in ready.message
    assert len(ready.message) <= 1024


def test_nothing_is_written_where_nothing_has_changed(reconciler, cluster):
    see(reconciler, cluster, BROKEN)
    for minutes in range(3):
        reconciler.time = NOW + timedelta(minutes=minutes)
        reconciler.reconcile(KEY)
    assert cluster.writes == 1
    assert len(cluster.told) == 1


def test_a_condition_keeps_the_time_of_its_change_while_its_status_stays(reconciler, cluster):
    see(reconciler, cluster, BROKEN)
    reconciler.time = NOW + timedelta(hours=1)
    status = see(reconciler, cluster, MINIMAL, generation=2)
    assert status.observed_generation == 2
    assert (ready_of(status).reason, ready_of(status).last_transition_time) == ("Deploying", "2026-01-31T12:00:00Z")
    assert cluster.told == [(True, "InvalidQuery"), (False, "Deploying")]


def test_a_status_of_another_version_is_replaced(reconciler, cluster):
    cluster.put(MINIMAL)
    cluster.objects[KEY]["status"] = {"phase": "Dreaming", "color": "blue"}
    assert see(reconciler, cluster, MINIMAL).phase == "Deploying"


def test_a_query_that_is_gone_is_left_alone(reconciler, cluster):
    reconciler.observations.query_seen(cluster.put(MINIMAL))
    cluster.gone = True
    reconciler.reconcile(KEY)
    assert cluster.told == []
    reconciler.observations.query_gone(cluster.objects[KEY])
    reconciler.reconcile(KEY)
    assert reconciler.observations.of(KEY) is None


def test_the_end_of_an_older_object_of_the_name_is_not_the_end_of_this_one(reconciler, cluster):
    older = cluster.put(MINIMAL)
    newer = cluster.put(MINIMAL)
    newer["metadata"]["uid"] = "another"
    reconciler.observations.query_seen(newer)
    reconciler.observations.query_gone(older)
    assert reconciler.observations.of(KEY).owner.uid == "another"


def test_an_older_state_of_an_object_does_not_hide_a_newer_one(reconciler):
    newer, older = pod(**READY), pod()
    newer["metadata"]["resourceVersion"], older["metadata"]["resourceVersion"] = "1000", "999"
    for body in (newer, older):
        reconciler.observations.object_seen(body)
    reconciler.observations.query_seen(yaml.safe_load(MINIMAL) | {"metadata": {**KEY._asdict(), "uid": "u"}})
    assert reconciler.observations.of(KEY).driver["status"] == READY
