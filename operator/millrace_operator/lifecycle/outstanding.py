"""Comparison of a query's desired objects with the observed ones; pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kubernetes.utils.quantity import parse_quantity

from ..resources.names import Manifest
from .observe import ObservedQuery

_QUANTITIES = frozenset({"cpu", "memory", "storage", "ephemeral-storage", "sizeLimit"})
"""Fields with several spellings of one value: the API server turns 7168Mi into 7Gi."""


def missing_of(seen: ObservedQuery, wanted: Iterable[Manifest]) -> list[Manifest]:
    """Return the desired objects that are missing or differ, in the order in which to apply them."""
    return [each for each in wanted if not covers(seen.objects.get((each["kind"], each["metadata"]["name"])), each)]


def covers(found: Any, wanted: Any, name: str = "") -> bool:
    """Return whether an observed value has everything that is wanted; additional fields are ignored.

    Additional fields belong to the API server or to other clients. ``name`` is the field's name. The API server omits
    empty values and normalizes quantities.
    """
    if found is None and (wanted is False or wanted in ("", [], {})):
        return True
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(covers(found.get(part), each, part) for part, each in wanted.items())
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(covers, found, wanted))
    return bool(found == wanted) or (name in _QUANTITIES and _same_quantity(found, wanted))


def _same_quantity(found: Any, wanted: Any) -> bool:
    try:
        return bool(parse_quantity(found) == parse_quantity(wanted))  # type: ignore[no-untyped-call]
    except (TypeError, ValueError):
        return False
