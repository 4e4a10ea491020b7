"""A query whose plan has no executor: it is healthy, and tasks that wait bring its executors back, with or without metrics."""

from dataclasses import replace

import pytest

from millrace_api.model.driver_waits import WAITS_KEY, DriverWaits
from millrace_api.model.plan import Plan
from millrace_operator.lifecycle.autoscaling.scaling_status import ScalingResult, last_scaling_of, load_of
from millrace_operator.scaling.decision.decision import Decision, Reason, Situation
from millrace_operator.scaling.decision.scaler import Scaler
from millrace_operator.scaling.decision.settings import Settings
from millrace_operator.scaling.observation import Answer
from millrace_operator.scaling.shape import Bounds, Range, Shape
from unit.resources.cases import SMALLEST

QUERY = SMALLEST + "  executors: {initial: 2, min: 0, max: 4}\n"
PAUSED = {"millrace.io/paused": "true"}


def plan_of(cluster):
    return Plan.from_json(cluster.objects["ConfigMap", "trips-by-cell-plan"]["data"]["plan.yaml"])


def rests(cluster, **changes):
    """Carry out the decision that the query rests."""
    plan = plan_of(cluster)
    before = Shape(plan.executors, plan.parallelism, plan.replicas)
    decision = Decision(cluster.time.timestamp(), before, replace(before, executors=0), Reason.AT_REST)
    result = ScalingResult(last_scaling_of(decision, None), decision.plan, epoch=plan.epoch)
    cluster.memory.scaling = replace(result, **changes)
    for number in range(plan.executors):
        if (found := cluster.objects.pop(("Pod", f"exec-{number}"), None)) is not None:
            cluster.reconciler.observations.object_gone(found)
    return cluster.settle()


def tasks_wait(cluster, pod=None, *, wait=True):
    """Report that tasks wait for executors, as the driver of the pod with this uid."""
    held = cluster.objects["ConfigMap", "trips-by-cell-plan"]
    report = DriverWaits(pod=pod or cluster.pod["metadata"]["uid"], executors=wait)
    held["data"][WAITS_KEY] = report.to_json()
    cluster._changed(held)
    return cluster.settle()


@pytest.fixture
def resting(cluster):
    """A healthy query that rests."""
    cluster.put(QUERY)
    cluster.settle()
    cluster.driver_starts()
    cluster.executor(0)
    cluster.executor(1)
    cluster.pod_is_ready()
    cluster.pass_time(seconds=61)
    rests(cluster)
    return cluster


def test_a_query_at_rest_is_ready_and_nothing_is_missing(resting):
    assert plan_of(resting).executors == 0
    resting.pass_time(hours=8)
    status = resting.status
    assert (status.phase, status.plan.executors, status.last_scaling.reason) == ("Running", 0, "AtRest")
    ready = resting.condition("Ready")
    assert (ready.status, ready.message) == (
        "True",
        "the driver is ready, and at rest without executors until records arrive",
    )
    assert resting.condition("Degraded").status == "False"
    assert not resting.asked
    assert resting.objects["PodDisruptionBudget", "trips-by-cell-exec"]["spec"]["minAvailable"] == 0


def test_tasks_that_wait_bring_back_the_executors_of_before_the_rest(resting):
    epoch = plan_of(resting).epoch
    status = tasks_wait(resting)
    assert (plan_of(resting).executors, plan_of(resting).epoch) == (2, epoch + 1)
    last = status.last_scaling
    assert (last.reason, last.from_.executors, last.to.executors) == ("Woken", 0, 2)
    assert last.message == "0/8/2 -> 2/8/2, as before the rest, since tasks wait for executors."
    resting.pass_time(minutes=1)
    assert plan_of(resting).epoch == epoch + 1, "the report that is still there means nothing under another plan"
    assert resting.status.last_scaling.reason == "Woken"


def test_an_operator_that_has_just_started_wakes_a_query_without_metrics(resting):
    resting.start_operator()
    assert resting.memory.scaling is None
    tasks_wait(resting)
    assert plan_of(resting).executors == 2


