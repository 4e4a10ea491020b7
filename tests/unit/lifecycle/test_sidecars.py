"""Containers that a service mesh puts into pods: the state of a pod is that of its own container."""

import pytest

from unit.api.documents import MINIMAL, changed

from .cluster import KEY, POD, REPLICAS, Cluster, stamp

KAFKA = changed(MINIMAL, 7, '      kafka: {bootstrapServers: "kafka:9092", topic: trips}')
RUNNING = {"running": {"startedAt": "2026-01-31T12:00:00Z"}}
KILLED = {"terminated": {"exitCode": 137, "finishedAt": "2026-01-31T12:00:00Z", "containerID": "proxy"}}


def ready(cluster: Cluster, **status: object) -> None:
    """The driver's pod is ready, and shows the given states, too."""
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": stamp(cluster.time)}
    cluster.pod_shows(conditions=[condition], **status)


@pytest.fixture
def deployed(cluster: Cluster) -> Cluster:
    cluster.put(MINIMAL)
    cluster.settle()
    return cluster


@pytest.mark.parametrize("place", ["initContainerStatuses", "containerStatuses"])
def test_a_sidecar_that_is_killed_is_no_failure_of_the_driver(deployed: Cluster, place: str) -> None:
    proxy = {"name": "istio-proxy", "restartCount": 3, "state": RUNNING, "lastState": KILLED}
    driver = {"name": "driver", "restartCount": 1, "state": RUNNING}
    states: dict[str, list[object]] = {"containerStatuses": [driver]}
    states[place] = [proxy, *states.get(place, [])]
    ready(deployed, **states)
    assert (deployed.status.phase, deployed.status.failures) == ("Running", 0)
    assert deployed.status.driver.restarts == 1
    assert deployed.condition("Degraded").status == "False"


def test_a_driver_that_fails_beside_a_sidecar_has_failed(deployed: Cluster) -> None:
    driver = {"name": "driver", "restartCount": 1, "state": {"waiting": {}}, "lastState": KILLED}
    deployed.pod_shows(containerStatuses=[{"name": "istio-proxy", "restartCount": 0, "state": RUNNING}, driver])
    assert deployed.status.failures == 1


def test_a_native_sidecar_that_does_not_start_is_what_the_driver_waits_for(deployed: Cluster) -> None:
    proxy = {"name": "istio-proxy", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}
    driver = {"name": "driver", "state": {"waiting": {"reason": "PodInitializing"}}}
    deployed.pod_shows(initContainerStatuses=[proxy], containerStatuses=[driver])
    expected = "container istio-proxy: ErrImagePull: no such image"
    assert deployed.condition("Ready").message == expected
    degraded = deployed.condition("Degraded")
    assert (degraded.reason, degraded.message) == ("ImageUnavailable", expected)


def test_an_executor_has_ended_although_a_sidecar_keeps_its_pod_running(deployed: Cluster) -> None:
    ready(deployed)
    key = deployed.executor(1)
    assert len(deployed.reconciler.observations.of(KEY).live_executors) == 1
    ended = {"name": "executor", "state": {"terminated": {"exitCode": 0, "finishedAt": stamp(deployed.time)}}}
    deployed.pod_shows(key, phase="Running", containerStatuses=[{"name": "istio-proxy", "state": RUNNING}, ended])
    assert deployed.reconciler.observations.of(KEY).live_executors == []


def test_replicas_get_the_image_that_the_driver_was_given_and_not_its_mirrors(cluster: Cluster) -> None:
    cluster.put(KAFKA + "  partitioner: {placement: Dedicated}\n")
    cluster.settle()
    cluster.objects[POD]["spec"]["containers"][0]["image"] = f"mirror.example/{cluster.image}"
    cluster.settle()
    assert cluster.objects[REPLICAS]["spec"]["template"]["spec"]["containers"][0]["image"] == cluster.image
