"""Each query has its series while it exists, with the labels that the contract admits."""

import inspect
import itertools
from dataclasses import replace

import pytest

from millrace_api.model.status import Attempt, ConditionType, LastScaling, PlanShape, PlanStatus, Status
from millrace_operator.lifecycle import conditions
from millrace_operator.lifecycle.autoscaling import scaling_status
from millrace_operator.lifecycle.chains import chain_status
from millrace_operator.lifecycle.query_row import query_rows
from millrace_operator.telemetry.contract import OF_QUERIES
from millrace_operator.telemetry.metrics import OperatorMetrics
from millrace_operator.telemetry.query_metrics import QueryCounts, QueryRow
from unit.api.documents import MINIMAL, changed
from unit.lifecycle.cluster import KEY, Cluster

from .exported import show

ROW = QueryRow(
    ("shop", "trips"),
    "Running",
    "pkg",
    "Active",
    "Inline",
    (("Ready", "True", "Running"),),
    {"wanted": 4, "ready": 3, "pending": 1},
    {"executors": 4, "workers": 8, "replicas": 2},
    {"driver": 1.0, "executor": 6.0},
)
QUERY_LABELS = {"query_namespace": "shop", "query": "trips"}


def series(metrics):
    """The series of queries: name, value and the labels that are not the query's."""
    return {
        (sample.name, *(value for label, value in sample.labels.items() if label not in QUERY_LABELS)): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name.startswith("millrace_query_")
    }


def shape(executors, workers=8, replicas=2, placement="Inline"):
    return PlanStatus(
        epoch=1, algorithm="pkg", replicas=replicas, parallelism=workers, executors=executors, placement=placement
    )


def test_a_query_has_its_series_with_their_labels():
    metrics = OperatorMetrics()
    show(metrics, queries=lambda: [ROW])
    assert series(metrics) == {
        ("millrace_query_info", "Running", "pkg", "Active", "Inline"): 1,
        ("millrace_query_condition", "Ready", "True", "Running"): 1,
        ("millrace_query_executors", "wanted"): 4,
        ("millrace_query_executors", "ready"): 3,
        ("millrace_query_executors", "pending"): 1,
        ("millrace_query_cores", "driver"): 1,
        ("millrace_query_cores", "executor"): 6,
        ("millrace_query_plan", "executors"): 4,
        ("millrace_query_plan", "workers"): 8,
        ("millrace_query_plan", "replicas"): 2,
    }


def test_only_the_leader_shows_queries_and_only_those_that_exist():
    failed = Status(attempts=(Attempt(time="t", run="r", reason="Hung"),))
    row = replace(ROW, counts=QueryCounts())
    row.counts.status_written(Status(), failed)
    metrics, rows, leads = OperatorMetrics(), [row], [True]
    show(metrics, queries=lambda: rows, leads=lambda: leads[0])
    assert series(metrics)["millrace_query_driver_restarts_total", "Hung"] == 1
    leads[0] = False
    assert series(metrics) == {}
    leads[0] = True
    rows.clear()
    assert series(metrics) == {}
    rows.append(replace(ROW, counts=QueryCounts()))
    assert ("millrace_query_driver_restarts_total", "Hung") not in series(metrics)


def test_each_failed_run_counts_once_by_its_class():
    counts = QueryCounts()
    runs = [Attempt(time=f"t{i}", run=f"r{i}", reason=reason) for i, reason in enumerate(("Hung", "Hung", "NodeLost"))]
    before = Status()
    for i in range(3):
        now = Status(attempts=tuple(runs[max(i - 1, 0) : i + 1]))  # the oldest ones are forgotten
        counts.status_written(before, now)
        before = now
    counts.status_written(before, before)
    assert counts.failures == {"Hung": 2, "NodeLost": 1}


def test_each_change_of_the_plan_counts_once_by_its_reason():
    decided = LastScaling.model_validate(
        {
            "time": "t",
            "from": PlanShape(executors=2, parallelism=8, replicas=2),
            "to": PlanShape(executors=4, parallelism=8, replicas=2),
            "reason": "ScaleOut",
        }
    )
    steps = [
        Status(),
        Status(plan=shape(2)),  # the first plan is no change
        Status(plan=shape(2), last_scaling=decided),  # advice
        Status(plan=shape(2)),
        Status(plan=shape(4), last_scaling=decided),
        Status(plan=shape(4), last_scaling=decided, failures=1),
        Status(plan=shape(3), last_scaling=decided),
        Status(plan=shape(3, placement="Dedicated"), last_scaling=decided),
        Status(plan=shape(3), last_scaling=decided, failures=1),
    ]
    counts = QueryCounts()
    for before, now in itertools.pairwise(steps):
        counts.status_written(before, now)
    assert counts.rescales == {"ScaleOut": 1, "SpecChanged": 2, "DriverFailed": 1}


