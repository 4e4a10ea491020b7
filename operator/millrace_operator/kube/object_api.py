"""Objects that queries own: their kinds, and changes to them on the API server.

``handlers.owned_objects`` watches what becomes of them.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from http import HTTPStatus

from kubernetes.client import ApiException

from millrace_api.model.streamquery import QUERY_LABEL

from ..lifecycle.reconcile import ChangeForbiddenError
from ..lifecycle.refusals import NameTakenError, ObjectRefusedError, PodRefusedError, QuotaExceededError
from ..resources.auth import auth_secret
from ..resources.gangs import POD_GROUP, POD_GROUP_API
from ..resources.names import MANAGER, Manifest, Owner
from .client import APPLY, MERGE, Client, ResourceKind, pages, server_message

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

POD_GROUPS = ResourceKind(POD_GROUP, f"apis/{POD_GROUP_API}", "podgroups")
"""Volcano's groups of pods: applied where a query asks for them, and not watched, since few clusters serve them."""

LIMITING = (
    ResourceKind("ResourceQuota", "api/v1", "resourcequotas"),
    ResourceKind("LimitRange", "api/v1", "limitranges"),
)
"""Kinds of objects that limit the pods of a namespace."""

_SECRETS = ResourceKind("Secret", "api/v1", "secrets")
"""Made and deleted, and never read or watched."""

_KINDS = {kind.name: kind for kind in (*OWNED, POD_GROUPS)}

_OF_NONE = "1"
"""Version that no object has: an apply with it creates an object, and is a conflict where there is one already."""

_FAULTS = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)
_QUOTA = "exceeded quota"
"""Part of the message about a quota, which has the status of a missing right."""

_REFUSALS = (*_FAULTS, HTTPStatus.FORBIDDEN, HTTPStatus.INTERNAL_SERVER_ERROR)
"""Answers to the creation of a pod that refuse it; the last one is that of a webhook that fails."""

_SAYS_NOTHING = ('cannot create resource "pods"', "does not support dry run")
"""Parts of messages about a dry run that say nothing about the pod."""

_UNKNOWN_KIND = "page not found"
"""Message about a kind that the API server does not serve; a missing namespace has another one."""

_NO_VOLCANO = (
    f"this cluster serves no {POD_GROUP} of {POD_GROUP_API}: install Volcano, or name another scheduler in "
    "spec.scheduling"
)
_UNTYPED = "failed to create typed patch object"
"""Message of server-side apply about unknown fields, which it reports as an internal error."""


