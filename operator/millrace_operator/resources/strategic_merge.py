"""Kubernetes' strategic merge of a pod template into a generated pod: lists of named things are merged by name."""

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
"""Lists that are merged, and the field that tells their entries apart (``patchMergeKey`` in Kubernetes' API)."""

_WHOLE = frozenset({"volumes", "env"})
"""Lists whose entries are replaced as a whole: of their kinds or sources an entry may have one only."""


def merged(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with ``patch`` in it: what is null in the patch is taken away, other lists and values are replaced.

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
            result["unnamed", len(result)] = entry  # the API server says what is wrong with it
            continue
        held = {} if name in _WHOLE else result.get(entry[key], {})
        result[entry[key]] = merged(held, entry)
    return list(result.values())
