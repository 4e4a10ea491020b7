"""A driver that runs and is not ready: its first batch waits for executors, or takes long. No metrics are needed."""

import pytest

from millrace_api.model.driver_waits import WAITS_KEY, DriverWait, DriverWaits
from millrace_operator.lifecycle.refusals import PodRefusedError, QuotaExceededError
from unit.resources.cases import SMALLEST

from .cluster import stamp
from .dedicated_queries import DEDICATED
from .waiting_pods import LIMIT

QUERY = SMALLEST + "  scaling: {mode: 'Off'}\n"
SQL = QUERY.replace("count(*) AS n", "count(*) AS trips")
LARGER = QUERY + "  executors: {memory: 999g}\n"
IMAGE = QUERY + "  image: example.org/other\n"
TWO = "  executors: {initial: 2, min: 2}\n"
HEALTHY = ("ConfigMap", "trips-by-cell-healthy")


def runs(cluster):
    return cluster.pod["metadata"]["annotations"]["millrace.io/revision"]


def pends(cluster, number):
    """Create an executor's pod for which there is no node."""
    key = cluster.executor(number, runs=False)
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    cluster.pod_shows(key, phase="Pending", conditions=[unschedulable])
    return key


def is_scheduled(cluster, key):
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": stamp(cluster.time)}
    cluster.pod_shows(key, phase="Running", conditions=[ready])


def change(cluster, text):
    before = runs(cluster)
    cluster.put(text)
    cluster.settle()
    cluster.driver_starts()
    return before, runs(cluster)


@pytest.fixture
def started(cluster):
    """A query whose driver has just started."""
    cluster.put(QUERY)
    cluster.settle()
    cluster.driver_starts()
    return cluster


@pytest.fixture
def healthy(started):
    """A query that has been ready for long enough."""
    started.executor(0)
    started.pod_is_ready()
    started.pass_time(seconds=61)
    assert HEALTHY in started.objects
    return started


def test_a_driver_that_waits_for_executors_is_not_ready_and_names_them(started):
    ready = started.condition("Ready")
    assert (ready.status, ready.reason) == ("False", "Deploying")
    assert ready.message == "the driver's first batch has not finished; 0 of 1 executors run"
    pends(started, 7)
    waits = "0 of 1 executors run: exec-7: the executor cannot be scheduled: 0/3 nodes"
    assert started.condition("Ready").message == f"the driver's first batch has not finished; {waits}"
    started.pass_time(minutes=1)
    assert started.condition("Degraded").status == "False"
    started.pass_time(minutes=1)
    degraded = started.condition("Degraded")
    assert (degraded.status, degraded.reason, degraded.message) == ("True", "ExecutorsPending", waits)
    assert (True, "ExecutorsPending") in started.events
    started.pass_time(hours=2)
    assert HEALTHY not in started.objects
    assert started.status.phase == "Deploying"


def test_a_query_is_ready_when_its_executors_run_and_the_first_batch_has_finished(started):
    executor = pends(started, 0)
    started.pass_time(minutes=3)
    is_scheduled(started, executor)
    assert started.condition("Degraded").reason == "AsExpected"
    ready = started.condition("Ready")
    assert (ready.reason, ready.message) == ("FirstBatch", "the driver's first batch has not finished")
    started.pod_is_ready()
    assert started.condition("Ready").status == "True"


KAFKA = "Kafka at kafka:9092 has not answered while finding new records"


def waits(cluster, *texts, pod=None):
    """Report that the driver waits for these, as the driver of the pod with this uid; no text takes it back."""
    held, since = cluster.objects["ConfigMap", "trips-by-cell-plan"], stamp(cluster.time)
    calls = tuple(DriverWait(time=since, text=text) for text in texts)
    held["data"].pop(WAITS_KEY, None)
    if calls:
        held["data"][WAITS_KEY] = DriverWaits(pod=pod or cluster.pod["metadata"]["uid"], waits=calls).to_json()
    cluster._changed(held)
    cluster.settle()


def test_a_first_batch_that_waits_for_a_broker_says_so_until_it_answers(started):
    started.executor(0)
    began = "the driver's first batch has not finished"
    assert started.condition("Ready").message == began
    waits(started, KAFKA)
    ready = started.condition("Ready")
    assert (ready.reason, ready.message) == ("FirstBatch", f"{began}; {KAFKA} (since {stamp(started.time)})")
    waits(started)
    assert started.condition("Ready").message == began


