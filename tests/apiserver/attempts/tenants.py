"""Tenants of a cluster: users with the roles that the chart and Kubernetes have for them, in one namespace each."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import yaml

from lab.control_plane import ControlPlane
from unit.resources.cases import SMALLEST

from ..observed import wait_until

Document = dict[str, Any]

OPERATORS = "millrace-system"
"""Namespace of the operator."""


@dataclass(frozen=True)
class Tenant:
    """A user, and the only namespace in which they have rights; a session of ``kubectl`` as that user."""

    plane: ControlPlane
    name: str

    def attempt(
        self, *arguments: str, document: object = None, namespace: str | None = None, user: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run ``kubectl`` as the tenant, or as another user that the tenant may be, and return what came out."""
        where = ("--namespace", namespace or self.name)
        return self.plane.kubectl(*where, f"--as={user or self.name}", *arguments, document=document)

    def run(self, *arguments: str, document: object = None) -> str:
        """Run ``kubectl`` as the tenant, in their namespace; it has to succeed."""
        done = self.attempt(*arguments, document=document)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def get(self, kind: str, name: str) -> Document:
        """Return an object of the tenant's namespace."""
        found: Document = json.loads(self.run("get", kind, name, "-o", "json"))
        return found

    def apply(self, *documents: object) -> None:
        """Apply objects in the tenant's namespace."""
        self.run("apply", "-f", "-", document=list(documents))

    def patch(self, kind: str, name: str, change: object) -> None:
        """Change an object of the tenant's namespace."""
        self.run("patch", kind, name, "--type=merge", "-p", json.dumps(change))

    def status(self, query: str) -> Document:
        """Return the status of a query, empty before there is one."""
        found: Document = self.get("sq", query).get("status", {})
        return found

    def ready(self, query: str) -> Document:
        """Return the condition Ready of a query, for the spec as it is now."""
        found = self.get("sq", query)
        status = found.get("status", {})
        assert status.get("observedGeneration") == found["metadata"]["generation"], status
        return next(dict(each) for each in status["conditions"] if each["type"] == "Ready")

    def deploy(self, document: Document) -> None:
        """Apply a query, and wait until it has a driver."""
        self.apply(document)
        name = document["metadata"]["name"]
        wait_until(lambda: self.status(name).get("driver", {}).get("pod") == f"{name}-driver-0")

    def wait_for_refusal(self, query: str) -> str:
        """Wait until a query is invalid, and return why."""
        wait_until(lambda: self.ready(query)["reason"] == "InvalidQuery")
        return str(self.ready(query)["message"])

    def scale(self, query: str, executors: int) -> None:
        """Set the executors of a query, which shows that the operator works for the tenant, and wait for the plan."""
        self.patch("sq", query, {"spec": {"executors": {"initial": executors}}})
        wait_until(lambda: self.status(query).get("plan", {}).get("executors") == executors)


def query(name: str, **spec: Any) -> Document:
    """Return a small query."""
    document: Document = yaml.safe_load(SMALLEST)
    document["metadata"]["name"] = name
    document["spec"] |= spec
    return document


def config_map(name: str, data: dict[str, str], **metadata: Any) -> Document:
    """Return a ConfigMap."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": data}


def new_tenant(plane: ControlPlane, name: str, roles: tuple[str, ...]) -> Tenant:
    """Create a namespace and a user of the same name who has these ClusterRoles in it."""
    assert plane.kubectl("create", "namespace", name).returncode == 0
    for role in roles:
        done = plane.kubectl("-n", name, "create", "rolebinding", role, f"--clusterrole={role}", f"--user={name}")
        assert done.returncode == 0, done.stderr
    tenant = Tenant(plane, name)
    for what in ("streamqueries.millrace.io", "connections.millrace.io", "statefulsets.apps"):
        wait_until(lambda what=what: tenant.attempt("auth", "can-i", "create", what).returncode == 0)  # type: ignore[misc]
    return tenant


def forgotten(plane: ControlPlane, *what: str) -> Callable[[], bool]:
    """Return a check whether an object is gone."""
    return lambda: "NotFound" in plane.kubectl("get", *what).stderr
