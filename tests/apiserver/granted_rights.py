"""The operator's rights as the chart grants them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from lab.control_plane import ControlPlane
from unit.resources.cases import SMALLEST

from .observed import status_of, wait_until

RULES = yaml.safe_load((Path(__file__).parents[2] / "charts/millrace/files/operator-rules.yaml").read_text())["rules"]
CHANGES = ("scaled", "  executors: {initial: 3}\n"), ("replaced", "  image: example.org/other:2\n")
VOLCANO = "  scheduling: {scheduler: Volcano, queue: default}\n"
POD_GROUPS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "podgroups.scheduling.volcano.sh"},
    "spec": {
        "group": "scheduling.volcano.sh",
        "names": {"kind": "PodGroup", "listKind": "PodGroupList", "plural": "podgroups", "singular": "podgroup"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
"""As much of Volcano's CRD as an operator needs."""

DEDICATED = "  partitioner: {algorithm: prompt, placement: Dedicated}\n"


class Right(NamedTuple):
    """One verb on one resource."""

    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}"


def rights(rules: list[dict[str, Any]]) -> set[Right]:
    """All that rules allow."""
    return {
        Right(group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def grant(plane: ControlPlane, user: str, rules: list[dict[str, Any]]) -> None:
    """Let a user do what rules say, everywhere."""
    group = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": user}, "rules": rules}
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": user},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": user},
        "subjects": [{"kind": "User", "apiGroup": group, "name": user}],
    }
    done = plane.kubectl("apply", "-f", "-", document=[role, binding])
    assert done.returncode == 0, done.stderr


def live(kubectl: Callable[..., str]) -> None:
    """A query is created, scaled, replaced, given replicas, suspended, announced to Volcano, resumed and deleted."""
    kubectl("apply", "-f", "-", document=POD_GROUPS)
    wait_until(lambda: kubectl("get", "podgroups.scheduling.volcano.sh", "--ignore-not-found", "-o", "name") == "")
    changes = [SMALLEST + more for _, more in CHANGES]
    states = [SMALLEST, *changes, SMALLEST + DEDICATED, SMALLEST + "  suspend: true\n", SMALLEST + VOLCANO, SMALLEST]
    for generation, text in enumerate(states, start=1):
        kubectl("apply", "-f", "-", document=text)
        wait_until(lambda generation=generation: _is_settled(kubectl, generation))  # type: ignore[misc]
    kubectl("delete", "sq", "trips-by-cell")
    wait_until(lambda: not kubectl("get", "sts,svc,pod", "-l", "millrace.io/query=trips-by-cell", "-o", "name"))


def _is_settled(kubectl: Callable[..., str], generation: int) -> bool:
    status = status_of(kubectl, "trips-by-cell")
    reasons = {each["type"]: each["reason"] for each in status.get("conditions", ())}
    return status.get("observedGeneration") == generation and reasons["Progressing"] in ("Deploying", "Settled")
