"""A query on the cluster, as ``kubectl`` shows and steers it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .installation import SMALL, Installation, wait_until

CLAIM = "checkpoints"


def document(name: str, **spec: Any) -> dict[str, Any]:
    """A query with pods small enough for the lab, and its checkpoint on the claim of its namespace."""
    small = {"cores": 1, "memory": "512m"}
    base = {
        "batchInterval": "2s",
        "driver": small | {"podTemplate": _with_resources("driver")},
        "executors": {"initial": 1, "min": 1, "max": 1} | small | {"podTemplate": _with_resources("executor")},
        "checkpoint": {"claim": CLAIM},
    }
    for part, value in spec.items():
        base[part] = base[part] | value if isinstance(base.get(part), Mapping) else value
    return {
        "apiVersion": "millrace.io/v1alpha1",
        "kind": "StreamQuery",
        "metadata": {"name": name},
        "spec": base,
    }


def _with_resources(container: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": container, "resources": SMALL}]}}


@dataclass
class Deployed:
    """A query of a namespace."""

    on: Installation
    namespace: str
    name: str

    def apply(self, document: Mapping[str, Any]) -> None:
        """Apply it as a user does."""
        self.kubectl("apply", "-f", "-", document=dict(document))

    def patch(self, **spec: Any) -> None:
        """Change parts of its spec."""
        self.kubectl("patch", "sq", self.name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def kubectl(self, *arguments: str, document: object = None) -> str:
        """In its namespace."""
        return self.on.kubectl("-n", self.namespace, *arguments, document=document)

    @property
    def status(self) -> dict[str, Any]:
        """As the operator tells it."""
        status: dict[str, Any] = self.on.get("-n", self.namespace, "sq", self.name).get("status", {})
        return status

    def condition(self, type: str) -> dict[str, Any]:
        """One of its conditions; empty where there is none."""
        return next((each for each in self.status.get("conditions", ()) if each["type"] == type), {})

    @property
    def plan(self) -> dict[str, Any]:
        """Of the status; empty before there is one."""
        plan: dict[str, Any] = self.status.get("plan", {})
        return plan

    @property
    def driver(self) -> dict[str, Any]:
        """Its pod."""
        pod: dict[str, Any] = self.on.get("-n", self.namespace, "pod", f"{self.name}-driver-0")
        return pod

    @property
    def executors(self) -> list[dict[str, Any]]:
        """Their pods that run."""
        selector = f"millrace.io/query={self.name},millrace.io/role=executor"
        pods = self.on.get("-n", self.namespace, "pods", "-l", selector)["items"]
        return [each for each in pods if each["status"]["phase"] == "Running"]

    @property
    def log(self) -> str:
        """What its driver has printed, since it was started last."""
        return self.on.logs(f"{self.name}-driver-0", self.namespace)

    @property
    def events(self) -> list[str]:
        """Reasons of what was told about it, in order."""
        about = f"involvedObject.name={self.name},involvedObject.kind=StreamQuery"
        found = self.on.get("-n", self.namespace, "events", "--field-selector", about)["items"]
        return [each["reason"] for each in sorted(found, key=lambda each: each["metadata"]["creationTimestamp"])]

    def wait(self, holds: Callable[[dict[str, Any]], Any], what: str) -> dict[str, Any]:
        """Until it holds for its status, which is returned."""

        def looked() -> dict[str, Any] | None:
            status = self.status
            return status if holds(status) else None

        status: dict[str, Any] = wait_until(looked, f"{what}; status {json.dumps(self.status)}")
        return status

    def wait_until_running(self) -> dict[str, Any]:
        """Until its driver has finished a batch under its plan."""
        return self.wait(
            lambda status: (
                status.get("phase") == "Running" and status["plan"].get("appliedEpoch", 0) >= status["plan"]["epoch"]
            ),
            f"{self.name} runs",
        )
