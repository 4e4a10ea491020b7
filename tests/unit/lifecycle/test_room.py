"""A query for which its namespace has no room, or that is too large: nothing is decided by half of it."""

from __future__ import annotations

from millrace_operator.lifecycle.objects.object_sizes import TOO_LARGE
from unit.api.documents import MINIMAL

from .cluster import KEY, Cluster, copied


def ready(cluster: Cluster) -> tuple[str, str]:
    found = cluster.condition("Ready")
    return found.reason, found.message


def run(cluster: Cluster) -> None:
    cluster.put(MINIMAL)
    cluster.settle()
    cluster.pod_is_ready()
    assert ready(cluster)[0] == "Running"
    cluster.actions.clear()


def test_a_query_without_room_is_reported_left_alone_and_taken_up_once_there_is_room(cluster: Cluster) -> None:
    run(cluster)
    deployed = copied(cluster.objects)
    cluster.namespace_bytes = 9000
    cluster.start_operator()
    cluster.put(MINIMAL + "  executors: {initial: 3}\n")
    cluster.settle()
    reason, message = ready(cluster)
    assert reason == "InvalidQuery"
    assert "has more queries and objects than the 0.00858307 MiB that the operator keeps of one" in message
    assert {action for action, *_ in cluster.actions} <= {"status", "event"}
    assert cluster.objects == deployed
    before = cluster.reads
    cluster.pass_time(seconds=300)
    assert 2 <= cluster.reads - before <= 6
    cluster.reconciler.observations._most = 1 << 20  # as if others had been deleted
    cluster.pass_time(seconds=61)
    assert ready(cluster)[0] == "Running"
    assert ("apply", "ConfigMap", f"{KEY.name}-plan") in cluster.actions


def test_a_query_that_is_too_large_keeps_its_driver_and_can_be_deleted(cluster: Cluster) -> None:
    run(cluster)
    small = dict(cluster.query)
    cluster.query = {name: part for name, part in small.items() if name != "spec"} | {TOO_LARGE: 1_300_000}
    cluster.query["metadata"] = small["metadata"] | {"generation": 2}
    cluster.settle()
    reason, message = ready(cluster)
    assert (reason, message.partition(";")[0]) == (
        "InvalidQuery",
        "the query takes 1269 KiB, of 128 KiB that one may take",
    )
    assert {action for action, *_ in cluster.actions} <= {"status", "event"}
    assert cluster.status.phase == "Running"
    cluster.delete()
    cluster.settle()
    assert cluster.query is None
