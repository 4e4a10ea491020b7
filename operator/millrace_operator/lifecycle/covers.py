"""Whether an observed object has everything that is desired of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubernetes.utils.quantity import parse_quantity

_QUANTITIES = frozenset({"cpu", "memory", "storage", "ephemeral-storage", "sizeLimit"})
"""Fields with several spellings of one value: the API server turns 7168Mi into 7Gi."""


def covers(found: Any, desired: Any, name: str = "") -> bool:
    """Return whether an observed value has everything that is desired; additional fields are ignored.

    Additional fields belong to the API server or to other clients. ``name`` is the field's name. The API server omits
    empty values and normalizes quantities.
    """
    if found == desired:  # compares whole parts of objects at once
        return True
    if found is None and (desired is False or desired in ("", [], {})):
        return True
    if isinstance(desired, Mapping):
        return isinstance(found, Mapping) and all(covers(found.get(part), each, part) for part, each in desired.items())
    if isinstance(desired, list):
        return isinstance(found, list) and len(found) == len(desired) and all(map(covers, found, desired))
    return name in _QUANTITIES and _same_quantity(found, desired)


def _same_quantity(found: Any, desired: Any) -> bool:
    try:
        return bool(parse_quantity(found) == parse_quantity(desired))  # type: ignore[no-untyped-call]
    except (TypeError, ValueError):
        return False
