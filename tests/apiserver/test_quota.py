"""Quotas and other limits of a namespace: scaling stays within them, and refused pods are reported in their words."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.control_plane import ControlPlane
from lab.processes import Process
from millrace_api.model.memory_use import MEMORY_KEY, MemoryPart, MemoryReport, MemorySample, MemorySeries
from millrace_operator.lifecycle.autoscaling.quota_room import room_for
from unit.resources.cases import CASES, SMALLEST

from .crd_documents import as_users_write
from .granted_rights import RULES, Right, grant, rights
from .observed import ready_of, status_of, wait_until
from .operators import running_operator
from .played_pods import become_healthy, make_ready, pod

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(900)]

NAME = "trips-by-cell"
DRIVER_POD = f"{NAME}-driver-0"
Kubectl = Callable[..., str]


@pytest.fixture(scope="module")
def operator(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """The operator that tests share."""
    with running_operator(plane, tmp_path_factory.mktemp("operator")) as started:
        yield started


def make_quota(kubectl: Kubectl, hard: dict[str, str], name: str = "few", **spec: Any) -> None:
    """Create or change a quota, and wait until Kubernetes has counted what there is."""
    document = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}}
    kubectl("apply", "-f", "-", document=document | {"spec": {"hard": hard, **spec}})
    wait_until(lambda: json.loads(kubectl("get", "quota", name, "-o", "json"))["status"].get("hard") == hard)


def make_limit_range(kubectl: Kubectl, *items: dict[str, Any]) -> None:
    document = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "sizes"}}
    kubectl("apply", "-f", "-", document=document | {"spec": {"limits": list(items)}})


def condition(kubectl: Kubectl, type: str) -> dict[str, Any]:
    found = status_of(kubectl, NAME).get("conditions", ())
    return next((each for each in found if each["type"] == type), {})


def is_degraded(kubectl: Kubectl, reason: str, *words: str) -> bool:
    degraded = condition(kubectl, "Degraded")
    return degraded.get("reason") == reason and all(word in degraded["message"] for word in words)


def has_driver(kubectl: Kubectl) -> bool:
    return status_of(kubectl, NAME).get("driver", {}).get("pod") == DRIVER_POD


@pytest.mark.usefixtures("operator")
def test_a_driver_without_room_in_a_quota_is_reported_and_comes_when_there_is(kubectl: Kubectl) -> None:
    make_quota(kubectl, {"pods": "0"})
    kubectl("apply", "-f", "-", document=SMALLEST)
    wait_until(lambda: is_degraded(kubectl, "QuotaExceeded", "the driver's pod is refused", "exceeded quota: few"))
    ready = ready_of(kubectl, NAME)
    assert (ready["status"], ready["reason"]) == ("False", "QuotaExceeded")
    make_quota(kubectl, {"pods": "1"})
    wait_until(lambda: has_driver(kubectl))
    wait_until(lambda: is_degraded(kubectl, "AsExpected"))


@pytest.mark.in_turn
@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ({"type": "Container", "max": {"memory": "64Mi"}, "default": {"memory": "64Mi"}}, ["maximum memory usage"]),
        ({"type": "Pod", "max": {"memory": "64Mi"}}, ["maximum memory usage per Pod"]),
    ],
)
def test_a_driver_that_a_limit_range_refuses_is_reported(
    kubectl: Kubectl, limit: dict[str, Any], words: list[str]
) -> None:
    make_limit_range(kubectl, limit)
    kubectl("apply", "-f", "-", document=SMALLEST)
    wait_until(lambda: is_degraded(kubectl, "PodRefused", "the driver's pod is refused", *words))
    kubectl("delete", "limitrange", "sizes")
    wait_until(lambda: has_driver(kubectl))


@pytest.mark.usefixtures("operator")
def test_what_else_admission_refuses_is_reported(kubectl: Kubectl) -> None:
    document = yaml.safe_load(SMALLEST)
    document["spec"]["driver"] = {"podTemplate": {"spec": {"priorityClassName": "no-such-class"}}}
    kubectl("apply", "-f", "-", document=document)
    wait_until(lambda: is_degraded(kubectl, "PodRefused", "no PriorityClass with name no-such-class"))


@pytest.mark.usefixtures("operator")
def test_replicas_without_room_are_reported(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", document=as_users_write(CASES["dedicated"]))
    replicas = "millrace.io/role=partitioner"
    wait_until(lambda: has_driver(kubectl) and status_of(kubectl, NAME).get("partitioner") is not None)
    before = status_of(kubectl, NAME)["partitioner"]["replicas"]
    wait_until(lambda: len(kubectl("get", "pods", "-l", replicas, "-o", "name").split()) == before)
    make_quota(kubectl, {"pods": str(1 + before)})
    more = {"spec": {"partitioner": {"replicas": {"initial": before + 2, "max": 8}}}}
    kubectl("patch", "sq", NAME, "--type=merge", "-p", json.dumps(more))
    said = f"{before} of {before + 2} partitioner pods exist and the next one is refused"
    wait_until(lambda: is_degraded(kubectl, "QuotaExceeded", said, "exceeded quota: few"))
    kubectl("delete", "quota", "few")
    wait_until(lambda: is_degraded(kubectl, "AsExpected"))


def report_a_full_heap(kubectl: Kubectl) -> None:
    """As the driver does."""
    samples = tuple(MemorySample(time=int(time.time()) - ago, used=600 << 20) for ago in (200, 100, 0))
    series = MemorySeries(part=MemoryPart.HEAP, limit=620 << 20, samples=samples)
    report = MemoryReport(pod=pod(kubectl)["metadata"]["uid"], series=(series,))
    data = json.dumps({"data": {MEMORY_KEY: report.to_json()}})
    kubectl("patch", "configmap", f"{NAME}-plan", "--type=merge", "-p", data)


@pytest.mark.usefixtures("operator")
def test_a_driver_with_memory_that_was_raised_ahead_waits_for_room_in_a_quota(kubectl: Kubectl) -> None:
    """What it was raised by is undone after ten minutes (``tests/unit/lifecycle/test_undone_raises.py``)."""
    document = yaml.safe_load(SMALLEST)
    document["spec"]["driver"] = {"maxMemory": "4g"}
    kubectl("apply", "-f", "-", document=document)
    wait_until(lambda: has_driver(kubectl))
    become_healthy(kubectl)
    (container,) = pod(kubectl)["spec"]["containers"]
    make_quota(kubectl, {"limits.memory": container["resources"]["limits"]["memory"]})
    report_a_full_heap(kubectl)
    wait_until(lambda: is_degraded(kubectl, "QuotaExceeded", "exceeded quota: few", "undone at"))
    raised = status_of(kubectl, NAME)["memory"]["driver"]
    assert (raised["predicted"], "waitingSince" in raised) == (True, True)


@pytest.mark.in_turn
@pytest.mark.usefixtures("operator")
def test_executors_without_room_are_reported_and_the_query_is_ready(kubectl: Kubectl) -> None:
    make_quota(kubectl, {"limits.memory": "4Gi"})
    kubectl("apply", "-f", "-", document=SMALLEST)
    wait_until(lambda: has_driver(kubectl))
    make_ready(kubectl, DRIVER_POD)
    wait_until(lambda: is_degraded(kubectl, "QuotaExceeded", "executor pods exist", "exceeded quota: few"))
    assert condition(kubectl, "Ready")["status"] == "True"
    made = kubectl("get", "pods", "-o", "name").split()
    assert made == [f"pod/{DRIVER_POD}"], "a dry run creates nothing"
    kubectl("delete", "quota", "few")
    wait_until(lambda: is_degraded(kubectl, "AsExpected"))


def test_without_the_rights_to_read_quotas_nothing_limits_and_this_is_logged_once(
    plane: ControlPlane, namespace: str, kubectl: Kubectl, tmp_path: Path
) -> None:
    """As after an upgrade of the operator before that of its rights."""
    unread = {"resourcequotas", "limitranges"}
    rules = [
        {"apiGroups": [each.group], "resources": [each.resource], "verbs": [each.verb]}
        for each in sorted(rights(RULES), key=Right.__str__)
        if each.resource not in unread
    ]
    grant(plane, "operator", rules)
    kubeconfig = plane.kubeconfig_of("operator", tmp_path / "kubeconfig")
    make_quota(kubectl, {"pods": "0"})
    with running_operator(plane, tmp_path, namespace=namespace, kubeconfig=kubeconfig) as started:
        kubectl("apply", "-f", "-", document=SMALLEST)
        wait_until(lambda: is_degraded(kubectl, "QuotaExceeded", "exceeded quota: few"))
        wait_until(lambda: f"limitranges of namespace {namespace} are not watched" in started.said)
        assert started.said.count("resourcequotas of namespace") == 1
    grant(plane, "operator", RULES)


SIZED = {"requests": {"cpu": "300m", "memory": "100Mi"}, "limits": {"memory": "200Mi"}}
HARD = [
    ({"pods": "3"}, {}),
    ({"count/pods": "4"}, {}),
    ({"requests.cpu": "1", "limits.memory": "10Gi"}, {}),
    ({"cpu": "1300m"}, {"scopes": ["NotTerminating", "NotBestEffort"]}),
    ({"limits.memory": "500Mi"}, {}),
    ({"memory": "500Mi"}, {}),
    ({"limits.cpu": "5"}, {}),
]


@pytest.mark.in_turn
@pytest.mark.parametrize("has_default", [False, True], ids=["as-is", "with-defaults"])
@pytest.mark.parametrize(("hard", "spec"), HARD, ids=[str(hard) for hard, _ in HARD])
def test_as_many_pods_fit_as_the_api_server_takes(
    kubectl: Kubectl,
    plane: ControlPlane,
    namespace: str,
    hard: dict[str, str],
    spec: dict[str, Any],
    *,
    has_default: bool,
) -> None:
    """Pods are made one after the other until one is refused, and before each it was known how many more would be."""
    make_quota(kubectl, hard, **spec)
    if has_default:
        item = {"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1", "memory": "150Mi"}}
        make_limit_range(kubectl, item)
    wait_until(lambda: bool(kubectl("get", "sa", "default", "--ignore-not-found")))
    containers = [{"name": "one", "image": "none", "resources": SIZED}]
    if has_default:
        containers.append({"name": "two", "image": "none", "resources": {"limits": {"memory": "10Mi"}}})
    rooms = []
    for number in range(10):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pod-{number}"}}
        pod |= {"spec": {"containers": containers, "terminationGracePeriodSeconds": 0}}
        limits = json.loads(kubectl("get", "quota,limitrange", "-o", "json"))["items"]
        room = room_for(pod, limits)
        assert room is not None
        rooms.append(room.pods)
        if plane.kubectl("-n", namespace, "create", "-f", "-", document=pod).returncode:
            break
    assert rooms == list(range(len(rooms) - 1, -1, -1))
