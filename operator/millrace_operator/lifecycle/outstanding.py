"""What is missing of the objects that a query shall have: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kubernetes.utils.quantity import parse_quantity

from ..resources.names import Manifest
from .observe import ObservedQuery

_QUANTITIES = frozenset({"cpu", "memory", "storage", "ephemeral-storage", "sizeLimit"})
"""What is written in more than one way: the API server makes 7Gi of 7168Mi."""


def missing_of(seen: ObservedQuery, wanted: Iterable[Manifest]) -> list[Manifest]:
    """Objects that are not there, or are not as they shall be; in the order in which to apply them."""
    return [each for each in wanted if not covers(seen.objects.get((each["kind"], each["metadata"]["name"])), each)]


def covers(found: Any, wanted: Any, name: str = "") -> bool:
    """Whether all that is wanted is found; what else is there is the API server's, or somebody else's.

    ``name`` is that of the field. The API server leaves out what says nothing, and writes quantities in its own way.
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
