"""Canary on the API server: a StreamQuery that is never deployed, and is touched to prove that the watch works."""

from __future__ import annotations

from typing import Any

from kubernetes.client import ApiClient, CustomObjectsApi

from millrace_api.crd.document import GROUP, PLURAL, VERSION
from millrace_api.model.streamquery import API_VERSION, KIND

from .queries import APPLY, MANAGER

CANARY_LABEL = f"{GROUP}/canary"
"""Label of a StreamQuery that no operator deploys."""

TOUCHED = f"{GROUP}/touched"
"""Annotation with the time of the last touch."""

_SECONDS = 10.0
_SPEC = {
    "state": "Suspended",
    "sources": {"ticks": {"rate": {}}},
    "query": {"sql": "SELECT count(*) AS n FROM ticks"},
    "sink": {"console": {}},
}


class CanaryApi:
    """API for one canary. Raises ApiException and urllib3's errors, like ``QueryApi``."""

    def __init__(self, client: ApiClient, namespace: str, name: str) -> None:
        self._objects = CustomObjectsApi(client)
        self._namespace = namespace
        self._name = name

    def last_touch(self) -> str | None:
        """Return the stamp of the last touch from the API server; None without a canary or a stamp."""
        # a list with one item, because it needs no right beyond those for the watch
        listed: Any = self._objects.list_namespaced_custom_object(
            GROUP,
            VERSION,
            self._namespace,
            PLURAL,
            field_selector=f"metadata.name={self._name}",
            _request_timeout=_SECONDS,
        )
        found = [each["metadata"].get("annotations", {}).get(TOUCHED) for each in listed["items"]]
        return found[0] if found else None

    def touch(self, stamp: str) -> None:
        """Write the stamp to the canary; create the canary if it does not exist."""
        document = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {
                "name": self._name,
                "namespace": self._namespace,
                "labels": {CANARY_LABEL: "true"},
                "annotations": {TOUCHED: stamp},
            },
            "spec": _SPEC,
        }
        self._objects.patch_namespaced_custom_object(
            GROUP,
            VERSION,
            self._namespace,
            PLURAL,
            self._name,
            document,
            field_manager=MANAGER,
            force=True,
            _content_type=APPLY,
            _request_timeout=_SECONDS,
        )
