"""What is missing of the objects that a query shall have: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..resources.names import Manifest
from .observe import Seen


def missing_of(seen: Seen, wanted: Iterable[Manifest]) -> list[Manifest]:
    """Objects that are not there, or are not as they shall be; in the order in which to apply them."""
    return [each for each in wanted if not covers(seen.objects.get((each["kind"], each["metadata"]["name"])), each)]


def covers(found: Any, wanted: Any) -> bool:
    """Whether all that is wanted is found; what else is there is the API server's, or somebody else's."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(covers(found.get(name), value) for name, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(covers, found, wanted))
    return bool(found == wanted)
