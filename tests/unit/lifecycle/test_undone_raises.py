"""Memory that was raised ahead, and for which there is no room: it is as before again, and stays so."""

from datetime import timedelta

import pytest

from millrace_operator.lifecycle.refusals import PodRefusedError, QuotaExceededError
from unit.api.documents import MINIMAL, changed

from .cluster import POD, stamp
from .reported_memory import BOUND, LIMIT, degraded, limit, reports, started, uid

BOTH = changed(MINIMAL, 12, "  driver: {maxMemory: 4g}\n  executors: {maxMemory: 6g}")
FULL, FULL_EXECUTOR = (600, 600, 600), (620, 625, 622)
"""MiB close to the limits of a driver's old generation, and of what an executor has beside its heap."""

NO_MEMORY = (
    "0/3 nodes are available: 1 node(s) had untolerated taint {gpu: }, 2 Insufficient memory. preemption: 0/3 nodes are "
    "available: 3 No preemption victims found for incoming pod."
)
OTHERS = (
    "0/3 nodes are available: 3 Insufficient cpu.",
    "0/3 nodes are available: 1 Insufficient memory, 3 Insufficient cpu.",
    "0/3 nodes are available: 1 Insufficient memory, 2 node(s) had untolerated taint {node.kubernetes.io/unreachable: }.",
)


def unschedulable(message=NO_MEMORY):
    """Return the condition of a pod that the scheduler finds no node for."""
    return {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}


def raised(text=BOUND):
    """A query whose driver has been replaced by one with more memory, ahead of need."""
    cluster = started(text)
    assert reports(cluster, *FULL).memory.driver.memory == "1536m"
    return cluster


def executors_raised():
    """A query whose executors have more memory, ahead of need, and whose next driver has just started."""
    cluster = started(BOTH)
    assert reports(cluster, executor=FULL_EXECUTOR).memory.executors.memory == "3072m"
    cluster.pod_is_ready()
    return cluster


def no_room(cluster, minutes=13, message=NO_MEMORY):
    """Let the scheduler find no node for the driver for some minutes."""
    cluster.pod_shows(phase="Pending", conditions=[unschedulable(message)])
    return cluster.pass_time(minutes=minutes)


def executor_waits(cluster, number):
    """Let Spark ask for an executor that the scheduler finds no node for."""
    cluster.pod_shows(cluster.executor(number, runs=False), phase="Pending", conditions=[unschedulable()])


def executor_goes(cluster, key):
    """Let an executor's pod be gone, as with its node."""
    cluster.reconciler.observations.object_gone(cluster.objects.pop(key))
    cluster.settle()


def test_a_driver_that_no_node_takes_has_its_memory_of_before():
    cluster = raised()
    driver = no_room(cluster).memory.driver
    assert (driver.memory, driver.heap, driver.no_room_for, limit(cluster)) == ("1g", "1g", "1536m", 1024 + LIMIT)
    assert driver.message == (
        "with 1536m for the driver, there was no room within 10 minutes; memory of the driver is 1g again"
    )
    assert (True, "MemoryRaiseUndone") in cluster.events
    assert "DriverFailed" not in [reason for _, reason in cluster.events]
    assert cluster.memory.counts.memory == {"driver": 1}


def test_before_it_is_undone_the_condition_says_when():
    cluster = raised()
    undone = stamp(cluster.time + timedelta(minutes=12))
    no_room(cluster, minutes=9)
    assert (degraded(cluster)[0], limit(cluster)) == ("Unschedulable", 1536 + LIMIT)
    assert degraded(cluster)[1].endswith(f"; its memory was raised to 1536m: undone at {undone}")


REMEDY = "; it is not raised, since there was no room for 1536m: make room, and set spec.driver.memory"


def test_it_is_not_raised_to_that_ahead_again():
    cluster = raised()
    no_room(cluster)
    cluster.pod_is_ready()
    cluster.pass_time(hours=30)
    assert reports(cluster, *FULL).memory.driver.memory == "1g"
    assert degraded(cluster)[0] == "MemoryFilling"
    assert degraded(cluster)[1].endswith(REMEDY)


@pytest.mark.parametrize(("hours", "memory"), [(5, "1g"), (7, "1536m")])
def test_memory_that_runs_out_is_raised_to_that_after_some_hours(hours, memory):
    cluster = raised()
    no_room(cluster)
    cluster.pod_is_ready()
    cluster.pass_time(hours=hours)
    assert cluster.pod_fails(code=137, reason="OOMKilled").memory.driver.memory == memory
    assert degraded(cluster)[1].endswith(REMEDY) == (memory == "1g")


def test_what_was_added_after_it_ran_out_stays():
    cluster = started()
    cluster.pod_fails(code=137, reason="OOMKilled")
    cluster.pod_is_ready()
    cluster.pass_time(hours=7)
    assert reports(cluster, 900, 900, 900, limit=1024).memory.driver.memory == "2304m"
    driver = no_room(cluster).memory.driver
    assert (driver.memory, driver.heap, driver.no_room_for, limit(cluster)) == ("1536m", "1g", "2304m", 1536 + LIMIT)
    assert no_room(cluster, minutes=60).memory.driver.memory == "1536m"


