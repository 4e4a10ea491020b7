"""What the stand-ins of a driver have in common: its login, the plan that is mounted in its pod, and Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from kubernetes import config
from kubernetes.client import CoreV1Api

from lab.control_plane import ControlPlane
from millrace_api.model.plan import PLAN_KEY

Kubectl = Callable[..., str]


class Executors:
    """Those of a Spark that does at once what it is asked to."""

    finished_tasks = 0

    def reconcile(self, number: int) -> int:
        return number


def driver_api(plane: ControlPlane, kubectl: Kubectl, query: str, folder: Path) -> CoreV1Api:
    """Return a client with the rights of the query's driver; its kubeconfig is written to the folder."""
    token = kubectl("create", "token", f"{query}-driver").strip()
    kubeconfig = plane.write_kubeconfig(folder / "driver.kubeconfig", token)
    return CoreV1Api(config.new_client_from_config(str(kubeconfig)))


def mounted_plan(kubectl: Kubectl, query: str, folder: Path) -> Path:
    """Write the query's plan to the folder as the kubelet would, and return its file."""
    file = folder / "plan.yaml"
    file.write_text(json.loads(kubectl("get", "cm", f"{query}-plan", "-o", "json"))["data"][PLAN_KEY])
    return file
