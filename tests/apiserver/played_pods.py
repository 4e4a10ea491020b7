"""Pods whose kubelet the test plays."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from .observed import status_of, wait_until

NAME, POD = "trips-by-cell", "trips-by-cell-driver-0"
Kubectl = Callable[..., str]


def stamp(ago: timedelta = timedelta()) -> str:
    return (datetime.now(UTC) - ago).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(kubectl: Kubectl) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(kubectl("get", "pod", POD, "-o", "json"))
    return found


def show(kubectl: Kubectl, pod: str = POD, **status: Any) -> None:
    """What the kubelet says of the driver."""
    kubectl("patch", "pod", pod, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))


def become_healthy(kubectl: Kubectl) -> None:
    """The driver has been ready for two minutes."""
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": stamp(timedelta(minutes=2))}
    show(kubectl, phase="Running", conditions=[ready])
    wait_until(lambda: status_of(kubectl, NAME)["phase"] == "Running")
    wait_until(lambda: f"{NAME}-healthy" in kubectl("get", "cm", "-o", "name"))


def fail(kubectl: Kubectl, failure: str, message: str, run: int, pod: str = POD, ago: timedelta = timedelta()) -> None:
    """The driver has ended with these last words."""
    report, ended_at = json.dumps({"failure": failure, "message": message}), stamp(ago)
    ended = {"exitCode": 1, "reason": "Error", "message": report, "finishedAt": ended_at}
    ended["containerID"] = f"test://{run}"
    container = {
        "name": "driver",
        "image": "none",
        "imageID": "",
        "ready": False,
        "restartCount": run,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": ended},
    }
    show(kubectl, pod, containerStatuses=[container])


def make_ready(kubectl: Callable[..., str], pod: str) -> None:
    """As a kubelet would."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
    change = json.dumps({"status": {"phase": "Running", "conditions": [ready]}})
    kubectl("patch", "pod", pod, "--subresource=status", "--type=merge", "-p", change)
