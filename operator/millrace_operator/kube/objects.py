"""The objects of queries on the API server."""

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
"""What server-side apply says of fields that there are not; to it, that is an internal error."""


class ObjectApi:
    """Applies objects as their owner. Raises ApiException and urllib3's errors, as ``QueryApi`` does."""

    def __init__(self, raw: Raw) -> None:
        self._raw = raw

    def apply(self, manifest: Manifest, *, trial: bool = False) -> Manifest:
        """Make the object, or make it what the manifest says; what it is then. A trial changes nothing.

        Fields that the manifest does not name stay as others have set them. Applying it again changes nothing.

        Raises:
            RefusedError: the API server finds fault with it.
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
        """Let it have no pod, and leave the rest of it alone; what it is then.

        Raises ApiException where there is none.
        """
        path = _KINDS["StatefulSet"].path(namespace, stateful_set)
        change = {"spec": {"replicas": 0}}
        return self._raw.patch(path, change, "application/merge-patch+json", {"fieldManager": MANAGER})
