"""StreamQueries on the API server: status, finalizer and events."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from kubernetes.client import ApiClient, ApiException, CoreV1Api, CoreV1Event, CustomObjectsApi
from urllib3.exceptions import HTTPError

from millrace_api.crd.document import GROUP, PLURAL, VERSION
from millrace_api.errors import MillraceError, Problem
from millrace_api.model.status import Status
from millrace_api.model.streamquery import API_VERSION, KIND

from ..lifecycle.conditions import shortened, stamp
from ..lifecycle.observe import QueryKey
from ..lifecycle.reconcile import GoneError
from ..resources.names import Manifest
from .refusals import words

log = logging.getLogger(__name__)

MANAGER = "millrace-operator"
"""Field manager of server-side apply."""

TIMEOUT = (3.0, 15.0)
"""Timeouts in seconds: to connect, and to receive the answer."""

APPLY = "application/apply-patch+yaml"
"""Content type of server-side apply, which takes ownership of the named fields only."""


class QueryApi:
    """API for StreamQueries. Raises ApiException for a refusal and urllib3's errors if the server is unreachable."""

    def __init__(self, client: ApiClient) -> None:
        self._objects = CustomObjectsApi(client)
        self._core = CoreV1Api(client)

    def require_kind(self, namespaces: Sequence[str]) -> None:
        """Check that the API server knows StreamQueries; log a warning if it cannot be reached yet.

        Raises:
            MillraceError: the API server does not know the kind.
        """
        listed: dict[str, Any] = {"limit": 1, "_request_timeout": TIMEOUT}
        try:
            if namespaces:
                self._objects.list_namespaced_custom_object(GROUP, VERSION, namespaces[0], PLURAL, **listed)
            else:
                self._objects.list_cluster_custom_object(GROUP, VERSION, PLURAL, **listed)
        except HTTPError as error:
            log.warning("the API server does not answer yet: %s", error)
        except ApiException as error:
            if error.status == HTTPStatus.NOT_FOUND:
                hint = "install the CRD first: millrace crd | kubectl apply --server-side -f -"
                raise MillraceError(Problem("the cluster does not know StreamQueries", hint)) from None
            log.warning("StreamQueries cannot be listed: %s %s", error.status, error.reason)

    def write_status(self, key: QueryKey, uid: str, status: Status) -> Manifest:
        """Apply the status: omitted fields are removed, fields of other managers stay untouched.

        Returns the query after the change.

        Raises:
            GoneError: the query does not exist, or another query has its name now.
        """
        return self._apply(self._objects.patch_namespaced_custom_object_status, key, uid, status=status.to_document())

    def finalize(self, key: QueryKey, uid: str, finalizer: str) -> Manifest:
        """Set a finalizer and return the query. Raises GoneError like ``write_status``."""
        finalizers = {"finalizers": [finalizer]}
        return self._apply(self._objects.patch_namespaced_custom_object, key, uid, finalizers)

    def let_go(self, key: QueryKey, body: Mapping[str, Any], finalizer: str) -> None:
        """Remove a finalizer from the observed version of a query, even one that came with a restored backup."""
        metadata = body["metadata"]
        left = [each for each in metadata.get("finalizers") or () if each != finalizer]
        change = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"], "finalizers": left}
        try:
            self._objects.patch_namespaced_custom_object(
                GROUP,
                VERSION,
                key.namespace,
                PLURAL,
                key.name,
                {"metadata": change},
                field_manager=MANAGER,
                _content_type="application/merge-patch+json",
                _request_timeout=TIMEOUT,
            )
        except ApiException as error:
            if error.status == HTTPStatus.NOT_FOUND:
                raise GoneError from None
            raise

    def _apply(
        self, patch: Callable[..., Any], key: QueryKey, uid: str, metadata: Manifest | None = None, **parts: Any
    ) -> Manifest:
        document = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": key.name, "namespace": key.namespace, "uid": uid, **(metadata or {})},
            **parts,
        }
        place = (GROUP, VERSION, key.namespace, PLURAL, key.name)
        how = {"field_manager": MANAGER, "force": True, "_content_type": APPLY, "_request_timeout": TIMEOUT}
        try:
            return dict(patch(*place, document, **how))
        except ApiException as error:
            if error.status == HTTPStatus.NOT_FOUND or (
                error.status == HTTPStatus.CONFLICT and "uid mismatch" in str(error.body)
            ):
                raise GoneError from None
            raise

    def tell(self, key: QueryKey, uid: str, *, warning: bool, reason: str, message: str) -> None:
        """Post an event about a query, as shown by ``kubectl describe`` and ``kubectl events``.

        The status has the same information, so a failure is only logged and does not stop the deployment.
        """
        now = stamp(datetime.now(UTC))
        event = {
            "metadata": {"generateName": f"{key.name}.", "namespace": key.namespace},
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "namespace": key.namespace,
                "name": key.name,
                "uid": uid,
            },
            "type": "Warning" if warning else "Normal",
            "reason": reason,
            "message": shortened(message),
            "source": {"component": MANAGER},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            self._core.create_namespaced_event(
                key.namespace, CoreV1Event.model_validate(event), _request_timeout=TIMEOUT
            )
        except (ApiException, HTTPError) as error:
            said = words(error) if isinstance(error, ApiException) else error
            log.warning("%s: no event of %s: %s", key, reason, said)