def test_a_driver_that_is_ready_says_what_it_waits_for_and_stays_ready(healthy):
    since = healthy.condition("Ready").last_transition_time
    waits(healthy, KAFKA)
    ready = healthy.condition("Ready")
    assert (ready.status, ready.message) == ("True", f"the driver is ready; {KAFKA} (since {stamp(healthy.time)})")
    assert ready.last_transition_time == since
    waits(healthy)
    assert healthy.condition("Ready").message == "the driver is ready"


def test_what_the_driver_of_an_earlier_pod_waited_for_is_not_that_of_this_one(started):
    started.executor(0)
    waits(started, KAFKA, pod="pod 0")
    assert started.condition("Ready").message == "the driver's first batch has not finished"


def test_pods_that_spark_replaces_after_a_while_are_still_pending(started):
    pod = pends(started, 0)
    started.pass_time(minutes=3)
    started.reconciler.observations.object_gone(started.objects.pop(pod))
    started.settle()
    assert started.condition("Degraded").reason == "ExecutorsPending"
    pends(started, 1)
    assert "exec-1" in started.condition("Degraded").message


def test_executors_that_are_pending_beside_a_query_that_is_ready_are_named_too(healthy):
    healthy.put(QUERY + TWO)
    healthy.settle()
    healthy.driver_follows(1, 8)
    pends(healthy, 1)
    healthy.pass_time(minutes=3)
    assert healthy.condition("Ready").status == "True"
    degraded = healthy.condition("Degraded")
    assert degraded.reason == "ExecutorsPending"
    assert degraded.message.startswith("1 of 2 executors run: exec-1: the executor cannot be scheduled")
    healthy.put(QUERY.replace("SELECT cell", "SELECT cel") + TWO)
    healthy.settle()
    assert healthy.condition("Ready").reason == "InvalidQuery"
    assert healthy.condition("Degraded").reason == "ExecutorsPending"


def test_a_disruption_budget_counts_no_executors_that_there_cannot_be(healthy):
    """With three of four wanted, no node could be drained while only two of them run."""

    def least():
        return healthy.objects["PodDisruptionBudget", "trips-by-cell-exec"]["spec"]["minAvailable"]

    healthy.put(QUERY + "  executors: {initial: 4}\n")
    is_scheduled(healthy, healthy.executor(0))
    is_scheduled(healthy, healthy.executor(1))
    third, fourth = pends(healthy, 2), pends(healthy, 3)
    assert least() == 3
    healthy.pass_time(minutes=3)
    assert (healthy.condition("Degraded").reason, least()) == ("ExecutorsPending", 1)
    is_scheduled(healthy, third)
    assert least() == 2
    is_scheduled(healthy, fourth)
    assert (healthy.condition("Degraded").reason, least()) == ("AsExpected", 3)
    healthy.reconciler.observations.object_gone(healthy.objects.pop(fourth))  # evicted, and replaced
    pends(healthy, 4)
    assert least() == 3


def test_executors_that_no_node_can_hold_are_rolled_back(healthy):
    before, _ = change(healthy, LARGER)
    pends(healthy, 1)
    healthy.pass_time(minutes=10)
    assert runs(healthy) == before
    rejected = healthy.status.rejected
    assert rejected.message.startswith("no batch within 10 minutes: 0 of 1 executors run: exec-1: the executor cannot")
    assert rejected.retry_time is not None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (SQL, "the last healthy spec asks for the same size and nodes"),
        (IMAGE, "the last healthy spec asks for the same size and nodes"),
    ],
)
def test_a_cluster_without_room_for_the_same_executors_is_waited_for(healthy, text, why):
    _, changed = change(healthy, text)
    executor = pends(healthy, 1)
    healthy.pass_time(minutes=30)
    assert f"not rolled back: {why}" in healthy.condition("Progressing").message
    is_scheduled(healthy, executor)
    healthy.pod_is_ready()
    healthy.pass_time(minutes=2)
    assert runs(healthy) == changed
    assert healthy.condition("Degraded").status == "False"


