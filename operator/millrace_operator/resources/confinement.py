"""Where the data and the logins of a query may be within a policy: on volumes that the query itself mounts for them.

Driver and executors have more to read than a query's data: the token of an account, the secret of their wires, their
own processes below ``/proc``, and on a claim the checkpoints of other queries. So a path counts only below a mount of
the query's own, of a type that holds data, in both pods. The driver follows links before it compares.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from posixpath import normpath
from typing import Any, NamedTuple

from millrace_api.errors import Problem, quote
from millrace_api.model.externals import ExternalKind, given
from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.checkpoint_overlap import WrittenPlace, overlap, place_parts, written_places
from millrace_api.validation.places import may_be_object, paths

from .checkpoint_volume import checkpoint_place, place_in_volume, spark_pods
from .driver_config import CHECKPOINT, LOCAL, SECRETS
from .names import Manifest
from .patterns import absolute_path
from .spec_values import entries

DATA = f"{CHECKPOINT}/_data"
"""Folder of a checkpoint's claim for data: no query has this name, so it is the checkpoint of none."""

_RESERVED = ("/dev", "/etc/millrace", "/proc", "/run", "/sys", "/var/run", CHECKPOINT, LOCAL)
"""Places of the pod's own. A volume at, above or below one of them holds no data of a query."""

_OPERATORS = re.compile(r"tmp|spark-local-dir-1|query|plan|millrace-auth|(secret|millrace-code)-[0-9]+")
"""Names of volumes that the operator mounts."""

_DATA_VOLUMES = frozenset({"configMap", "csi", "emptyDir", "ephemeral", "persistentVolumeClaim"})
_LOGIN_VOLUMES = _DATA_VOLUMES | {"projected", "secret"}

_QUERY = re.compile(r"[.]|[a-z]([-a-z0-9]*[a-z0-9])?")
"""Top folders of a claim that may be a checkpoint, by the name of its query, or hold all of them."""

_WILDCARD = re.compile(r"[*?\[]")

_HINT = (
    "write a path on one that driver.podTemplate and executors.podTemplate mount in containers driver and executor, "
    f"or, with checkpoint.claimName, below {DATA}"
)
_LOGIN_HINT = (
    "write secretKeyRef, or the path of a file on a Secret that driver.podTemplate and executors.podTemplate mount"
)


class Folders(NamedTuple):
    """The folders that a query may use, as mounted in driver and executors alike: for data, and for files of logins."""

    data: tuple[str, ...]
    logins: tuple[str, ...]


def folders(query: StreamQuery) -> Folders:
    """Return the folders that a query mounts for its data and its logins; its pod templates must be well-formed."""
    pods = [_mounts(*each) for each in spark_pods(query)]
    data = set.intersection(*(set(_holding(mounts, _DATA_VOLUMES)) for mounts in pods))
    logins = set.intersection(*(set(_holding(mounts, _LOGIN_VOLUMES)) for mounts in pods))
    checkpoint, covered = query.spec.checkpoint, any(_is_below(path, DATA) for mounts in pods for path in mounts)
    if (
        checkpoint is not None
        and checkpoint.claim_name is not None
        and not covered
        and checkpoint_place(query) is not None
    ):
        data.add(DATA)
    return Folders(tuple(sorted(data)), tuple(sorted(logins | {SECRETS})))


def path_problems(query: StreamQuery, where: str) -> Iterator[Problem]:
    """Yield the paths of data and logins that are on no volume of the query's own; ``where`` ends each message."""
    data = [(field, path) for field, path in paths(query.spec) if not may_be_object(field, path)]
    logins = list(given(query.spec, "spec", ExternalKind.LOGINS))
    if not data and not logins:
        return
    allowed, beside = folders(query), _beside_checkpoint(query)
    on_claim = query.spec.checkpoint is not None and query.spec.checkpoint.claim_name is not None
    for field, path in data:
        others = on_claim and any(_QUERY.fullmatch(place.split("/")[0]) for place in beside[field])
        if others or not _is_on(path, allowed.data):
            message = f"{quote(path, 200)} is not on a volume that the query mounts for data, {where}"
            yield Problem(message, _HINT, field=field)
    for each in logins:
        if not _is_on(each.value, allowed.logins):
            message = f"{quote(each.value, 200)} is not on a volume that the query mounts for logins, {where}"
            yield Problem(message, _LOGIN_HINT, field=each.field)


