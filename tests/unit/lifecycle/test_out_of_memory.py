"""Pods that run out of memory: how much more the next ones get, up to the bound, and what is said at the bound."""

import json
from contextlib import suppress

import pytest

from millrace_api.model.status import MemoryShortage
from unit.api.documents import MINIMAL, changed

from .cluster import NOW, POD, Cluster

BOUND = changed(MINIMAL, 12, "  driver: {maxMemory: 4g}\n  executors: {maxMemory: 6g}")
HEAP_REPORT = json.dumps({"failure": "OutOfMemory", "message": "Spark ran out of memory"})
LIMIT = 256 + 384 + 384
"""MiB beside the heap of a driver with one source."""


def started(text, cluster=None):
    """A query whose driver has been ready for over a minute."""
    cluster = cluster or Cluster()
    cluster.put(text)
    cluster.settle()
    cluster.pod_is_ready()
    cluster.pass_time(seconds=70)
    return cluster


def runs_out(cluster, *, of_heap=False):
    """Let the driver run out of memory, and the operator answer."""
    if of_heap:
        return cluster.pod_fails(HEAP_REPORT)
    return cluster.pod_fails(code=137, reason="OOMKilled")


def executors_run_out(cluster, numbers, code=137, seconds=20):
    """Let executors run out of memory one after the other, of which Spark makes others."""
    for number in numbers:
        key = cluster.executor(number)
        cluster.pass_time(seconds=seconds)
        cluster.executor_ends(key, code=code, reason="OOMKilled" if code == 137 else "Error")
    return cluster.pass_time(seconds=6)


def uid(cluster):
    return cluster.pod["metadata"]["uid"]


def limit(cluster):
    """The memory limit of the driver's pod in MiB."""
    return int(cluster.pod["spec"]["containers"][0]["resources"]["limits"]["memory"].removesuffix("Mi"))


def setting(cluster, name):
    """A setting of the driver's session."""
    lines = cluster.configuration()["data"]["spark-defaults.conf"].splitlines()
    return dict(line.split(" ", 1) for line in lines)[name]


def degraded(cluster):
    found = cluster.condition("Degraded")
    return found.reason, found.message


def test_a_driver_over_its_limit_is_replaced_by_one_with_more_beside_the_heap():
    cluster = started(BOUND)
    before = uid(cluster)
    status = runs_out(cluster)
    assert (uid(cluster) != before, limit(cluster)) == (True, 1536 + LIMIT)
    assert (setting(cluster, "spark.driver.memory"), setting(cluster, "spark.executor.memory")) == ("1g", "2g")
    raised = status.memory.driver
    assert (raised.from_, raised.memory, raised.heap, raised.raises) == ("1g", "1536m", "1g", 1)
    assert (raised.reason, raised.time) == (MemoryShortage.LIMIT, status.attempts[-1].time)
    assert raised.message == (
        "the driver exceeded its memory limit; raise spec.driver.memory; "
        "memory of the driver raised from 1g to 1536m, beside the heap"
    )
    assert status.memory.executors is None
    assert (status.failures, status.retry_time, degraded(cluster)) == (0, None, ("AsExpected", ""))
    assert (True, "MemoryRaised") in cluster.events
    assert cluster.memory.counts.memory == {"driver": 1}
    assert cluster.memory.counts.failures == {"OutOfMemory": 1}


def test_a_driver_whose_heap_is_full_gets_a_larger_heap():
    cluster = started(BOUND)
    status = runs_out(cluster, of_heap=True)
    assert (setting(cluster, "spark.driver.memory"), limit(cluster)) == ("1536m", 1536 + LIMIT)
    raised = status.memory.driver
    assert (raised.memory, raised.heap, raised.reason) == ("1536m", "1536m", MemoryShortage.HEAP)


def test_the_drain_is_a_planned_replacement_that_says_why():
    cluster = started(BOUND)
    cluster.actions.clear()
    cluster.dies_at = 2  # before the drain: what is written then is the reason
    with pytest.raises(ConnectionError):
        runs_out(cluster)
    progress = cluster.condition("Progressing")
    assert progress.reason == "Replacing"
    assert "raised from 1g to 1536m, beside the heap: the driver ends after its running batch" in progress.message


def test_what_runs_out_again_is_raised_again_up_to_the_bound_and_then_given_up():
    cluster = started(BOUND)
    sizes = []
    for _ in range(5):
        sizes.append(runs_out(cluster).memory.driver.memory)
        cluster.pass_time(seconds=5)
    assert sizes == ["1536m", "2304m", "3456m", "4096m", "4096m"]
    assert limit(cluster) == 4096 + LIMIT
    assert degraded(cluster) == (
        "OutOfMemory",
        "the driver exceeded its memory limit; raise spec.driver.memory; "
        "it is not raised beyond spec.driver.maxMemory, 4g: raise that",
    )
    for number in range(5):
        cluster.pass_time(minutes=6)
        status = runs_out(cluster) if cluster.pod else cluster.settle()
        assert (status.phase == "Failed") == (number == 4 or status.retry_time is not None)
    assert (cluster.condition("Ready").reason, status.failures, status.memory.driver.raises) == ("Failed", 6, 4)


