"""The volume that a query's checkpoint is on: driver and executors have to see the same one there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from posixpath import normpath
from typing import Any

from millrace_api.errors import Problem, quote
from millrace_api.model.streamquery import DRIVER, EXECUTOR, StreamQuery
from millrace_api.validation.places import bucket_and_prefix

from .driver_config import CHECKPOINT
from .names import Manifest, Owner
from .patterns import checkpoint_folder
from .pod_defaults import PodDefaults
from .pods import driver_pod, executor_pod
from .spec_values import entries

_SHARED = ("persistentVolumeClaim", "csi")
"""Types of volumes that pods may share. Every other one of the restricted level is one pod's own, or is read-only."""

_HINT = (
    "write checkpoint: {claimName: NAME}, a PersistentVolumeClaim that driver and executors can mount, "
    "or {uri: s3a://BUCKET/PREFIX} or {uri: abfss://CONTAINER@ACCOUNT.blob.core.windows.net/PREFIX}"
)
_MOUNT_HINT = (
    f"{_HINT}, or mount the same claim above this path in the containers {DRIVER} and {EXECUTOR} of "
    "driver.podTemplate and executors.podTemplate"
)


def checkpoint_problems(query: StreamQuery) -> Iterator[Problem]:
    """Yield what is wrong with the place of the checkpoint; the pod templates must be well-formed."""
    checkpoint = query.spec.checkpoint
    if checkpoint is None:
        yield Problem("a query on a cluster needs a checkpoint", _HINT, field="spec.checkpoint")
    elif in_object_store(query):
        return
    elif checkpoint.uri is not None and not checkpoint.uri.startswith("file:"):
        message = f'a checkpoint at "{checkpoint.uri}" is not supported on a cluster'
        yield Problem(message, _HINT, field="spec.checkpoint.uri")
    elif checkpoint.uri is not None and checkpoint_folder(checkpoint.uri) is None:
        message = f"{quote(checkpoint.uri)} is not a plain absolute path"
        yield Problem(message, "write one such as file:///mnt/checkpoints", field="spec.checkpoint.uri")
    elif checkpoint_volume(query) is None:
        field = "uri" if checkpoint.uri is not None else "claimName"
        value = checkpoint.uri if checkpoint.uri is not None else checkpoint.claim_name
        message = f"the checkpoint {quote(value)} is not on a volume that driver and executors share and may write"
        yield Problem(message, _MOUNT_HINT, field=f"spec.checkpoint.{field}")
    elif checkpoint.from_snapshot is not None and not _sees(query, checkpoint.from_snapshot):
        message = f"the snapshot {quote(checkpoint.from_snapshot)} is not on a volume that the driver mounts"
        hint = f"with claimName, the snapshots of a query are in file://{CHECKPOINT}/QUERY/snapshots"
        yield Problem(message, hint, field="spec.checkpoint.fromSnapshot")


def _sees(query: StreamQuery, snapshot: str) -> bool:
    folder = checkpoint_folder(snapshot)
    return folder is not None and place_in_volume(*spark_pods(query)[0], folder) is not None


def in_object_store(query: StreamQuery) -> bool:
    """Return whether the checkpoint is in an object store, which is on no volume."""
    checkpoint = query.spec.checkpoint
    return checkpoint is not None and bucket_and_prefix(checkpoint.uri or "") is not None


def checkpoint_volume(query: StreamQuery) -> Manifest | None:
    """Return the source of the volume that the checkpoint is on; None if that is not the same one in all Spark pods.

    It is None for a checkpoint in an object store, too.

    A pod template may mount other volumes in the place of those that a query names, so the merged pods count.
    """
    place = checkpoint_place(query)
    return None if place is None else place[1]


def checkpoint_place(query: StreamQuery) -> tuple[str, Manifest] | None:
    """Return the query's own folder in the volume of its checkpoint, and the source of that; None as above."""
    checkpoint = query.spec.checkpoint
    if checkpoint is None or in_object_store(query):
        return None
    folder = checkpoint_folder(checkpoint.uri or f"file://{CHECKPOINT}/{query.name}") or ""
    places = [place_in_volume(*each, folder, writable=True) for each in spark_pods(query)]
    return places[0] if places[0] is not None and places[0] == places[1] else None


def spark_pods(query: StreamQuery) -> list[tuple[Mapping[str, Any], str]]:
    """Return the specs of the pods of driver and executors, with the user's templates, and their containers' names."""
    owner = Owner(query.metadata.namespace or "", query.name, "")
    driver = driver_pod(query, owner, PodDefaults(""), {})["spec"]
    executor = executor_pod(query, owner, PodDefaults(""), {})["spec"]
    return [(driver, DRIVER), (executor, EXECUTOR)]


def place_in_volume(
    pod: Mapping[str, Any], container: str, folder: str, *, writable: bool = False
) -> tuple[str, Manifest] | None:
    """Return the path of a container's folder in its volume, and the source of that.

    None if the volume is not a shared one; with ``writable``, also if the container may not write there.
    """
    mounts = [
        (PurePosixPath(normpath(str(mount.get("mountPath")))), mount)
        for _, each in entries(pod, "containers")
        if each.get("name") == container
        for _, mount in entries(each, "volumeMounts")
    ]
    above = [(path, mount) for path, mount in mounts if PurePosixPath(folder).is_relative_to(path)]
    if not above:
        return None
    path, mount = max(above, key=lambda each: len(each[0].parts))
    volume = next((each for _, each in entries(pod, "volumes") if each.get("name") == mount.get("name")), {})
    source = {kind: volume[kind] for kind in _SHARED if kind in volume}
    if not source or mount.get("subPathExpr"):
        return None
    read_only = bool(mount.get("readOnly")) or any(
        isinstance(each, Mapping) and each.get("readOnly") for each in source.values()
    )
    if writable and read_only:
        return None
    return str(PurePosixPath(str(mount.get("subPath") or "")) / PurePosixPath(folder).relative_to(path)), source
