"""Kubernetes' strategic merge of a pod template into a generated pod, which merges lists by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KEYS: Mapping[str, str] = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "volumes": "name",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "resourceClaims": "name",
    "topologySpreadConstraints": "topologyKey",
}
"""Merged lists and the key field of their entries (``patchMergeKey`` in Kubernetes' API)."""

_WHOLE = frozenset({"volumes", "env"})
"""Lists whose entries are replaced as a whole, because an entry may have only one type or source."""


def merged(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Merge ``patch`` into ``base``: null removes a field, unkeyed lists and other values are replaced.

    Entries of merged lists stay in the order of ``base``; new ones follow.
    """
    result = dict(base)
    for name, value in patch.items():
        held = result.get(name)
        if value is None:
            result.pop(name, None)
        elif isinstance(value, Mapping):
            result[name] = merged(held if isinstance(held, Mapping) else {}, value)
        elif name in _KEYS and isinstance(value, list):
            result[name] = _merged_list(held if isinstance(held, list) else [], value, name)
        else:
            result[name] = value
    return result


def _merged_list(base: list[Any], patch: list[Any], name: str) -> list[Any]:
    key = _KEYS[name]
    result: dict[Any, Any] = {entry[key]: entry for entry in base}
    for entry in patch:
        if not isinstance(entry, Mapping) or key not in entry:
            result["unnamed", len(result)] = entry  # left for the API server to reject
            continue
        held = {} if name in _WHOLE else result.get(entry[key], {})
        result[entry[key]] = merged(held, entry)
    return list(result.values())