def test_memory_that_ran_out_stays_raised():
    cluster = started()
    cluster.pod_fails(code=137, reason="OOMKilled")
    assert no_room(cluster, minutes=30).memory.driver.memory == "1536m"
    assert degraded(cluster)[1].endswith("its memory was raised to 1536m: a lower spec.driver.maxMemory undoes that")


@pytest.mark.parametrize("message", OTHERS, ids=["cpu", "both", "outage"])
def test_a_driver_that_lacks_something_else_keeps_its_memory(message):
    cluster = raised()
    assert no_room(cluster, minutes=30, message=message).memory.driver.memory == "1536m"


def runs(cluster):
    """Let the driver and an executor run."""
    cluster.pod_is_ready()
    key = cluster.executor(4)
    cluster.pass_time(minutes=2)
    return key


def test_a_driver_that_loses_its_node_later_keeps_its_memory():
    cluster = raised()
    runs(cluster)
    executor_goes(cluster, POD)
    assert no_room(cluster, minutes=30).memory.driver.memory == "1536m"


def test_a_driver_that_gets_a_node_at_last_keeps_its_memory():
    cluster = raised()
    no_room(cluster, minutes=11)
    cluster.objects[POD]["spec"]["nodeName"] = "node-1"
    waiting = {"name": "driver", "state": {"waiting": {"reason": "ContainerCreating"}}}
    cluster.pod_shows(phase="Pending", containerStatuses=[waiting])
    assert cluster.pass_time(minutes=9).memory.driver.memory == "1536m"


def test_a_driver_in_a_queue_waits_for_its_turn_with_its_memory():
    cluster = raised(BOUND.replace("  driver:", "  scheduling: {scheduler: Kueue, queue: team-a}\n  driver:"))
    gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    cluster.pod_shows(phase="Pending", conditions=[gated])
    cluster.pass_time(minutes=95)
    assert no_room(cluster, minutes=9).memory.driver.memory == "1536m"
    assert cluster.pass_time(minutes=4).memory.driver.memory == "1g"


def test_an_edit_while_the_raised_driver_waits_changes_nothing():
    cluster = raised()
    no_room(cluster, minutes=5)
    cluster.put(BOUND.replace("count(*) AS n", "count(*) AS trips"))
    cluster.settle()
    assert no_room(cluster).memory.driver.memory == "1g"


def test_a_suspended_query_waits_for_a_node_when_it_is_resumed():
    cluster = raised()
    cluster.put(BOUND.replace("  driver:", "  suspend: true\n  driver:"))
    cluster.pass_time(hours=2)
    cluster.put(BOUND)
    cluster.settle()
    assert no_room(cluster, minutes=9).memory.driver.memory == "1536m"
    assert cluster.pass_time(minutes=4).memory.driver.memory == "1g"


def test_a_spec_that_no_node_takes_is_rolled_back_with_the_raised_memory():
    cluster = raised()
    runs(cluster)
    cluster.put(BOUND.replace("maxMemory: 4g}", "cores: 3, maxMemory: 4g}"))
    cluster.settle()
    status = no_room(cluster)
    assert (status.rejected.message[:24], status.memory.driver.memory) == ("not ready within 10 minu", "1536m")


def exceeded(requested):
    """Return the API server's error for a pod that exceeds a quota by what is requested."""
    return QuotaExceededError(
        f'pods "p" is forbidden: exceeded quota: small, requested: {requested}, used: limits.cpu=1, limited: limits.cpu=2'
    )


@pytest.mark.parametrize(
    "requested", ["limits.memory=2560Mi", "limits.memory=2560Mi,requests.memory=2560Mi", "memory=3Gi"]
)
def test_a_driver_for_which_the_quota_has_no_memory_has_its_memory_of_before(requested):
    cluster = started()
    cluster.refused_pods = {"driver": exceeded(requested)}
    reports(cluster, *FULL)
    cluster.pass_time(minutes=9)
    assert (degraded(cluster)[0], cluster.status.memory.driver.memory) == ("QuotaExceeded", "1536m")
    assert "; its memory was raised to 1536m: undone at " in degraded(cluster)[1]
    cluster.pass_time(minutes=3)
    driver = cluster.status.memory.driver
    assert (driver.memory, driver.no_room_for) == ("1g", "1536m")
    cluster.refused_pods = {}
    cluster.pass_time(minutes=2)
    assert limit(cluster) == 1024 + LIMIT


@pytest.mark.parametrize(
    "error",
    [
        exceeded("limits.cpu=2"),
        exceeded("limits.cpu=2,limits.memory=2560Mi"),
        exceeded("pods=1"),
        PodRefusedError('pods "memory=1, requested: memory=2, used" is forbidden by a policy'),
    ],
    ids=["cpu", "both", "pods", "policy"],
)
def test_a_driver_that_is_refused_for_another_reason_says_how_to_undo_the_raise(error):
    cluster = started()
    cluster.refused_pods = {"driver": error}
    reports(cluster, *FULL)
    cluster.pass_time(minutes=30)
    assert degraded(cluster)[1].endswith("its memory was raised to 1536m: a lower spec.driver.maxMemory undoes that")