@pytest.mark.parametrize("mode", ["Advise", "Off"])
def test_a_query_at_rest_is_woken_where_scaling_is_not_active_by_then(resting, mode):
    resting.put(QUERY + f"  scaling: {{mode: '{mode}'}}\n")
    resting.settle()
    assert plan_of(resting).executors == 0
    tasks_wait(resting)
    assert plan_of(resting).executors == 2


def test_a_paused_query_gets_them_once_the_pause_ends(resting):
    """Meanwhile its driver takes one by itself."""
    resting.put(QUERY, PAUSED)
    tasks_wait(resting)
    assert plan_of(resting).executors == 0
    resting.put(QUERY)
    resting.settle()
    assert plan_of(resting).executors == 2
    assert resting.status.last_scaling.reason == "Woken"


def test_a_paused_query_whose_tasks_run_does_not_say_that_no_record_arrives(resting):
    resting.put(QUERY, PAUSED)
    tasks_wait(resting)
    message = "the driver is ready, and its tasks run on one executor until the plan may change"
    assert resting.condition("Ready").message == message
    plan = Shape(0, 8, 2)
    decision = Scaler(Settings(), Bounds(Range(1, 4), Range(1, 64), Range(1, 64), rests=True), 8).step(
        None, Situation(100.0, plan, 3, 1, paused=True, can_rest=True, tasks_wait=True)
    )
    assert decision.sentence == "0/8/2 stays, since its tasks run on one executor until the plan may change."
    assert load_of(decision, Answer(time=100.0, lag_rows=7.0), 1, 2.0) is None


def test_a_maximum_that_was_lowered_meanwhile_holds(resting):
    resting.put(QUERY.replace("initial: 2", "initial: 1").replace("max: 4", "max: 1"))
    resting.settle()
    rests(resting)
    status = tasks_wait(resting)
    assert plan_of(resting).executors == 1
    assert (status.last_scaling.reason, status.last_scaling.to.executors) == ("Woken", 1)


def test_a_report_of_another_driver_or_of_no_wait_wakes_no_query(resting):
    tasks_wait(resting, pod="pod 0")
    assert plan_of(resting).executors == 0
    tasks_wait(resting, wait=False)
    assert plan_of(resting).executors == 0


def test_a_report_of_tasks_changes_no_plan_that_has_executors(resting):
    tasks_wait(resting)
    resting.memory.scaling = ScalingResult(change=replace(Shape(1, 8, 2)), epoch=plan_of(resting).epoch)
    resting.settle()
    assert plan_of(resting).executors == 1


def test_a_higher_minimum_and_a_request_for_executors_end_the_rest(resting):
    resting.put(QUERY.replace("min: 0", "min: 1"))
    resting.settle()
    assert plan_of(resting).executors == 1
    rests(resting)  # which the bounds do not allow
    assert plan_of(resting).executors == 1


def test_kubectl_scale_ends_the_rest(resting):
    resting.put(QUERY.replace("initial: 2", "initial: 3"))
    resting.settle()
    assert plan_of(resting).executors == 3


def test_a_query_whose_number_before_the_rest_is_lost_gets_one_executor(resting):
    resting.query["status"].pop("lastScaling")
    resting.start_operator()
    tasks_wait(resting)
    assert plan_of(resting).executors == 1


@pytest.mark.parametrize("lag", [None, float("nan"), float("inf"), -3.0, 7.0])
def test_the_load_of_a_query_at_rest_is_none_whatever_its_metrics_say(lag):
    plan = Shape(0, 8, 2)
    load = load_of(Decision(100.0, plan, plan, Reason.AT_REST), Answer(time=100.0, lag_rows=lag), 0, 0.0)
    assert (load.utilization, load.input_rate, load.cores, load.executors_ready) == (0.0, 0.0, 0.0, 0)
    assert load.lag == (7 if lag == 7.0 else 0)
    assert load.core_hours_per_million_records is None
