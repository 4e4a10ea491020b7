"""What the pods of a changed spec ask for that those of the last healthy one do not; pure functions.

A pod that cannot be scheduled, pulled or created says why, and not whether another one could. So the two templates are
compared: what both ask for alike is not the changed spec's fault.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from millrace_api.model.streamquery import DRIVER, StreamQuery

from ..resources.driver_config import mounted_query
from ..resources.names import Manifest, Owner
from ..resources.pod_defaults import PodDefaults
from ..resources.pods import driver_pod, made_executor
from ..resources.quota_usage import containers, quota_usage

_PLACING = (
    "affinity",
    "nodeName",
    "nodeSelector",
    "priorityClassName",
    "resourceClaims",
    "runtimeClassName",
    "schedulerName",
    "tolerations",
    "topologySpreadConstraints",
)
"""Fields of a pod that decide which nodes it may run on, besides its size and its volumes."""

_ON_ANY_NODE = frozenset({"configMap", "downwardAPI", "emptyDir", "projected", "secret"})
"""Types of volumes that do not bind a pod to nodes."""

_PULLING = ("imagePullSecrets", "serviceAccountName")
"""Fields of a pod with which its images are pulled."""


class PodChange(NamedTuple):
    """The pod templates of one role under the last healthy spec and under a changed one."""

    healthy: Manifest
    changed: Manifest

    @classmethod
    def of(
        cls, healthy: StreamQuery, changed: StreamQuery, owner: Owner, defaults: PodDefaults, role: str = DRIVER
    ) -> PodChange:
        """Return the templates of driver or executors."""
        if role == DRIVER:
            return cls(*(driver_pod(each, owner, defaults, mounted_query(each)[1]) for each in (healthy, changed)))
        return cls(*(made_executor(each, owner, defaults) for each in (healthy, changed)))

    @property
    def asks_for_more(self) -> bool:
        """Whether the changed pod takes more of any resource."""
        before, after = quota_usage(self.healthy), quota_usage(self.changed)
        pairs = ((before.requests, after.requests), (before.limits, after.limits))
        return any(amount > old.get(name, 0) for old, new in pairs for name, amount in new.items())

    @property
    def is_placed_otherwise(self) -> bool:
        """Whether the changed pod may run on other nodes."""
        return _placing(self.healthy) != _placing(self.changed)

    def is_pulled_otherwise(self, container: str) -> bool:
        """Return whether a container of the changed pod has another image, or pulls it in another way."""
        return _pulling(self.healthy, container) != _pulling(self.changed, container)

    @property
    def is_other(self) -> bool:
        """Whether the changed pod differs in anything but its arguments and its grace period."""
        return _made(self.healthy) != _made(self.changed)


def image_of(pod: Manifest, container: str) -> str:
    """Return the image of a container; empty if there is no such container."""
    return next((each.get("image", "") for each in containers(pod["spec"]) if each["name"] == container), "")


def _placing(pod: Manifest) -> list[Any]:
    volumes = [each for each in pod["spec"].get("volumes") or () if _ON_ANY_NODE.isdisjoint(each)]
    return [volumes, *(pod["spec"].get(field) for field in _PLACING)]


def _pulling(pod: Manifest, container: str) -> list[Any]:
    policies = [each.get("imagePullPolicy") for each in containers(pod["spec"]) if each["name"] == container]
    return [image_of(pod, container), policies, *(pod["spec"].get(field) for field in _PULLING)]


def _made(pod: Manifest) -> dict[str, Any]:
    """Return what of a pod decides whether it is created and its containers start."""
    spec = {field: value for field, value in pod["spec"].items() if field != "terminationGracePeriodSeconds"}
    return spec | {
        kind: [{field: value for field, value in each.items() if field != "args"} for each in spec.get(kind) or ()]
        for kind in ("containers", "initContainers")
    }
