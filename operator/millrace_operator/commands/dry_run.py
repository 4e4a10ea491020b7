"""What ``kubectl apply`` of a StreamQuery would store, by a dry run on the API server with the user's rights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from kubernetes.client import ApiException

from ..kube.client import APPLY, MERGE, QUERIES, server_message
from ..resources.names import Manifest
from .cluster import TIMEOUT, Cluster, user_errors
from .user_queries import RESOURCE

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_MANAGER = "kubectl"
_REFUSALS = (HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY)


@dataclass(frozen=True)
class DryRun:
    """The object that would be stored, and the API server's own words if it refuses it; empty if it does not."""

    result: Manifest
    refusal: str = ""


def dry_run(cluster: Cluster, document: Manifest, existing: Mapping[str, Any] | None) -> DryRun:
    """Apply a document to the cluster's namespace as kubectl would, without storing it.

    If the API server refuses it, the result is what would have been stored, without the server's defaults.

    Raises:
        MillraceError: the API server is unreachable, or cannot answer.
    """
    name, namespace = document["metadata"]["name"], cluster.namespace
    options = {"dryRun": "All", "fieldManager": _MANAGER, "fieldValidation": "Strict"}
    document = document | {"metadata": document["metadata"] | {"namespace": namespace}}
    if existing is None:
        request, result = ("POST", QUERIES.path(namespace), options, document, "application/json"), document
    elif _is_applied_by_server(existing):
        request = ("PATCH", QUERIES.path(namespace, name), options, document, APPLY)
        result = _merged(existing, document)
    else:
        patch = _patch(document, existing)
        request, result = ("PATCH", QUERIES.path(namespace, name), options, patch, MERGE), _merged(existing, patch)
    verb = "create" if existing is None else "patch"
    with user_errors(cluster, verb, RESOURCE, namespace, name):
        try:
            return DryRun(cluster.client.request(*request, TIMEOUT))
        except ApiException as error:
            if error.status not in _REFUSALS:
                raise
            return DryRun(result, server_message(error))


def _is_applied_by_server(existing: Mapping[str, Any]) -> bool:
    """Return whether ``kubectl apply --server-side`` manages the object."""
    entries = existing["metadata"].get("managedFields") or ()
    return any((each.get("manager"), each.get("operation")) == (_MANAGER, "Apply") for each in entries)


def _patch(document: Manifest, existing: Mapping[str, Any]) -> Manifest:
    """Return the merge patch of ``kubectl apply``, which removes the fields that were applied last and are gone."""
    applied = (existing["metadata"].get("annotations") or {}).get(_LAST_APPLIED)
    before = {} if applied is None else json.loads(applied)
    return _without_gone(before, {name: value for name, value in document.items() if name != "status"})


def _without_gone(before: Mapping[str, Any], now: Mapping[str, Any]) -> Manifest:
    patch: Manifest = {name: None for name in before if name not in now}
    for name, value in now.items():
        earlier = before.get(name)
        mappings = isinstance(value, Mapping) and isinstance(earlier, Mapping)
        patch[name] = _without_gone(earlier, value) if mappings else value  # type: ignore[arg-type]
    return patch


def _merged(target: Mapping[str, Any], patch: Mapping[str, Any]) -> Manifest:
    """Return the result of a JSON merge patch, RFC 7386."""
    result = dict(target)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, Mapping):
            below = result.get(name)
            result[name] = _merged(below if isinstance(below, Mapping) else {}, value)
        else:
            result[name] = value
    return result
