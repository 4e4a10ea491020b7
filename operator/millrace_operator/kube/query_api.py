"""StreamQueries on the API server: status, finalizer and events.

``lifecycle.reconcile`` makes these requests; what a request returns goes back to ``lifecycle.observation_cache``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.status import Status

from ..lifecycle.conditions import format_time, shortened
from ..lifecycle.events import StatusEvent
from ..lifecycle.observed_query import QueryKey
from ..lifecycle.reconcile import ChangeForbiddenError, GoneError
from ..resources.names import MANAGER, Manifest
from .client import APPLY, CONNECTIONS, MERGE, QUERIES, Client, ResourceKind, server_message

EVENTS = ResourceKind("Event", "api/v1", "events")
_PLURALS = {QUERIES: "StreamQueries", CONNECTIONS: "Connections"}

log = logging.getLogger(__name__)


class QueryApi:
    """API for StreamQueries. Raises the errors of ``Client.request``."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def require_kinds(self, namespaces: Sequence[str]) -> None:
        """Check that the API server knows StreamQueries and Connections; log a warning if it cannot be reached yet.

        Raises:
            MillraceError: the API server does not know one of them.
        """
        for kind in (QUERIES, CONNECTIONS):
            self._require(kind, namespaces)

    def _require(self, kind: ResourceKind, namespaces: Sequence[str]) -> None:
        try:
            self._client.request("GET", kind.path(next(iter(namespaces), None)), {"limit": "1"})
        except HTTPError as error:
            log.warning("the API server does not answer yet: %s", error)
        except ApiException as error:
            if error.status == HTTPStatus.NOT_FOUND:
                of_kind = "" if kind is QUERIES else f" --kind {kind.name}"
                hint = f"install the CRD first: millrace crd{of_kind} | kubectl apply --server-side -f -"
                raise MillraceError(Problem(f"the cluster does not know {_PLURALS[kind]}", hint)) from None
            hint = "; grant that right in all namespaces, or name the ones to watch with --namespace"
            is_everywhere = error.status == HTTPStatus.FORBIDDEN and not namespaces
            text = server_message(error) + (hint if is_everywhere else "")
            log.warning("%s cannot be listed: %s", _PLURALS[kind], text)

    def read(self, key: QueryKey) -> Manifest:
        """Return a query. Raises GoneError if it does not exist."""
        return self._read(QUERIES, *key)

    def read_connection(self, namespace: str, name: str) -> Manifest:
        """Return a Connection. Raises GoneError if it does not exist."""
        return self._read(CONNECTIONS, namespace, name)

    def _read(self, kind: ResourceKind, namespace: str, name: str) -> Manifest:
        query = {"fieldSelector": f"metadata.name={name}"}  # it needs no right beyond those for the watch
        found = self._client.request("GET", kind.path(namespace), query)["items"]
        if not found:
            raise GoneError
        return kind.type_meta | dict(found[0])

    def write_status(self, key: QueryKey, uid: str, status: Status) -> Manifest:
        """Apply the status: omitted fields are removed, fields of other managers stay untouched.

        Returns the query after the change.

        Raises:
            GoneError: the query does not exist, or another query has its name now.
            ChangeForbiddenError: the operator may not do it.
        """
        return self._apply(key, {"uid": uid}, {"status": status.to_document()}, "/status")

    def add_finalizer(self, key: QueryKey, uid: str, finalizer: str) -> Manifest:
        """Add a finalizer and return the query. Raises errors like ``write_status``."""
        return self._apply(key, {"uid": uid, "finalizers": [finalizer]}, {})

    def remove_finalizer(self, key: QueryKey, body: Mapping[str, Any], finalizer: str) -> None:
        """Remove a finalizer from the observed version of a query, even one that came with a restored backup.

        Raises errors like ``write_status``.
        """
        metadata = body["metadata"]
        rest = [each for each in metadata.get("finalizers") or () if each != finalizer]
        change = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"], "finalizers": rest}
        self._patch(key, {"metadata": change}, MERGE, {"fieldManager": MANAGER})

    def post_event(self, key: QueryKey, uid: str, event: StatusEvent) -> None:
        """Post an event about a query, as shown by ``kubectl describe`` and ``kubectl events``.

        The status has the same information, so a failure is only logged and does not stop the deployment.
        """
        now = format_time(datetime.now(UTC))
        body = {
            "metadata": {"generateName": f"{key.name}.", "namespace": key.namespace},
            "involvedObject": {**QUERIES.type_meta, "namespace": key.namespace, "name": key.name, "uid": uid},
            "type": "Warning" if event.warning else "Normal",
            "reason": event.reason,
            "message": shortened(event.message),
            "source": {"component": MANAGER},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            self._client.request("POST", EVENTS.path(key.namespace), {}, body)
        except (ApiException, HTTPError) as error:
            text = server_message(error) if isinstance(error, ApiException) else error
            log.warning("%s: the event %s was not posted: %s", key, event.reason, text)

    def _apply(self, key: QueryKey, metadata: Manifest, parts: Manifest, subresource: str = "") -> Manifest:
        metadata = {"name": key.name, "namespace": key.namespace, **metadata}
        document = {**QUERIES.type_meta, "metadata": metadata, **parts}
        return self._patch(key, document, APPLY, {"fieldManager": MANAGER, "force": "true"}, subresource)

    def _patch(
        self, key: QueryKey, body: Manifest, content_type: str, query: Manifest, subresource: str = ""
    ) -> Manifest:
        path = QUERIES.path(key.namespace, key.name) + subresource
        try:
            return self._client.request("PATCH", path, query, body, content_type)
        except ApiException as error:
            replaced = error.status == HTTPStatus.CONFLICT and "uid mismatch" in str(error.body)
            if replaced or error.status == HTTPStatus.NOT_FOUND:
                raise GoneError from None
            if error.status == HTTPStatus.FORBIDDEN:
                raise ChangeForbiddenError(server_message(error)) from None
            raise
