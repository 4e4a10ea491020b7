"""Changes to the objects of queries on the API server."""

from __future__ import annotations

from http import HTTPStatus

from kubernetes.client import ApiException

from ..lifecycle.reconcile import ObjectRefusedError
from ..resources.names import Manifest
from .queries import APPLY, MANAGER
from .raw import OWNED, Raw
from .refusals import words

_KINDS = {kind.name: kind for kind in OWNED}

_FAULTS = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)
_UNTYPED = "failed to create typed patch object"
"""Message of server-side apply about unknown fields, which it reports as an internal error."""


class ObjectApi:
    """API for the objects of queries, as field manager. Raises ApiException and urllib3's errors, like ``QueryApi``."""

    def __init__(self, raw: Raw) -> None:
        self._raw = raw

    def apply(self, manifest: Manifest, *, trial: bool = False) -> Manifest:
        """Create or update an object by server-side apply and return the result. A trial is a dry run.

        Fields that the manifest omits keep the values set by others. Applying the same manifest again changes nothing.

        Raises:
            ObjectRefusedError: the API server rejects the object.
        """
        metadata = manifest["metadata"]
        path = _KINDS[manifest["kind"]].path(metadata["namespace"], metadata["name"])
        query = {"fieldManager": MANAGER, "force": "true"} | ({"dryRun": "All"} if trial else {})
        try:
            return self._raw.patch(path, manifest, APPLY, query)
        except ApiException as error:
            if error.status in _FAULTS or _UNTYPED in str(error.body):
                raise ObjectRefusedError(words(error)) from None
            raise

    def drain(self, namespace: str, stateful_set: str) -> Manifest:
        """Scale a StatefulSet to zero pods, change nothing else, and return the result.

        Raises ApiException if it does not exist.
        """
        path = _KINDS["StatefulSet"].path(namespace, stateful_set)
        change = {"spec": {"replicas": 0}}
        return self._raw.patch(path, change, "application/merge-patch+json", {"fieldManager": MANAGER})
