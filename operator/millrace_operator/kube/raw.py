"""Requests by path with plain JSON, because typed models of each kind would cost more than the request itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, NamedTuple

from kubernetes.client import ApiException

from ..resources.names import Manifest
from .client import Client
from .queries import TIMEOUT


class ResourceKind(NamedTuple):
    """Kind of object with its API path, ``api/v1`` or ``apis/GROUP/VERSION``, and its plural."""

    name: str
    place: str
    plural: str

    @property
    def of_lists(self) -> dict[str, str]:
        """API version and kind, which list items omit."""
        return {"apiVersion": self.place.partition("/")[2], "kind": self.name}

    def path(self, namespace: str | None = None, name: str = "") -> str:
        """Return the path of all objects, of those in a namespace, or of a single one."""
        where = f"/{self.place}/namespaces/{namespace}" if namespace else f"/{self.place}"
        return f"{where}/{self.plural}/{name}" if name else f"{where}/{self.plural}"


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


class Raw:
    """Client for requests by path. Raises ApiException for a refusal and urllib3's errors if it is unreachable."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def get(self, path: str, query: dict[str, str]) -> Manifest:
        """Return the JSON document at a path."""
        return dict(json.loads(self._answer("GET", path, query).read()))

    def patch(self, path: str, body: Manifest, content_type: str, query: dict[str, str]) -> Manifest:
        """Patch an object and return the result."""
        return dict(json.loads(self._answer("PATCH", path, query, body, content_type).read()))

    def lines(self, path: str, query: dict[str, str], timeout: tuple[float, float]) -> Iterator[Any]:
        """Yield each line of a streamed answer as it arrives, parsed from JSON."""
        answer = self._answer("GET", path, query, timeout=timeout).response
        rest = b""
        try:
            while piece := answer.read1(1 << 16):
                *whole, rest = (rest + piece).split(b"\n")
                yield from (json.loads(line) for line in whole if line)
        finally:
            answer.close()

    def _answer(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        body: Manifest | None = None,
        content_type: str = "application/json",
        timeout: tuple[float, float] = TIMEOUT,
    ) -> Any:
        request = self._client.param_serialize(
            method,
            path,
            query_params=list(query.items()),
            header_params={"Accept": "application/json", "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
        )
        answer = self._client.call_api(*request, _request_timeout=timeout)
        if answer.status >= HTTPStatus.MULTIPLE_CHOICES:
            text = answer.read().decode(errors="replace")
            raise ApiException.from_response(http_resp=answer, body=text, data=None)
        return answer