def of_cluster(cluster):
    metrics = OperatorMetrics()
    show(metrics, queries=lambda: query_rows(cluster.reconciler.observations))
    return series(metrics)


def executor(cluster, number, **status):
    pod = {
        "kind": "Pod",
        "metadata": {
            "name": f"exec-{number}",
            "namespace": KEY.namespace,
            "uid": f"e{number}",
            "labels": {"millrace.io/query": KEY.name, "millrace.io/role": "executor"},
        },
        "spec": {"containers": [{"name": "executor", "resources": {"requests": {"cpu": "1500m"}}}]},
        "status": status,
    }
    cluster.reconciler.observations.object_seen(pod)
    return pod


@pytest.fixture
def cluster():
    return Cluster()


def test_series_of_a_query_follow_its_status_and_pods(cluster):
    cluster.put(MINIMAL)
    cluster.settle()
    cluster.pod_is_ready()
    ready = [{"type": "Ready", "status": "True"}]
    executor(cluster, 1, conditions=ready)
    executor(cluster, 2, phase="Pending")
    executor(cluster, 3, phase="Failed")
    plan, found = cluster.status.plan, of_cluster(cluster)
    assert found["millrace_query_info", "Running", str(plan.algorithm), "Active", "Inline"] == 1
    states = [found["millrace_query_executors", each] for each in ("wanted", "ready", "pending")]
    assert states == [plan.executors, 1, 1]
    assert found["millrace_query_cores", "executor"] == 3.0  # without the one that has failed
    assert found["millrace_query_cores", "driver"] > 0
    assert found["millrace_query_plan", "workers"] == plan.parallelism
    assert {each[1:] for each in found if each[0] == "millrace_query_condition"} == {
        (each.type, each.status, each.reason) for each in cluster.status.conditions
    }


def test_a_run_that_failed_is_counted_once_however_long_its_pod_shows_it(cluster):
    cluster.put(MINIMAL)
    cluster.settle()
    for restarts in (1, 2):
        cluster.pod_fails('{"failure": "SourceFailed", "message": "no"}', restarts=restarts)
        cluster.pass_time(minutes=5)
        cluster.pod_is_ready()
        cluster.pass_time(minutes=5)
        assert cluster.memory.counts.failures == {"SourceFailed": restarts}
    cluster.start_operator()  # another operator counts from 0
    cluster.settle()
    assert cluster.memory.counts.failures == {}


def test_a_query_without_a_driver_wants_no_executors(cluster):
    cluster.put(changed(MINIMAL, 12, "  suspend: true"))
    cluster.settle()
    found = of_cluster(cluster)
    assert found["millrace_query_executors", "wanted"] == 0
    assert found["millrace_query_plan", "executors"] > 0


def test_canaries_have_no_series_and_are_in_no_count(cluster):
    cluster.reconciler.observations.query_seen(
        {"metadata": {"namespace": "a", "name": "canary", "uid": "c", "labels": {"millrace.io/canary": "true"}}}
    )
    assert of_cluster(cluster) == {}
    assert cluster.reconciler.observations.phases() == []


def reasons():
    """Every reason that a condition can have: the members of the enumerations of reasons."""
    for module in (conditions, scaling_status, chain_status):
        for name, kind in inspect.getmembers(module, inspect.isclass):
            if name.endswith("Reason") and kind.__module__ == module.__name__:
                yield from kind


@pytest.mark.parametrize("metric", OF_QUERIES, ids=lambda metric: metric.name)
def test_every_value_in_a_status_is_declared(metric):
    """So a value that the contract does not know cannot come from a new reason or class."""
    labels = {label.name: label for label in metric.dimensions}
    if "condition" in labels:
        assert all(labels["reason"].admits(str(each)) for each in reasons())
        assert all(labels["condition"].admits(str(each)) for each in ConditionType)
    for sample in samples_of(metric.name):
        assert metric.violations(sample.labels) == []


def samples_of(name):
    metrics = OperatorMetrics()
    show(metrics, queries=lambda: [ROW, replace(ROW, algorithm="", placement="", plan={})])
    families = [family for family in metrics.registry.collect() if family.name == name.removesuffix("_total")]
    return [sample for family in families for sample in family.samples]
