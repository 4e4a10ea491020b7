"""A driver whose pod goes away while it runs: the status says that it is replaced, and not only that one starts."""

import pytest

from unit.resources.cases import SMALLEST

from .cluster import POD, stamp

QUERY = SMALLEST + "  scaling: {mode: 'Off'}\n"
LOST = "the driver's pod was deleted, or lost with its node, and another one goes on from the checkpoint"


@pytest.fixture
def running(cluster):
    cluster.put(QUERY)
    cluster.settle()
    assert cluster.condition("Ready").reason == "Deploying"
    cluster.driver_starts()
    cluster.executor(0)
    cluster.pod_is_ready()
    cluster.pass_time(seconds=61)
    return cluster


def shown(cluster):
    ready = cluster.condition("Ready")
    return ready.status, ready.reason, ready.message


def test_a_driver_whose_pod_is_deleted_is_being_replaced_until_its_first_batch(running):
    running.reconciler.observations.object_gone(running.objects.pop(POD))
    running.settle()
    assert shown(running) == ("False", "DriverLost", f"{LOST}: the driver is starting")
    assert running.status.phase == "Deploying"
    assert (False, "DriverLost") in running.events
    running.start_operator()
    running.pod_shows(containerStatuses=[{"name": "driver", "state": {"waiting": {"reason": "ContainerCreating"}}}])
    assert shown(running) == ("False", "DriverLost", f"{LOST}: container driver: ContainerCreating")
    running.driver_starts()
    running.executor(1)
    assert running.condition("Ready").reason == "FirstBatch"
    running.pod_is_ready()
    assert shown(running) == ("True", "Running", "the driver is ready")


def test_a_pod_that_is_ending_is_replaced_too(running):
    running.pod["metadata"]["deletionTimestamp"] = stamp(running.time)
    running.settle()
    assert shown(running) == ("False", "DriverLost", f"{LOST}: the driver's pod is being replaced")


@pytest.mark.parametrize("start", [{}, {"startTime": "2026-01-31T11:59:58Z"}], ids=["no start", "another start"])
def test_a_pod_that_the_operator_has_not_seen_go_is_known_by_its_successor(running, start):
    """Also where the clock of the successor's node is behind that of the node before."""
    held = running.objects[POD]
    held["metadata"] |= {"uid": "another", "creationTimestamp": "2026-02-01T12:00:00Z"}
    held["status"] = {}
    running.pod_shows(**start)
    assert running.condition("Ready").reason == "DriverLost"


def test_a_driver_whose_node_has_a_clock_behind_the_api_server_s_was_not_lost(running):
    running.pod["metadata"]["creationTimestamp"] = "2026-02-01T12:00:00Z"  # later than its start
    running.pod_shows(containerStatuses=[{"name": "driver", "state": {"waiting": {"reason": "ContainerCreating"}}}])
    assert shown(running) == ("False", "Deploying", "container driver: ContainerCreating")


def test_a_driver_whose_container_starts_again_was_not_lost(running):
    running.pod_fails(code=137)
    running.pass_time(seconds=1)
    assert running.condition("Ready").reason == "Deploying"


@pytest.mark.parametrize("change", ["spec", "suspend"])
def test_a_driver_that_the_operator_replaces_was_not_lost(running, change):
    reasons, changed = set(), QUERY.replace("count(*) AS n", "count(*) AS trips")
    for text in (changed,) if change == "spec" else (f"{QUERY}  suspend: true\n", QUERY):
        running.put(text)
        running.settle()
        reasons.add(running.condition("Ready").reason)
    assert "DriverLost" not in reasons
    assert running.condition("Ready").reason == "Deploying"
    assert (False, "DriverLost") not in running.events
