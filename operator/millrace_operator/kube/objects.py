"""Objects that queries own: their kinds, and changes to them on the API server."""

from __future__ import annotations

from http import HTTPStatus

from kubernetes.client import ApiException

from ..lifecycle.reconcile import ObjectRefusedError
from ..resources.names import Manifest
from .client import APPLY, MANAGER, MERGE, Client, ResourceKind, server_message

OWNED = (
    ResourceKind("ServiceAccount", "api/v1", "serviceaccounts"),
    ResourceKind("ConfigMap", "api/v1", "configmaps"),
    ResourceKind("Service", "api/v1", "services"),
    ResourceKind("Pod", "api/v1", "pods"),
    ResourceKind("Role", "apis/rbac.authorization.k8s.io/v1", "roles"),
    ResourceKind("RoleBinding", "apis/rbac.authorization.k8s.io/v1", "rolebindings"),
    ResourceKind("NetworkPolicy", "apis/networking.k8s.io/v1", "networkpolicies"),
    ResourceKind("PodDisruptionBudget", "apis/policy/v1", "poddisruptionbudgets"),
    ResourceKind("StatefulSet", "apis/apps/v1", "statefulsets"),
)
"""Kinds of objects that queries own."""

_KINDS = {kind.name: kind for kind in OWNED}

_FAULTS = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)
_UNTYPED = "failed to create typed patch object"
"""Message of server-side apply about unknown fields, which it reports as an internal error."""


class ObjectApi:
    """API for the objects of queries, as field manager. Raises the errors of ``Client.request``."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def apply(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Create or update an object by server-side apply and return the result; a dry run stores nothing.

        Fields that the manifest omits keep the values set by others. Applying the same manifest again changes nothing.

        Raises:
            ObjectRefusedError: the API server rejects the object.
        """
        metadata = manifest["metadata"]
        path = _KINDS[manifest["kind"]].path(metadata["namespace"], metadata["name"])
        query = {"fieldManager": MANAGER, "force": "true"} | ({"dryRun": "All"} if dry_run else {})
        try:
            return self._client.request("PATCH", path, query, manifest, APPLY)
        except ApiException as error:
            if error.status in _FAULTS or _UNTYPED in str(error.body):
                raise ObjectRefusedError(server_message(error)) from None
            raise

    def drain(self, namespace: str, stateful_set: str) -> Manifest:
        """Scale a StatefulSet to zero pods, change nothing else, and return the result.

        Raises ApiException if it does not exist.
        """
        path = _KINDS["StatefulSet"].path(namespace, stateful_set)
        return self._client.request("PATCH", path, {"fieldManager": MANAGER}, {"spec": {"replicas": 0}}, MERGE)
