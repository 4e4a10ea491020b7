"""Reviews by the API server: whose token this is, and what its owner may do with StreamQueries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from millrace_api.crd import GROUP, PLURAL

from .client import JsonClient, ResourceKind

_TOKENS = ResourceKind("TokenReview", "apis/authentication.k8s.io/v1", "tokenreviews")
_ACCESS = ResourceKind("SubjectAccessReview", "apis/authorization.k8s.io/v1", "subjectaccessreviews")

TIMEOUT = (2.0, 3.0)
"""Timeouts in seconds: to connect, and to receive the answer. A reader waits for it."""


@dataclass(frozen=True)
class User:
    """A user as the API server knows them; ``extra`` has the further attributes of the token, which rules may use."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class ReviewApi:
    """API for reviews. Raises the errors of ``JsonClient.request``.

    Args:
        client: an unfenced client: a review changes nothing, and standbys make them, too.
    """

    def __init__(self, client: JsonClient) -> None:
        self._client = client

    def user_of(self, token: str) -> User | None:
        """Return whose bearer token this is; None if the API server does not accept it, or has issued it for others."""
        spec = {"token": token}
        status = self._review(_TOKENS, spec)
        if not status.get("authenticated"):
            return None
        user: dict[str, Any] = status.get("user") or {}
        extra = tuple((name, tuple(values)) for name, values in sorted((user.get("extra") or {}).items()))
        return User(user.get("username", ""), user.get("uid", ""), tuple(user.get("groups") or ()), extra)

    def may(self, user: User, verb: str, namespace: str = "", name: str = "") -> bool:
        """Return whether a user may do this with StreamQueries.

        Without a namespace, it is about those of all namespaces; without a name, about all of the namespace.
        """
        attributes = {"verb": verb, "group": GROUP, "resource": PLURAL, "namespace": namespace, "name": name}
        spec = {
            "user": user.name,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {name: list(values) for name, values in user.extra},
            "resourceAttributes": attributes,
        }
        return self._review(_ACCESS, spec).get("allowed") is True

    def _review(self, kind: ResourceKind, spec: Mapping[str, Any]) -> dict[str, Any]:
        document = {**kind.type_meta, "spec": spec}
        answer = self._client.request("POST", kind.path(), {}, document, timeout=TIMEOUT)
        return answer.get("status") or {}
