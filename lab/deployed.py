"""A query on the cluster, as ``kubectl`` shows and controls it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from millrace_api.model.plan import APPLIED_KEY

from .installation import CLAIM, SMALL, Installation
from .waiting import wait_until

_LAST_LINES = 20
"""Lines of a driver's log that a failure shows."""


def document(name: str, **spec: Any) -> dict[str, Any]:
    """Return a query with pods small enough for the lab, and its checkpoint on the claim of its namespace."""
    small = {"cores": 1, "memory": "512m"}
    base = {
        "batchInterval": "2s",
        "driver": small | {"podTemplate": _with_resources("driver")},
        "executors": {"initial": 1, "min": 1, "max": 1} | small | {"podTemplate": _with_resources("executor")},
        "partitioner": {"pod": {"podTemplate": _with_resources("partitioner")}},
        "checkpoint": {"claimName": CLAIM},
    }
    if "checkpoint" in spec:
        del base["checkpoint"]  # which has one place
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
    """A query in a namespace."""

    on: Installation
    namespace: str
    name: str

    def apply(self, document: Mapping[str, Any]) -> None:
        """Apply the query as a user does."""
        self.kubectl("apply", "-f", "-", document=dict(document))

    def patch(self, **spec: Any) -> None:
        """Change parts of the query's spec."""
        self.kubectl("patch", "sq", self.name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def kubectl(self, *arguments: str, document: object = None) -> str:
        """Run ``kubectl`` in the query's namespace."""
        return self.on.kubectl("-n", self.namespace, *arguments, document=document)

    @property
    def status(self) -> dict[str, Any]:
        """The status that the operator reports."""
        status: dict[str, Any] = self.on.get("-n", self.namespace, "sq", self.name).get("status", {})
        return status

    def condition(self, type: str) -> dict[str, Any]:
        """Return a condition, or an empty dict if it is not set."""
        return next((each for each in self.status.get("conditions", ()) if each["type"] == type), {})

    @property
    def plan(self) -> dict[str, Any]:
        """The plan in the status, empty before the first one."""
        plan: dict[str, Any] = self.status.get("plan", {})
        return plan

    @property
    def applied(self) -> dict[str, Any]:
        """The driver's acknowledgement of its plan, with no executors before the first one."""
        held = self.on.get("-n", self.namespace, "cm", f"{self.name}-plan")["data"].get(APPLIED_KEY)
        applied: dict[str, Any] = {"executorsReady": 0} if held is None else json.loads(held)
        return applied

    @property
    def pod(self) -> str:
        """The name of the driver's pod."""
        return f"{self.name}-driver-0"

    @property
    def driver(self) -> dict[str, Any]:
        """The driver's pod."""
        pod: dict[str, Any] = self.on.get("-n", self.namespace, "pod", self.pod)
        return pod

    @property
    def driver_uid(self) -> str:
        """The uid of the driver's pod; empty if there is none."""
        return self.kubectl("get", "pod", self.pod, "--ignore-not-found", "-o", "jsonpath={.metadata.uid}")

    @property
    def has_pod(self) -> bool:
        """Whether the driver's pod exists."""
        return bool(self.driver_uid)

    @property
    def is_ready(self) -> bool:
        """Whether the driver's pod exists and is ready."""
        shown = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
        return self.kubectl("get", "pod", self.pod, "--ignore-not-found", "-o", shown) == "True"

    @property
    def runs(self) -> int:
        """Number of starts of the driver in its current pod."""
        return int(self.driver["status"]["containerStatuses"][0]["restartCount"]) + 1

    @property
    def executors(self) -> list[dict[str, Any]]:
        """The executor pods that are running."""
        selector = f"millrace.io/query={self.name},millrace.io/role=executor"
        pods = self.on.get("-n", self.namespace, "pods", "-l", selector)["items"]
        return [each for each in pods if each["status"]["phase"] == "Running"]

    @property
    def log(self) -> str:
        """The driver's log since its last start."""
        return self.on.logs(self.pod, self.namespace)

    @property
    def events(self) -> list[str]:
        """The reasons of the query's events, in order."""
        about = f"involvedObject.name={self.name},involvedObject.kind=StreamQuery"
        found = self.on.get("-n", self.namespace, "events", "--field-selector", about)["items"]
        return [each["reason"] for each in sorted(found, key=lambda each: each["metadata"]["creationTimestamp"])]

    def wait(self, holds: Callable[[dict[str, Any]], Any], what: str) -> dict[str, Any]:
        """Wait until ``holds`` is true for the status, and return the status."""

        def matching() -> dict[str, Any] | None:
            status = self.status
            return status if holds(status) else None

        status: dict[str, Any] = wait_until(matching, lambda: f"{what}\n{self._found()}")
        return status

    def _found(self) -> str:
        """Tell what is there instead: the status, the events, and the end of the driver's log."""
        log = "\n".join(self.log.splitlines()[-_LAST_LINES:]) if self.has_pod else "no driver"
        return f"status {json.dumps(self.status)}\nevents {', '.join(self.events)}\n{log}"

    def wait_until_running(self) -> dict[str, Any]:
        """Wait until the driver has finished a batch under its plan."""
        return self.wait(
            lambda status: (
                status.get("phase") == "Running" and status["plan"].get("appliedEpoch", 0) >= status["plan"]["epoch"]
            ),
            f"{self.name} runs",
        )

    def wait_until_settled(self) -> None:
        """Wait until the operator has carried out the current spec, and the driver has finished a batch."""
        generation = self.on.get("-n", self.namespace, "sq", self.name)["metadata"]["generation"]

        def settled(status: dict[str, Any]) -> bool:
            current = status.get("observedGeneration") == generation
            return bool(current and self.condition("Progressing").get("reason") == "Settled")

        self.wait(settled, f"the operator has done what {self.name} says")
        self.wait_until_running()

    def wait_until_healthy(self) -> None:
        """Wait until the spec is stored as healthy, to be restored after a failed change."""
        name = f"configmap/{self.name}-healthy"
        wait_until(lambda: self.kubectl("get", name, "--ignore-not-found"), f"there is {name}")