def checkpoint_overlaps(query: StreamQuery) -> Iterator[Problem]:
    """Yield the paths that overlap with the query's own checkpoint, also by another mount of its volume."""
    data = list(paths(query.spec))
    checkpoint = checkpoint_place(query) if data else None
    if checkpoint is None:
        return
    beside, own = _beside_checkpoint(query), place_parts(checkpoint[0])
    results = {each.field for each in written_places(query.spec) if each.holds_results}
    for field, path in data:
        written = WrittenPlace(field, path, field in results)
        found = next(filter(None, (overlap(written, place_parts(place), own) for place in beside[field])), None)
        if found is not None:
            yield Problem(found.message, found.hint, field=field)


def _beside_checkpoint(query: StreamQuery) -> dict[str, list[str]]:
    """Return the places of each path in the volume of the checkpoint, as driver and executors see it, by its field.

    The image's working folder may be any, so a relative path has none, and is left to the driver.
    """
    checkpoint, pods = checkpoint_place(query), spark_pods(query)
    return {
        field: [
            place[0]
            for place in (place_in_volume(*pod, _root(_normal(path))) for pod in pods if path.startswith("/"))
            if place is not None and checkpoint is not None and _volume(place[1]) == _volume(checkpoint[1])
        ]
        for field, path in paths(query.spec)
    }


def _volume(source: Manifest) -> Any:
    """Return what identifies a volume, since a claim may also be mounted for reading only."""
    claim = source.get("persistentVolumeClaim")
    return claim.get("claimName") if isinstance(claim, Mapping) else source


def _mounts(pod: Mapping[str, Any], container: str) -> dict[str, frozenset[str]]:
    """Return the types of the volume at each mount path of a container; no type for the operator's own volumes."""
    volumes = {str(each.get("name")): each for _, each in entries(pod, "volumes")}
    return {
        _normal(str(mount.get("mountPath"))): _types(volumes.get(str(mount.get("name")), {}), mount)
        for _, each in entries(pod, "containers")
        if each.get("name") == container
        for _, mount in entries(each, "volumeMounts")
    }


def _types(volume: Mapping[str, Any], mount: Mapping[str, Any]) -> frozenset[str]:
    name = str(volume.get("name", ""))
    if _OPERATORS.fullmatch(name) or mount.get("subPathExpr") or _has_token(volume):
        return frozenset()
    return frozenset(set(volume) - {"name"})


def _has_token(volume: Mapping[str, Any]) -> bool:
    projected = volume.get("projected")
    sources = projected.get("sources") if isinstance(projected, Mapping) else None
    return any("serviceAccountToken" in each for each in sources or () if isinstance(each, Mapping))


def _holding(mounts: Mapping[str, frozenset[str]], wanted: frozenset[str]) -> Iterator[str]:
    """Yield the mount paths of volumes of these types, with none of another type below them."""
    for path in mounts:
        below = [types for other, types in mounts.items() if _is_below(other, path)]
        reserved = any(_is_below(path, each) or _is_below(each, path) for each in _RESERVED)
        if not reserved and all(types and types <= wanted for types in below):
            yield path


def _is_on(path: str, allowed: tuple[str, ...]) -> bool:
    absolute = absolute_path(path)
    return absolute is not None and any(_is_below(_root(absolute), each) for each in allowed)


def _normal(path: str) -> str:
    """Return an absolute path without needless parts, and with one slash at its beginning."""
    return normpath("/" + path.lstrip("/"))


def _root(path: str) -> str:
    """Return the part of a path before its first wildcard: a pattern may match anything below that."""
    parts = path.split("/")
    first = next((index for index, part in enumerate(parts) if _WILDCARD.search(part)), len(parts))
    return "/".join(parts[:first]) or "/"


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