def test_small_memory_is_raised_by_a_useful_amount():
    cluster = started(changed(MINIMAL, 12, "  driver: {memory: 300m, maxMemory: 1g}"))
    assert runs_out(cluster).memory.driver.memory == "556m"


def test_without_a_bound_nothing_is_raised_and_the_condition_names_the_field():
    cluster = started(MINIMAL)
    before = uid(cluster)
    status = runs_out(cluster)
    assert (uid(cluster), status.memory, status.failures) == (before, None, 1)
    assert degraded(cluster)[1].endswith("with spec.driver.maxMemory, the operator raises it up to that")


def test_a_bound_that_is_added_after_the_failure_counts_at_once():
    cluster = started(MINIMAL)
    runs_out(cluster)
    cluster.put(BOUND)
    assert cluster.settle().memory.driver.memory == "1536m"
    assert limit(cluster) == 1536 + LIMIT


def test_a_driver_that_recovered_by_itself_is_left_alone():
    cluster = started(MINIMAL)
    runs_out(cluster)
    cluster.objects[POD]["status"]["containerStatuses"][0]["state"] = {"running": {}}
    since = [{"type": "Ready", "status": "True", "lastTransitionTime": NOW.strftime("%Y-%m-%dT%H:%M:%SZ")}]
    cluster.pod_shows(**(cluster.objects[POD]["status"] | {"conditions": since}))
    cluster.pass_time(seconds=70)
    before = uid(cluster)
    cluster.put(BOUND)
    assert (cluster.settle().memory, uid(cluster)) == (None, before)


@pytest.mark.parametrize(
    ("code", "heap", "beside"), [(137, "2g", 256 + 2 * 256 + 204 + 1024), (52, "3072m", 256 + 2 * 256 + 307)]
)
def test_executors_that_run_out_again_and_again_get_more_with_another_driver(code, heap, beside):
    cluster = started(BOUND)
    before = uid(cluster)
    assert (executors_run_out(cluster, (1, 2), code).memory, uid(cluster)) == (None, before)
    status = executors_run_out(cluster, (3,), code)
    assert (uid(cluster) != before, limit(cluster)) == (True, 1024 + LIMIT)
    assert setting(cluster, "spark.executor.memory") == heap
    assert setting(cluster, "spark.executor.memoryOverhead") == f"{beside}m"
    assert (status.memory.driver, status.memory.executors.memory) == (None, "3072m")
    assert status.memory.executors.message.startswith("3 executors failed: the executor")
    assert cluster.memory.counts.memory == {"executor": 1}
    cluster.pod_is_ready()
    cluster.pass_time(minutes=2)
    assert degraded(cluster) == ("AsExpected", "")


def test_executors_at_their_bound_go_on_and_the_condition_names_the_field():
    cluster = started(changed(MINIMAL, 12, "  executors: {maxMemory: 2g}"))
    before = uid(cluster)
    executors_run_out(cluster, (1, 2, 3))
    assert uid(cluster) == before
    reason, message = degraded(cluster)
    assert reason == "ExecutorsFailing"
    assert message.endswith("it is not raised beyond spec.executors.maxMemory, 2g: raise that")


def test_a_full_heap_that_the_driver_reports_is_that_of_executors_which_ended_with_one():
    cluster = started(BOUND)
    executors_run_out(cluster, (1,), code=52)
    status = runs_out(cluster, of_heap=True)
    assert (status.memory.driver, status.memory.executors.heap) == (None, "3072m")


@pytest.mark.parametrize("actions", range(12))
def test_an_operator_that_dies_at_any_action_raises_the_memory_once(actions):
    cluster = started(BOUND)
    cluster.dies_at = actions
    with suppress(ConnectionError):
        runs_out(cluster)
    cluster.dies_at = None
    cluster.start_operator()
    status = cluster.settle()
    assert (status.memory.driver.memory, status.memory.driver.raises, limit(cluster)) == ("1536m", 1, 1536 + LIMIT)


def test_another_memory_in_the_spec_ends_the_raise():
    cluster = started(BOUND)
    runs_out(cluster)
    cluster.pod_is_ready()
    cluster.pass_time(seconds=70)
    cluster.put(BOUND.replace("{maxMemory: 4g}", "{memory: 1200m, maxMemory: 4g}"))
    assert cluster.settle().memory is None
    assert limit(cluster) == 1200 + LIMIT


def test_other_changes_keep_what_was_raised():
    cluster = started(BOUND)
    runs_out(cluster)
    cluster.pod_is_ready()
    cluster.pass_time(seconds=70)
    before = uid(cluster)
    cluster.put(BOUND.replace("4g", "5g"))
    assert (cluster.settle().memory.driver.memory, uid(cluster)) == ("1536m", before)
    cluster.put(BOUND + "  restartNonce: 3\n")
    assert cluster.settle().memory.driver.memory == "1536m"
    assert (uid(cluster) != before, limit(cluster)) == (True, 1536 + LIMIT)


