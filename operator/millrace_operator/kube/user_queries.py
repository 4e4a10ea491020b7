"""StreamQueries on the API server, read and changed on behalf of a user."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from kubernetes.client import CoreV1Api, CustomObjectsApi
from kubernetes.utils import Backoff, retry_on_conflict

from millrace_api.crd.document import GROUP, PLURAL, VERSION
from millrace_api.errors import MillraceError, Problem

from ..resources.names import Manifest
from .canary import CANARY_LABEL
from .cluster import TIMEOUT, Cluster
from .refusals import QUERIES, MissingError, user_errors

MERGE = "application/merge-patch+json"
"""Content type of a merge patch, which changes the named fields only."""

_CONFLICTS = Backoff(steps=10, duration=0.02, factor=1.5, jitter=0.5)

PEOPLES = f"!{CANARY_LABEL}"
"""Label selector of user queries, without canaries."""


class Listed(NamedTuple):
    """List of queries at one resource version."""

    items: list[Manifest]
    version: str


class UserQueries:
    """API for the queries of one cluster. All methods raise MillraceError with a message for the user."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._objects = CustomObjectsApi(cluster.client)

    def get(self, name: str) -> Manifest:
        """Return a query of the namespace."""
        with self._user_errors("get", name):
            return self._objects.get_namespaced_custom_object(*self._place(name), _request_timeout=TIMEOUT)  # type: ignore[return-value]

    def all(self, *, everywhere: bool) -> Listed:
        """Return the queries of the namespace or of all namespaces, without canaries."""
        namespace = None if everywhere else self._cluster.namespace
        with user_errors(self._cluster, "list", QUERIES, namespace):
            found: Any
            options: dict[str, Any] = {"label_selector": PEOPLES, "_request_timeout": TIMEOUT}
            if namespace is None:
                found = self._objects.list_cluster_custom_object(GROUP, VERSION, PLURAL, **options)
            else:
                found = self._objects.list_namespaced_custom_object(GROUP, VERSION, namespace, PLURAL, **options)
        return Listed(found["items"], found["metadata"]["resourceVersion"])

    def change(self, name: str, patch: Mapping[str, Any]) -> Manifest:
        """Merge fields into a query and return the result."""
        with self._user_errors("patch", name):
            return self._patch(name, patch)

    def scale(self, name: str, executors: int) -> None:
        """Set the number of executors, like ``kubectl scale``."""
        with self._user_errors("patch", name, f"{QUERIES}/scale"):
            self._objects.patch_namespaced_custom_object_scale(
                *self._place(name),
                {"spec": {"replicas": executors}},
                _content_type=MERGE,
                _request_timeout=TIMEOUT,
            )

    def restart(self, name: str) -> Manifest:
        """Increment ``spec.restartNonce`` and return the query.

        Two concurrent calls make two restarts, because a change applies only to the version that was read.
        """

        def increase() -> Manifest:
            body = self.get(name)
            nonce = body["spec"].get("restartNonce") or 0
            version = {"resourceVersion": body["metadata"]["resourceVersion"]}
            return self._patch(name, {"metadata": version, "spec": {"restartNonce": nonce + 1}})

        with self._user_errors("patch", name):
            return retry_on_conflict(increase, _CONFLICTS)

    def decision(self, name: str) -> str | None:
        """Return the last scaling decision that the operator saved, as JSON; None if there is none."""
        config_map = f"{name}-scaling"
        try:
            with user_errors(self._cluster, "get", "configmaps", self._cluster.namespace, config_map):
                found = CoreV1Api(self._cluster.client).read_namespaced_config_map(
                    config_map, self._cluster.namespace, _request_timeout=TIMEOUT
                )
        except MissingError:
            return None
        return (found.data or {}).get("decision.json")

    def _patch(self, name: str, patch: Mapping[str, Any]) -> Manifest:
        return self._objects.patch_namespaced_custom_object(  # type: ignore[return-value]
            *self._place(name), dict(patch), _content_type=MERGE, _request_timeout=TIMEOUT
        )

    def _place(self, name: str) -> tuple[str, str, str, str, str]:
        return GROUP, VERSION, self._cluster.namespace, PLURAL, name

    @contextmanager
    def _user_errors(self, verb: str, name: str, resource: str = QUERIES) -> Iterator[None]:
        try:
            with user_errors(self._cluster, verb, resource, self._cluster.namespace, name):
                yield
        except MissingError:
            raise MissingError(self._missing(name)) from None

    def _missing(self, name: str) -> Problem:
        """Return the problem of a missing query, with similar names as a hint."""
        problem = f'there is no StreamQuery "{name}" in namespace {self._cluster.namespace}'
        try:
            names = [item["metadata"]["name"] for item in self.all(everywhere=False).items]
        except MillraceError:  # a user who may get queries may not be allowed to list them
            return Problem(problem, "look at another namespace with -n")
        alike = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        if alike:
            return Problem(problem, f"did you mean {' or '.join(alike)}?")
        return Problem(problem, f"millrace status -n {self._cluster.namespace} lists what there is, -A all namespaces")
