"""Changes to the objects of a query, none of which reaches an object that is not the query's.

``kube.object_api`` makes the requests; what they return goes back to ``observation_cache``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ...resources.gangs import POD_GROUP
from ...resources.names import Manifest, Owner
from ..observed_query import ObservedQuery
from ..refusals import NameTakenError, RefusedError
from .as_applied import with_digest


class Objects(Protocol):
    """API for the objects of queries. A dry run stores nothing.

    Each of the first three raises ObjectRefusedError if the object is rejected.
    """

    def create(self, manifest: Manifest, owner: Owner, *, dry_run: bool = False) -> Manifest:
        """Create an object of which none has been observed, and return it; or the one there is, if it is the owner's.

        A PodGroup of the owner's is updated, as no watch reports what it has.

        Raises NameTakenError if there is one that is not the owner's.
        """

    def apply(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Update the object that the manifest's uid names, and return the result."""

    def make_secret(self, owner: Owner, *, dry_run: bool = False) -> str:
        """Make a Secret for driver and executors, and return its name."""

    def drop_secret(self, owner: Owner, name: str) -> None:
        """Delete a Secret of ``make_secret``, if it is there."""

    def drop(self, found: Manifest) -> None:
        """Delete an object that was observed, and no later one of its name, if it is there."""

    def drop_pod_group(self, owner: Owner) -> None:
        """Delete the PodGroup that has the name of a query, if it is there and the query's."""

    def drain(self, namespace: str, stateful_set: str, uid: str) -> Manifest:
        """Scale the StatefulSet of this uid to zero pods and return the result."""

    def objects_of(self, owner: Owner) -> Iterable[Manifest]:
        """Return all objects with the label of a query."""

    def refuses(self, pod: Manifest) -> RefusedError | None:
        """Return why the API server would refuse to create a pod; None if it would not, or does not say."""


def apply(objects: Objects, observed: ObservedQuery, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
    """Create an object of a query, or update the one that was observed and no later one of its name.

    A plan is also pinned to the observed version, so that a newer plan of another operator is not overwritten. All
    other objects are the same whichever operator applies them. A PodGroup is not watched, so the one that was applied
    last may be gone.

    Raises:
        ObjectRefusedError: the API server rejects the object.
        NameTakenError: another object has the name.
    """
    kind, metadata = manifest["kind"], manifest["metadata"]
    found = observed.objects.get((kind, metadata["name"]))
    manifest = with_digest(manifest)
    if found is None or kind == POD_GROUP:
        return objects.create(manifest, observed.owner, dry_run=dry_run)
    if not observed.owner.owns(found):
        raise NameTakenError(kind, metadata["name"])
    pinned = {"uid": found["metadata"]["uid"]}
    if metadata["name"] == observed.owner.plan:
        pinned["resourceVersion"] = found["metadata"].get("resourceVersion")
    return objects.apply(manifest | {"metadata": manifest["metadata"] | pinned}, dry_run=dry_run)