def test_a_first_batch_of_hours_is_not_rolled_back(healthy):
    """Such as that of a backlog: its tasks finish, or else the liveness probe ends the driver."""
    _, changed = change(healthy, LARGER)
    healthy.executor(1)
    healthy.pass_time(hours=5)
    assert runs(healthy) == changed
    assert healthy.condition("Progressing").message == "not rolled back: its first batch is running"
    assert healthy.condition("Degraded").status == "False"
    healthy.pod_is_ready()
    healthy.pass_time(minutes=2)
    assert healthy.condition("Progressing").reason == "Settled"


def test_a_first_batch_after_an_outage_is_not_rolled_back(healthy):
    before, changed = change(healthy, QUERY.replace('"kafka:9092", topic: trips}', '"kafka-2:9092", topic: trips}'))
    healthy.pod_fails('{"failure": "SourceFailed", "message": "no"}')
    healthy.driver_starts()
    healthy.executor(1)
    healthy.pass_time(minutes=30)
    assert runs(healthy) == changed
    healthy.pod_fails('{"failure": "SourceFailed", "message": "no"}', restarts=2)
    assert runs(healthy) == before


def test_executors_that_nothing_is_known_of_are_rolled_back_and_tried_again(healthy):
    """The driver may not create them, for example: the healthy one could."""
    before, _ = change(healthy, SQL)
    healthy.pass_time(minutes=10)
    assert runs(healthy) == before
    assert healthy.status.rejected.message == "no batch within 10 minutes: 0 of 1 executors run"
    assert healthy.status.rejected.retry_time is not None


def test_a_first_batch_in_which_no_task_finishes_is_rolled_back(healthy):
    before, _ = change(healthy, SQL)
    for number in range(3):
        healthy.executor(1 + number)
        healthy.pass_time(minutes=11)
        assert runs(healthy) != before
        healthy.pod_fails(code=137, restarts=number)
        healthy.pass_time(minutes=2)
    assert runs(healthy) == before
    assert healthy.status.rejected.message.startswith("Hung")


def test_fewer_executors_than_the_plan_wants_are_enough_if_they_are_the_minimum(healthy):
    healthy.put(QUERY + "  executors: {initial: 3}\n")
    healthy.settle()
    _, changed = change(healthy, LARGER.replace("999g", "999g, initial: 3"))
    healthy.executor(1)
    pends(healthy, 2)
    healthy.pass_time(minutes=30)
    assert runs(healthy) == changed
    assert "1 of 3 executors run: exec-2" in healthy.condition("Ready").message


def test_fewer_executors_than_the_minimum_are_not_enough(healthy):
    healthy.put(QUERY + TWO)
    healthy.settle()
    before, _ = change(healthy, LARGER.replace("999g", "999g, initial: 2, min: 2"))
    healthy.executor(1)
    pends(healthy, 2)
    healthy.pass_time(minutes=11)
    assert runs(healthy) == before


@pytest.mark.parametrize("error", [QuotaExceededError("exceeded quota: few"), PodRefusedError("a webhook says no")])
def test_refused_executors_are_asked_about_before_the_first_batch(started, error):
    started.refused_pods = {"executor": error}
    started.pass_time(seconds=10)
    degraded = started.condition("Degraded")
    assert degraded.reason == error.reason
    assert str(error) in degraded.message
    assert str(error) in started.condition("Ready").message


@pytest.mark.parametrize(("text", "is_rolled_back"), [(LARGER, True), (SQL, False)])
def test_executors_that_a_quota_refuses_count_if_they_are_larger(healthy, text, is_rolled_back):
    healthy.limits = [LIMIT]
    before, changed = change(healthy, text)
    for key in [each for each in healthy.objects if each[1].startswith("exec-")]:
        healthy.reconciler.observations.object_gone(healthy.objects.pop(key))
    healthy.refused_pods = {"executor": QuotaExceededError("exceeded quota: few")}
    healthy.pass_time(minutes=11)
    assert runs(healthy) == (before if is_rolled_back else changed)


def test_replicas_that_the_first_batch_waits_for_are_reported(cluster):
    """They need the driver's instructions, which it gives before it is ready."""
    cluster.put(DEDICATED)
    cluster.settle()
    cluster.driver_starts()
    cluster.executor(0)
    cluster.pass_time(minutes=6)
    assert cluster.condition("Degraded").reason == "ReplicasNotReady"
