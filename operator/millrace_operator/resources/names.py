"""Names, labels and owners of the objects of a query."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from millrace_api.model.streamquery import API_VERSION, KIND, QUERY_LABEL, ROLE_LABEL

Manifest = dict[str, Any]

MANAGER = "millrace-operator"
"""Field manager of server-side apply, and the label that says who manages an object."""

RPC_PORT, BLOCK_PORT, METRICS_PORT = 7078, 7079, 8080
"""Ports of the driver for executors and Prometheus; executors use the block port too."""

LOOKUPS_PORT = 8081
"""Port of the driver for look-ups, on its pod's loopback interface only: no Service and no policy has it."""

SERVICE_PORT = 8082
"""Port of the driver for look-ups by other pods, where the query asks for them."""


_LONGEST_SET = 52
"""Longest name of a StatefulSet: its pods have a label with the name and a hash, of at most 63 characters."""


def scaling_config_map(query: str) -> str:
    """Return the name of the ConfigMap with a query's last scaling decision and learned state."""
    return f"{query}-scaling"


def plan_config_map(query: str) -> str:
    """Return the name of the ConfigMap with a query's plan, and with the driver's report on it."""
    return f"{query}-plan"


@dataclass(frozen=True)
class Owner:
    """Query that owns objects. Its name has at most 63 characters, since it is a label of these objects."""

    namespace: str
    name: str
    uid: str

    @property
    def driver(self) -> str:
        """Name of the driver's StatefulSet, Service, ServiceAccount and Role, and of the job's NetworkPolicy."""
        return self._set_name("-driver")

    @property
    def driver_pod(self) -> str:
        """Name of the only pod of the StatefulSet."""
        return f"{self.driver}-0"

    @property
    def partitioner(self) -> str:
        """Name of the StatefulSet, Service and other objects for partitioner replicas in pods of their own."""
        return self._set_name("-partitioner")

    @property
    def plan(self) -> str:
        """Name of the ConfigMap of ``plan_config_map``."""
        return plan_config_map(self.name)

    @property
    def healthy(self) -> str:
        """Name of the ConfigMap with the last healthy spec."""
        return f"{self.name}-healthy"

    @property
    def scaling(self) -> str:
        """Name of the ConfigMap of ``scaling_config_map``."""
        return scaling_config_map(self.name)

    def configuration(self, revision: str) -> str:
        """Return the name of the ConfigMap with this revision of the driver's query and configuration."""
        return f"{self.name}-query-{revision}"

    def is_configuration(self, name: str) -> bool:
        """Return whether a ConfigMap of this name has the configuration of a driver of the query.

        Before there were revisions, the name had none.
        """
        return re.fullmatch(rf"{re.escape(self.name)}-query(-[0-9a-f]{{10}})?", name) is not None

    def shadow(self, comparison: str, number: int | None = None) -> str:
        """Return the name of the ConfigMap of a comparison of two versions, or of its pod of this number."""
        return f"{self.name}-shadow-{comparison}" + ("" if number is None else f"-{number}")

    def is_shadow(self, name: str) -> bool:
        """Return whether an object of this name belongs to a comparison of two versions of the query."""
        return re.fullmatch(rf"{re.escape(self.name)}-shadow-[0-9a-f]{{10}}(-\d)?", name) is not None

    @property
    def executors(self) -> str:
        """Name of the objects for all executors, such as their PodDisruptionBudget."""
        return f"{self.name}-exec"

    @property
    def object_names(self) -> frozenset[str]:
        """Names of all objects of the query but its executors, partitioner replicas, configurations and Secrets."""
        pods = {self.driver, self.driver_pod, self.partitioner, self.executors}
        return frozenset(pods | {self.plan, self.healthy, self.scaling})

    def _set_name(self, suffix: str) -> str:
        """Return the name of a StatefulSet; a hash replaces the end of a query's name that is too long for it."""
        if len(self.name) + len(suffix) <= _LONGEST_SET:
            return f"{self.name}{suffix}"
        suffix = f"-{sha256(self.name.encode()).hexdigest()[:8]}{suffix}"
        return f"{self.name[: _LONGEST_SET - len(suffix)].rstrip('-')}{suffix}"

    def selector(self, role: str | None = None) -> dict[str, str]:
        """Return the labels that select the query's pods, or its pods of one role."""
        return {QUERY_LABEL: self.name} | ({ROLE_LABEL: role} if role else {})

    def labels(self, role: str | None = None) -> dict[str, str]:
        """Return Kubernetes' recommended labels and the selector labels."""
        recommended = {
            "app.kubernetes.io/name": "millrace",
            "app.kubernetes.io/instance": self.name,
            "app.kubernetes.io/managed-by": MANAGER,
        }
        component = {"app.kubernetes.io/component": role} if role else {}
        return recommended | component | self.selector(role)

    def owns(self, found: Mapping[str, Any]) -> bool:
        """Return whether an object on the cluster is the query's.

        Either the query, or an earlier one of its name, owns it, or it has all of the operator's labels; so it is still
        known if another client removes the one or the other.
        """
        metadata = found["metadata"]
        owners = metadata.get("ownerReferences") or ()
        owned = any(
            (each["apiVersion"], each["kind"], each["name"]) == (API_VERSION, KIND, self.name) for each in owners
        )
        return owned or self.labels().items() <= (metadata.get("labels") or {}).items()

    def manifest(self, api: str, kind: str, name: str, parts: Mapping[str, Any], role: str | None = None) -> Manifest:
        """Build an object with an owner reference, so that it is deleted with the query."""
        reference = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
        metadata = {
            "name": name,
            "namespace": self.namespace,
            "labels": self.labels(role),
            "ownerReferences": [reference],
        }
        return {"apiVersion": api, "kind": kind, "metadata": metadata, **parts}
