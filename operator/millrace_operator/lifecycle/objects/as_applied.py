"""Whether an object is what admission has made of the manifest that was last applied.

Mutating webhooks and policies change what the operator applies, within its own request: they mirror an image, or add a
sidecar, a toleration or a variable. Such an object never has everything that is desired, and applying the manifest
again changes nothing. A change that another client makes afterwards has to be restored, though. The API server knows
the difference: a field that another client changes or removes is no longer in the operator's entry of
``managedFields``, and one that admission changes still is. An annotation has a hash of the manifest that the entry
belongs to.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from kubernetes.utils.quantity import parse_quantity

from ...resources.names import MANAGER, Manifest

APPLIED = "millrace.io/applied"
"""Annotation of an object: ``_digest`` of the manifest that the operator has applied last."""

_CONFINING = frozenset({"NetworkPolicy", "Role", "RoleBinding"})
"""Kinds of objects that limit a query, and have to be as desired: anyone may apply under the operator's name."""

_LEAF: Mapping[str, Any] = {}
"""Node of ``fieldsV1`` for a field that is owned as a whole, and all below it."""

_QUANTITIES = frozenset({"cpu", "memory", "storage", "ephemeral-storage", "sizeLimit"})
"""Fields with several spellings of one value: the API server turns 7168Mi into 7Gi."""


def with_digest(manifest: Manifest) -> Manifest:
    """Return a manifest with the annotation ``APPLIED``."""
    metadata = manifest["metadata"]
    annotations = (metadata.get("annotations") or {}) | {APPLIED: _digest(manifest)}
    return manifest | {"metadata": metadata | {"annotations": annotations}}


def is_as_applied(found: Manifest | None, desired: Manifest) -> bool:
    """Return whether an object has what is desired, or what admission has made of exactly this when it was applied."""
    if has_all_of(found, desired):
        return True
    if found is None or desired["kind"] in _CONFINING:
        return False
    if (found["metadata"].get("annotations") or {}).get(APPLIED) != _digest(desired):
        return False
    entries = applied_entries(found["metadata"].get("managedFields") or ())
    return _is_untouched(found, desired, entries[0].get("fieldsV1") if entries else None)


def has_all_of(found: Any, desired: Any, name: str = "") -> bool:
    """Return whether an observed value has everything that is desired; additional fields are ignored.

    Additional fields belong to the API server or to other clients. ``name`` is the field's name. The API server omits
    empty values and normalizes quantities.
    """
    if found == desired:  # compares whole parts of objects at once
        return True
    if found is None and (desired is False or desired in ("", [], {})):
        return True
    if isinstance(desired, Mapping):
        return isinstance(found, Mapping) and all(
            has_all_of(found.get(part), each, part) for part, each in desired.items()
        )
    if isinstance(desired, list):
        return isinstance(found, list) and len(found) == len(desired) and all(map(has_all_of, found, desired))
    return name in _QUANTITIES and _same_quantity(found, desired)


def applied_entries(entries: Iterable[Manifest]) -> list[Manifest]:
    """Return the entry of ``managedFields`` with the fields that the operator owns by its last apply, if any."""
    ours = (MANAGER, "Apply", None)
    return [each for each in entries if (each.get("manager"), each.get("operation"), each.get("subresource")) == ours]


def _digest(manifest: Manifest) -> str:
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _is_untouched(found: Any, desired: Any, owned: Mapping[str, Any] | None) -> bool:
    """Return whether each desired value is there, or differs in owned fields; ``owned`` is the value's node."""
    if owned is None or owned == _LEAF:
        return owned is not None or has_all_of(found, desired)
    if isinstance(desired, Mapping):
        parts = found if isinstance(found, Mapping) else {}
        return all(
            has_all_of(parts.get(name), each, name) or _is_untouched(parts.get(name), each, owned.get(f"f:{name}"))
            for name, each in desired.items()
        )
    if isinstance(desired, list):
        entries = found if isinstance(found, list) else []
        return all(_is_untouched_entry(entries, each, owned) for each in desired)
    return True


def _is_untouched_entry(entries: list[Any], desired: Any, owned: Mapping[str, Any]) -> bool:
    """Return the same of an entry of a list whose entries have keys, by which they are found in any order."""
    for node, below in owned.items():
        if node.startswith("k:"):
            keys = {name: value for name, value in _keys_in(node).items() if name in desired}
            if keys and _has(desired, keys):
                return _is_untouched(next((each for each in entries if _has(each, keys)), None), desired, below)
    return any(has_all_of(each, desired) for each in entries)


def _keys_in(node: str) -> Mapping[str, Any]:
    """Return the keys of a list's entry that its node names; none if others have nested them to any depth."""
    try:
        return dict(json.loads(node[2:]))
    except RecursionError:
        return {}


def _has(entry: Any, keys: Mapping[str, Any]) -> bool:
    """Return whether an entry has these keys; others are defaults of the API server."""
    return isinstance(entry, Mapping) and all(entry.get(name) == value for name, value in keys.items())


def _same_quantity(found: Any, desired: Any) -> bool:
    try:
        return bool(parse_quantity(found) == parse_quantity(desired))  # type: ignore[no-untyped-call]
    except (TypeError, ValueError):
        return False
