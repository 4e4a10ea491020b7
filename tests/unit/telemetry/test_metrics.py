"""The contract is what is exported, from the beginning."""

import pytest

from millrace_operator.kube.client import resource_of
from millrace_operator.lifecycle.workqueue import WorkQueue
from millrace_operator.telemetry.metrics import CONTRACT, OperatorMetrics


def test_everything_in_the_contract_is_exported_and_nothing_else():
    metrics = OperatorMetrics()
    families = {family.name: family for family in metrics.registry.collect()}
    ours = {name for name in families if name.startswith("millrace_")}
    assert ours == {metric.name.removesuffix("_total") for metric in CONTRACT}
    for metric in CONTRACT:
        family = families[metric.name.removesuffix("_total")]
        assert (family.type, family.documentation) == (metric.kind, metric.help)
    assert any(name.startswith("python_gc_") for name in families)


def test_steps_are_counted_by_their_result():
    metrics = OperatorMetrics()
    with metrics.reconcile():
        pass
    with pytest.raises(KeyError), metrics.reconcile():
        raise KeyError
    value = metrics.registry.get_sample_value
    assert value("millrace_operator_reconciles_total", {"result": "success"}) == 1
    assert value("millrace_operator_reconciles_total", {"result": "error"}) == 1
    assert value("millrace_operator_reconcile_seconds_count") == 2


def test_gauges_are_read_at_each_scrape():
    metrics = OperatorMetrics()
    phases, age = [], []
    metrics.show(
        queue_depth=lambda: 3, phases=lambda: phases, leads=lambda: True, canary_age=lambda: age[0] if age else None
    )
    value = metrics.registry.get_sample_value
    assert value("millrace_operator_canary_age_seconds") is None
    age.append(12.5)
    phases += ["Running", "Pending", "Running"]
    assert value("millrace_operator_canary_age_seconds") == 12.5
    assert value("millrace_operator_queries", {"phase": "Running"}) == 2
    assert value("millrace_operator_queue_depth") == 3
    assert value("millrace_operator_leader") == 1


@pytest.mark.parametrize(
    ("url", "resource"),
    [
        ("https://host:1/api/v1/namespaces/a/configmaps/b?fieldManager=c", "configmaps"),
        ("https://host:1/api/v1/namespaces/a/events", "events"),
        ("https://host:1/api/v1/namespaces/a", "namespaces"),
        ("https://host:1/apis/millrace.io/v1alpha1/namespaces/a/streamqueries/b/status", "streamqueries/status"),
        ("https://host:1/apis/apps/v1/statefulsets", "statefulsets"),
        ("https://host:1/version", "other"),
    ],
)
def test_requests_are_counted_by_resource_and_not_by_name(url, resource):
    assert resource_of(url) == resource


def test_a_query_waits_from_when_there_was_somebody_to_work_on_it():
    now = [0.0]
    metrics = OperatorMetrics()
    queue = WorkQueue(lambda: now[0], metrics=metrics)
    queue.add("before the first worker")
    now[0] = 1000.0
    assert queue.get() == "before the first worker"
    queue.add("after")
    now[0] = 1004.0
    assert queue.get() == "after"
    assert metrics.registry.get_sample_value("millrace_operator_queue_seconds_sum") == 4.0
    queue.retry("after")
    assert metrics.registry.get_sample_value("millrace_operator_retries_total") == 1