def test_executors_for_which_the_quota_has_no_memory_have_their_memory_of_before():
    cluster = started(BOTH)
    assert reports(cluster, executor=FULL_EXECUTOR).memory.executors.memory == "3072m"
    cluster.driver_starts()
    cluster.refused_pods = {"executor": exceeded("requests.memory=3712Mi")}
    cluster.pass_time(minutes=9)
    assert (degraded(cluster)[0], cluster.status.memory.executors.memory) == ("QuotaExceeded", "3072m")
    cluster.pass_time(minutes=3)
    executors = cluster.status.memory.executors
    assert (executors.memory, executors.no_room_for) == ("2g", "3072m")


def test_a_paused_query_keeps_its_memory():
    cluster = raised()
    cluster.put(BOUND, {"millrace.io/paused": "true"})
    assert no_room(cluster, minutes=20).memory.driver.memory == "1536m"
    cluster.put(BOUND)
    cluster.settle()
    assert cluster.pass_time(minutes=11).memory.driver.memory == "1g"


@pytest.mark.parametrize("memory", ["1500m", "2g"])
def test_another_size_in_the_spec_is_followed(memory):
    cluster = raised()
    no_room(cluster)
    cluster.put(BOUND.replace("maxMemory: 4g", f"memory: {memory}, maxMemory: 4g"))
    assert (cluster.settle().memory, limit(cluster)) == (None, {"1500m": 1500, "2g": 2048}[memory] + LIMIT)


def test_executors_that_no_node_takes_have_their_memory_of_before():
    cluster = executors_raised()
    executor_waits(cluster, 4)
    cluster.pass_time(minutes=11)
    assert (cluster.status.memory.executors.memory, degraded(cluster)[0]) == ("3072m", "ExecutorsPending")
    before = uid(cluster)
    executors = cluster.pass_time(minutes=2).memory.executors
    assert (executors.memory, executors.heap, executors.no_room_for) == ("2g", "2g", "3072m")
    assert executors.message.startswith("with 3072m for the executors, there was no room within")
    assert uid(cluster) != before


def test_executors_that_spark_replaces_while_they_wait_have_waited_all_the_time():
    cluster = executors_raised()
    executor_waits(cluster, 4)
    cluster.pass_time(minutes=10)
    executor_goes(cluster, ("Pod", "exec-4"))
    executor_waits(cluster, 5)
    assert cluster.pass_time(minutes=3).memory.executors.memory == "2g"


def test_executors_of_which_one_runs_keep_their_memory():
    cluster = executors_raised()
    cluster.pod_is_ready(cluster.executor(4))
    executor_waits(cluster, 5)
    assert cluster.pass_time(minutes=40).memory.executors.memory == "3072m"


def test_executors_of_which_one_has_a_node_keep_their_memory():
    cluster = executors_raised()
    executor_waits(cluster, 4)
    key = cluster.executor(5, runs=False)
    cluster.objects[key]["spec"]["nodeName"] = "node-1"
    cluster.pod_shows(key, phase="Pending", conditions=[])
    assert cluster.pass_time(minutes=40).memory.executors.memory == "3072m"


@pytest.mark.parametrize("hours", [0, 2, 30])
def test_executors_that_lose_their_nodes_later_keep_their_memory(hours):
    cluster = executors_raised()
    key = runs(cluster)
    executor_waits(cluster, 5)  # which is reported all the time
    cluster.pass_time(hours=hours)
    before = uid(cluster)
    executor_goes(cluster, key)
    assert cluster.pass_time(minutes=40).memory.executors.memory == "3072m"
    assert uid(cluster) == before


def test_a_raised_driver_that_leaves_no_room_for_executors_has_its_memory_of_before():
    cluster = raised(BOTH)
    cluster.pod_is_ready()
    executor_waits(cluster, 4)
    status = cluster.pass_time(minutes=13)
    assert (status.memory.driver.memory, status.memory.driver.no_room_for) == ("1g", "1536m")
    assert status.memory.driver.message.startswith("with 1536m for the driver, there was no room within")


def test_a_bound_below_what_was_in_force_before_leaves_nothing_to_undo():
    cluster = started()
    cluster.pod_fails(code=137, reason="OOMKilled")
    cluster.pod_is_ready()
    cluster.pass_time(hours=7)
    assert reports(cluster, 900, 900, 900, limit=1024).memory.driver.memory == "2304m"
    cluster.put(BOUND.replace("4g", "1400m"))
    cluster.settle()
    status = no_room(cluster, minutes=30)
    assert (status.memory.driver.memory, status.memory.driver.no_room_for) == ("1400m", None)


def test_an_operator_that_starts_meanwhile_counts_on():
    cluster = raised()
    no_room(cluster, minutes=9)
    cluster.start_operator()
    cluster.settle()
    assert cluster.pass_time(minutes=2).memory.driver.memory == "1536m"
    assert cluster.pass_time(minutes=2).memory.driver.memory == "1g"