class ObjectApi:
    """API for the objects of queries, as field manager. Raises the errors of ``Client.request``."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def create(self, manifest: Manifest, owner: Owner, *, dry_run: bool = False) -> Manifest:
        """Create an object by server-side apply and return it, or the one there is, if it is the owner's.

        That one has not been seen by the watches yet, or never will be, because it has lost the label that they select;
        then it gets it again. Another's object is left alone, also if it was created a moment ago. A PodGroup is not
        watched, so the one there is gets updated.

        Raises:
            ObjectRefusedError: the API server rejects the object.
            NameTakenError: another's object has its name.
        """
        metadata, kind = manifest["metadata"], _KINDS[manifest["kind"]]
        try:
            return self._patch(manifest | {"metadata": metadata | {"resourceVersion": _OF_NONE}}, dry_run=dry_run)
        except ApiException as error:
            found = self._find(kind, metadata) if error.status == HTTPStatus.CONFLICT else None
            if found is None:
                raise
        if not owner.owns(found):
            raise NameTakenError(kind.name, metadata["name"])
        if kind is not POD_GROUPS and QUERY_LABEL in (found["metadata"].get("labels") or {}):
            return {**kind.type_meta, **found}
        return self.apply(manifest | {"metadata": metadata | {"uid": found["metadata"]["uid"]}}, dry_run=dry_run)

    def apply(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Update the object that the manifest's uid names by server-side apply, and return the result.

        Fields that the manifest omits keep the values set by others. Applying the same manifest again changes nothing.

        Raises:
            ObjectRefusedError: the API server rejects the object.
        """
        return self._patch(manifest, dry_run=dry_run)

    def make_secret(self, owner: Owner, *, dry_run: bool = False) -> str:
        """Make a Secret for driver and executors, and return its name. Its value is kept nowhere else.

        Raises:
            ObjectRefusedError: the API server rejects it.
        """
        manifest, query = auth_secret(owner), {"fieldManager": MANAGER} | _dry(dry_run)
        try:
            self._client.request("POST", _SECRETS.path(owner.namespace), query, manifest)
        except ApiException as error:
            for value in manifest["data"].values():  # an admission webhook may quote what it refuses
                error.body = str(error.body).replace(value, "HIDDEN").replace(b64decode(value).decode(), "HIDDEN")
            raise _refusal(error) from None
        return str(manifest["metadata"]["name"])

    def drop_secret(self, owner: Owner, name: str) -> None:
        """Delete a Secret of ``make_secret``, if it is there."""
        try:
            self._client.request("DELETE", _SECRETS.path(owner.namespace, name), {})
        except ApiException as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise

    def drop(self, found: Manifest) -> None:
        """Delete an object that was observed, and no later one of its name, if it is there."""
        metadata = found["metadata"]
        path = _KINDS[found["kind"]].path(metadata["namespace"], metadata["name"])
        try:
            self._client.request("DELETE", path, {}, {"preconditions": {"uid": metadata["uid"]}})
        except ApiException as error:
            if error.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                raise

    def drop_pod_group(self, owner: Owner) -> None:
        """Delete the PodGroup that has the name of a query, if it is there and the query's."""
        try:
            found = self._find(POD_GROUPS, {"name": owner.name, "namespace": owner.namespace})
            if found is not None and owner.owns(found):
                path, uid = POD_GROUPS.path(owner.namespace, owner.name), found["metadata"]["uid"]
                self._client.request("DELETE", path, {}, {"preconditions": {"uid": uid}})
        except ApiException as error:  # also where Volcano's CRD is gone
            if error.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                raise

    def drain(self, namespace: str, stateful_set: str, uid: str) -> Manifest:
        """Scale the StatefulSet of this uid to zero pods, change nothing else, and return the result.

        Raises:
            ApiException: it does not exist, or a later one has its name.
            ChangeForbiddenError: the operator may not do it.
        """
        path = _KINDS["StatefulSet"].path(namespace, stateful_set)
        try:
            change = {"metadata": {"uid": uid}, "spec": {"replicas": 0}}
            return self._client.request("PATCH", path, {"fieldManager": MANAGER}, change, MERGE)
        except ApiException as error:
            if error.status == HTTPStatus.FORBIDDEN:
                raise ChangeForbiddenError(server_message(error)) from None
            raise

    def refuses(self, pod: Manifest) -> ObjectRefusedError | None:
        """Return why the API server would refuse to create a pod, by a dry run; None if it would not, or does not say.

        It does not say if the operator may not create pods, or if a webhook does not support dry runs.
        """
        path = _KINDS["Pod"].path(pod["metadata"]["namespace"])
        try:
            self._client.request("POST", path, {"fieldManager": MANAGER, "dryRun": "All"}, pod)
        except ApiException as error:
            text = server_message(error)
            if error.status not in _REFUSALS or any(each in text for each in _SAYS_NOTHING):
                return None
            return QuotaExceededError(text) if _QUOTA in text else PodRefusedError(text)
        return None

    def objects_of(self, owner: Owner) -> Iterator[Manifest]:
        """Yield all objects with the label of a query, while they are read."""
        for kind in OWNED:
            for page in pages(self._client, kind.path(owner.namespace), f"{QUERY_LABEL}={owner.name}"):
                for each in page["items"]:
                    yield {**kind.type_meta, **each}

    def _find(self, kind: ResourceKind, metadata: Manifest) -> Manifest | None:
        """Return the object of a name by a list, which needs no right beyond those for the watch."""
        name = {"fieldSelector": f"metadata.name={metadata['name']}"}
        found: list[Manifest] = self._client.request("GET", kind.path(metadata["namespace"]), name)["items"]
        return found[0] if found else None

    def _patch(self, manifest: Manifest, *, dry_run: bool) -> Manifest:
        metadata = manifest["metadata"]
        path = _KINDS[manifest["kind"]].path(metadata["namespace"], metadata["name"])
        query = {"fieldManager": MANAGER, "force": "true"} | _dry(dry_run)
        try:
            return self._client.request("PATCH", path, query, manifest, APPLY)
        except ApiException as error:
            is_unknown = error.status == HTTPStatus.NOT_FOUND and _UNKNOWN_KIND in str(error.body)
            if is_unknown and manifest["kind"] == POD_GROUP:
                raise ObjectRefusedError(_NO_VOLCANO) from None
            raise _refusal(error) from None


def _refusal(error: ApiException) -> Exception:
    """Return the error to raise: one that says what was refused if the object is at fault, else the given one."""
    if error.status == HTTPStatus.FORBIDDEN and _QUOTA in str(error.body):
        return QuotaExceededError(server_message(error))
    if error.status in _FAULTS or _UNTYPED in str(error.body):
        return ObjectRefusedError(server_message(error))
    return error


def _dry(dry_run: bool) -> dict[str, str]:
    return {"dryRun": "All"} if dry_run else {}
