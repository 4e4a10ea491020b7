"""The Secret of driver and executors on a real API server: one per query, replaced with the driver, and seen nowhere."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from lab.control_plane import ControlPlane
from unit.resources.cases import SMALLEST

from .observed import wait_until
from .operators import running_operator

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(900)]

Kubectl = Callable[..., str]


def test_a_restart_replaces_the_secret_whose_value_is_nowhere_else(
    plane: ControlPlane, kubectl: Kubectl, namespace: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with running_operator(plane, tmp_path_factory.mktemp("operator"), namespace=namespace) as operator:
        kubectl("apply", "-f", "-", document=SMALLEST)
        wait_until(lambda: mounted(kubectl))
        first = mounted(kubectl)
        (before,) = held(kubectl)
        assert before["metadata"]["name"] == first
        assert before["metadata"]["ownerReferences"][0]["kind"] == "StreamQuery"
        changed = plane.kubectl(
            "-n", namespace, "patch", "secret", first, "--type=merge", "-p", '{"stringData": {"secret": "known"}}'
        )
        assert "immutable" in changed.stderr

        kubectl("patch", "sq", "trips-by-cell", "--type=merge", "-p", '{"spec": {"restartNonce": 1}}')
        wait_until(lambda: mounted(kubectl) not in (None, first))
        wait_until(lambda: len(held(kubectl)) == 1)
        (after,) = held(kubectl)
        assert after["metadata"]["name"] == mounted(kubectl)
        assert after["data"] != before["data"]

        kinds = "sq,configmap,statefulset,pod,event,role,service,networkpolicy"
        seen = operator.said + kubectl("get", kinds, "-o", "json")
        assert after["metadata"]["name"] in seen
    for each in (before, after):
        encoded = each["data"]["secret"]
        assert encoded not in seen
        assert base64.b64decode(encoded).decode() not in seen


def held(kubectl: Kubectl) -> list[dict[str, Any]]:
    """The Secrets of the namespace."""
    found: list[dict[str, Any]] = json.loads(kubectl("get", "secrets", "-o", "json"))["items"]
    return found


def mounted(kubectl: Kubectl) -> str | None:
    """The Secret that the driver's StatefulSet mounts, if there is one."""
    found = kubectl("get", "sts", "-l", "millrace.io/query=trips-by-cell", "-o", "json")
    volumes = [each["spec"]["template"]["spec"]["volumes"] for each in json.loads(found)["items"]]
    names = [volume["secret"]["secretName"] for each in volumes for volume in each if volume["name"] == "millrace-auth"]
    return names[0] if names else None