@pytest.mark.parametrize(("bound", "memory"), [("{maxMemory: 1200m}", 1200), ("{cores: 1}", 1024)])
def test_a_lower_bound_replaces_the_driver_by_one_within_it(bound, memory):
    cluster = started(BOUND)
    runs_out(cluster)
    cluster.pod_is_ready()
    cluster.pass_time(seconds=70)
    cluster.put(BOUND.replace("{maxMemory: 4g}", bound))
    cluster.settle()
    assert limit(cluster) == memory + LIMIT


def test_a_status_that_others_have_written_raises_nothing_beyond_the_bound():
    cluster = started(BOUND)
    runs_out(cluster)
    cluster.query["status"]["memory"]["driver"] |= {"memory": "900g", "heap": "900g"}
    cluster._changed(cluster.query)
    cluster.settle()
    assert (limit(cluster), setting(cluster, "spark.driver.memory")) == (4096 + LIMIT, "4096m")


def test_a_changed_query_that_needs_more_memory_gets_it_before_it_is_rolled_back():
    cluster = started(BOUND)
    cluster.put(BOUND.replace("count(*) AS n", "count(*) AS trips"))
    cluster.settle()
    changed_to = cluster.status.revision
    for _ in range(3):
        cluster.pass_time(seconds=20)
        runs_out(cluster)
    assert (cluster.status.revision, cluster.status.rejected) == (changed_to, None)
    assert cluster.status.memory.driver.memory == "3456m"


def test_a_changed_query_whose_executors_need_more_memory_gets_it_before_it_is_rolled_back():
    cluster = started(BOUND)
    cluster.put(BOUND.replace("count(*) AS n", "count(*) AS trips"))
    cluster.settle()
    cluster.pod_is_ready()
    status = executors_run_out(cluster, (1, 2, 3), seconds=10)
    assert (status.rejected, status.memory.executors.memory) == (None, "3072m")


def test_a_changed_query_is_not_rolled_back_while_its_driver_drains_for_more_memory(monkeypatch):
    cluster = started(BOUND)
    cluster.put(BOUND.replace("count(*) AS n", "count(*) AS trips"))
    cluster.settle()
    cluster.pod_is_ready()
    before = uid(cluster)
    with monkeypatch.context() as slow:
        slow.setattr(cluster, "control", lambda: None)  # the pod has a grace period
        executors_run_out(cluster, (1, 2, 3), seconds=10)
        cluster.pass_time(seconds=20)
        status = executors_run_out(cluster, (4,), seconds=10)
        assert (status.rejected, status.memory.executors.memory, uid(cluster)) == (None, "3072m", before)
    status = cluster.settle()
    assert (status.rejected, status.memory.executors.memory) == (None, "3072m")
    assert uid(cluster) != before


def test_a_driver_that_was_given_up_runs_again_with_a_bound():
    cluster = started(MINIMAL)
    for _ in range(6):
        runs_out(cluster)
        cluster.pass_time(minutes=6)
    assert (cluster.status.phase, cluster.pod) == ("Failed", None)
    cluster.put(BOUND)
    status = cluster.settle()
    assert (status.memory.driver.memory, status.failures, limit(cluster)) == ("1536m", 0, 1536 + LIMIT)


def test_a_query_with_an_invalid_change_goes_on_with_the_memory_that_it_has():
    cluster = started(BOUND)
    cluster.put(BOUND.replace("count(*) AS n", "count(nothing) AS n"))
    cluster.settle()
    status = runs_out(cluster)
    assert (status.memory, limit(cluster)) == (None, 1024 + LIMIT)
    assert (True, "MemoryRaised") not in cluster.events


def test_one_executor_after_a_failure_of_the_driver_raises_nothing():
    cluster = started(changed(MINIMAL, 12, "  executors: {maxMemory: 6g}"))
    runs_out(cluster)
    cluster.pod_is_ready()
    status = executors_run_out(cluster, (1,), seconds=1)
    assert status.memory is None


def test_nothing_is_raised_while_the_query_is_paused():
    cluster = started(BOUND)
    before = uid(cluster)
    cluster.put(BOUND, {"millrace.io/paused": "true"})
    assert (runs_out(cluster).memory, uid(cluster)) == (None, before)
    assert degraded(cluster)[1].endswith(
        "it is raised, up to spec.driver.maxMemory, 4g, once the annotation millrace.io/paused is gone"
    )
    cluster.put(BOUND)
    assert cluster.settle().memory.driver.memory == "1536m"


def test_a_suspended_query_keeps_what_was_raised():
    cluster = started(BOUND)
    runs_out(cluster)
    cluster.put(BOUND + "  suspend: true\n")
    assert cluster.settle().memory.driver.memory == "1536m"
    cluster.put(BOUND)
    cluster.settle()
    assert limit(cluster) == 1536 + LIMIT


def test_a_limit_in_the_pod_template_is_not_raised():
    container = "{name: driver, resources: {limits: {memory: 1Gi}}}"
    template = f"  driver: {{maxMemory: 4g, podTemplate: {{spec: {{containers: [{container}]}}}}}}"
    cluster = started(changed(MINIMAL, 12, template))
    assert runs_out(cluster).memory is None
    assert "spec.driver.podTemplate sets the limit: leave that out" in degraded(cluster)[1]
