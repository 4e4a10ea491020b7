"""Another default image and back again, as operators of two versions bring it, over a fleet of running queries.

No driver is restarted by it, and none is mixed of two versions: the image of a driver's pod is that of the executors in the
configuration that the pod mounts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from lab.claims import claim_and_volume
from lab.kwok import running_kwok

from .deployed import apply_queries
from .observed import wait_until
from .operators import running_operator
from .quiet_fleet import phases

pytestmark = [pytest.mark.in_turn, pytest.mark.apiserver, pytest.mark.timeout(1800)]

NAMES = [f"query-{number}" for number in range(60)]
BEFORE, AFTER = "example.org/jobs:before", "example.org/jobs:after"
LOST = "query-7-driver-0"

Kubectl = Callable[..., str]


@pytest.fixture(scope="module")
def nodes(plane):
    """Simulated nodes, on which drivers become ready."""
    with running_kwok(plane, nodes=2):
        yield


@pytest.mark.usefixtures("nodes")
def test_a_fleet_goes_through_an_upgrade_and_a_downgrade_unmixed(plane, namespace, kubectl: Kubectl, tmp_path) -> None:
    kubectl("apply", "-f", "-", document=list(claim_and_volume(namespace)))
    with running_operator(plane, folder(tmp_path, "before"), "--image", BEFORE, namespace=namespace):
        apply_queries(kubectl, NAMES)
        wait_until(lambda: phases(kubectl) == ["Running"] * len(NAMES))
    first = drivers(kubectl)
    assert {image for _, image, _ in first.values()} == {BEFORE}
    assert len(configurations(kubectl)) == len(NAMES)

    with running_operator(plane, folder(tmp_path, "after"), "--image", AFTER, namespace=namespace):
        wait_until(lambda: next_images(kubectl) == [AFTER] * len(NAMES))
        assert drivers(kubectl) == first
        kubectl("delete", "pod", LOST, "--wait=false")
        wait_until(lambda: drivers(kubectl)[LOST][1] == AFTER)
        now = drivers(kubectl)
        assert {name for name, each in now.items() if each != first[name]} == {LOST}
        # one for each driver that has the image before, and one for each that is made next
        wait_until(lambda: len(configurations(kubectl)) == 2 * len(NAMES) - 1)
        assert phases(kubectl) == ["Running"] * len(NAMES)

    with running_operator(plane, folder(tmp_path, "back"), "--image", BEFORE, namespace=namespace):
        wait_until(lambda: next_images(kubectl) == [BEFORE] * len(NAMES))
        wait_until(lambda: len(configurations(kubectl)) == len(NAMES) + 1)
        assert drivers(kubectl) == now
        changed = plane.kubectl(
            "--namespace", namespace, "patch", "cm", first["query-1-driver-0"][2], "-p", '{"data": {"query.yaml": ""}}'
        )
        assert "field is immutable when `immutable` is set" in changed.stderr


def folder(parent, name):
    made = parent / name
    made.mkdir()
    return made


def drivers(kubectl: Kubectl) -> dict[str, tuple[str, str, str]]:
    """Uid, image and configuration of each driver's pod, none of which is mixed."""
    files = configurations(kubectl)
    found = {}
    for pod in listed(kubectl, "pods"):
        (mounted,) = [each["configMap"]["name"] for each in pod["spec"]["volumes"] if each["name"] == "query"]
        image = pod["spec"]["containers"][0]["image"]
        assert f"spark.kubernetes.executor.container.image {image}\n" in files[mounted]["spark-defaults.conf"]
        assert set(yaml.safe_load(files[mounted]["query.yaml"])["spec"]) <= {"sources", "query", "sink", "checkpoint"}
        found[pod["metadata"]["name"]] = (pod["metadata"]["uid"], image, mounted)
    return found


def next_images(kubectl: Kubectl) -> list[str]:
    """The images of the pods that would be made next."""
    return [each["spec"]["template"]["spec"]["containers"][0]["image"] for each in listed(kubectl, "statefulsets")]


def configurations(kubectl: Kubectl) -> dict[str, dict[str, str]]:
    """The files of each configuration."""
    maps = [each for each in listed(kubectl, "configmaps") if "query.yaml" in each.get("data", {})]
    assert all(each["immutable"] for each in maps)
    return {each["metadata"]["name"]: each["data"] for each in maps}


def listed(kubectl: Kubectl, kind: str) -> list[dict[str, Any]]:
    """All objects of a kind that belong to queries."""
    items: list[dict[str, Any]] = json.loads(kubectl("get", kind, "-l", "millrace.io/query", "-o", "json"))["items"]
    return items
