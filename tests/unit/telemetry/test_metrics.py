"""The contract is what is exported, from the beginning."""

import pytest

from millrace_operator.kube.client import resource_of
from millrace_operator.lifecycle.workqueue import WorkQueue
from millrace_operator.telemetry.contract import CONTRACT
from millrace_operator.telemetry.metrics import OperatorMetrics
from millrace_operator.telemetry.watches import STALE_SECONDS, Watches

from .exported import show


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
    show(metrics, queue_depth=lambda: 3, phases=lambda: phases, canary_age=lambda: age[0] if age else None)
    value = metrics.registry.get_sample_value
    assert value("millrace_operator_canary_age_seconds") is None
    assert value("millrace_operator_canary_path_seconds") == 0.5
    assert value("millrace_operator_kept_bytes", {"of": "n19"}) == 19
    assert value("millrace_operator_kept_bytes", {"of": "n9"}) is None, "only the ten namespaces with most are shown"
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


def test_watches_are_shown_by_kind_the_oldest_age_and_the_sums():
    metrics = OperatorMetrics()
    for namespace in "ab":
        watch = metrics.watches.of("pods", namespace)
        watch.heard(3)
        watch.failed()
    metrics.watches.of("pods", "a")._clock = lambda: metrics.watches.of("pods", "a")._heard + 7.0
    value = metrics.registry.get_sample_value
    assert value("millrace_operator_informer_age_seconds", {"resource": "pods"}) == 7.0
    assert value("millrace_operator_informer_errors_total", {"resource": "pods"}) == 2
    assert value("millrace_operator_informer_objects", {"resource": "pods"}) == 6


def test_a_watch_is_stale_when_it_has_heard_nothing_for_too_long():
    watches, now = Watches(), [0.0]
    silent = watches.of("pods", None)
    silent._clock = lambda: now[0]
    silent.heard(0)
    now[0] = STALE_SECONDS
    assert watches.stale == []
    now[0] = STALE_SECONDS + 1
    assert watches.stale == [silent]
    assert str(silent) == "the watch of pods"
    silent.heard(0)
    assert watches.stale == []
