"""The objects of queries on the API server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kubernetes.client import (
    ApiClient,
    AppsV1Api,
    CoreV1Api,
    NetworkingV1Api,
    PolicyV1Api,
    RbacAuthorizationV1Api,
)

from ..resources.names import Manifest
from .queries import APPLY, MANAGER, TIMEOUT


class ObjectApi:
    """Applies objects as their owner. Raises ApiException and urllib3's errors, as ``QueryApi`` does."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        core, apps, rbac = CoreV1Api(client), AppsV1Api(client), RbacAuthorizationV1Api(client)
        self._apps = apps
        self._patch: Mapping[str, Callable[..., Any]] = {
            "ConfigMap": core.patch_namespaced_config_map,
            "NetworkPolicy": NetworkingV1Api(client).patch_namespaced_network_policy,
            "PodDisruptionBudget": PolicyV1Api(client).patch_namespaced_pod_disruption_budget,
            "Role": rbac.patch_namespaced_role,
            "RoleBinding": rbac.patch_namespaced_role_binding,
            "Service": core.patch_namespaced_service,
            "ServiceAccount": core.patch_namespaced_service_account,
            "StatefulSet": apps.patch_namespaced_stateful_set,
        }

    def apply(self, manifest: Manifest) -> Manifest:
        """Make the object, or make it what the manifest says; what it is then.

        Fields that the manifest does not name stay as others have set them. Applying it again changes nothing.
        """
        kind, metadata = manifest["kind"], manifest["metadata"]
        applied = self._patch[kind](
            metadata["name"],
            metadata["namespace"],
            manifest,
            field_manager=MANAGER,
            force=True,
            _content_type=APPLY,
            _request_timeout=TIMEOUT,
        )
        found: Manifest = self._client.sanitize_for_serialization(applied)  # type: ignore[no-untyped-call]
        return found | {"kind": kind}

    def drain(self, namespace: str, stateful_set: str) -> Manifest:
        """Let it have no pod, and leave the rest of it alone; what it is then.

        Raises ApiException where there is none.
        """
        left = self._apps.patch_namespaced_stateful_set(
            stateful_set,
            namespace,
            {"spec": {"replicas": 0}},
            field_manager=MANAGER,
            _content_type="application/merge-patch+json",
            _request_timeout=TIMEOUT,
        )
        found: Manifest = self._client.sanitize_for_serialization(left)  # type: ignore[no-untyped-call]
        return found | {"kind": "StatefulSet"}
