"""An object as the operator keeps it: see ``KeptObject``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from millrace_api.model.status import Phase
from millrace_api.model.streamquery import KIND

from ...resources.names import Manifest
from ..canary import is_canary
from .as_applied import applied_entries
from .object_sizes import BYTES_OF_VALUE, OUR_LABELS, TOO_LARGE, TOO_MANY_VALUES, values_in

_IDENTIFYING = frozenset(
    {
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
    }
)
_NOT_APPLIED = (KIND, "Pod")
"""Kinds of objects that the operator does not apply, or not in order to compare them."""

_LISTED = 1 << 10
"""Bytes of JSON up to which a list in the metadata counts as identifying, too."""

_SURELY_FEW = 1_000
"""Commas and brackets up to which each counts as a value, even in a text: for the budget, it is not worth a look."""


class KeptObject:
    """An object as JSON, which takes a tenth of the memory that it takes decoded, and what is often asked for.

    Args:
        body: the object; of its managed fields, which can be as large as the rest, those that the operator applied.
    """

    __slots__ = ("_is_reduced", "_json", "_size", "generation", "is_canary", "is_cut", "phase", "uid", "version")

    def __init__(self, body: Mapping[str, Any]) -> None:
        metadata = {name: value for name, value in body["metadata"].items() if name != "managedFields"}
        if body.get("kind") not in _NOT_APPLIED and (entries := body["metadata"].get("managedFields")):
            metadata["managedFields"] = applied_entries(entries)
        self._json = msgspec.json.encode({**body, "metadata": metadata})
        self._size = max(len(self._json), BYTES_OF_VALUE * values_in(self._json, _SURELY_FEW))
        self.uid: str = metadata["uid"]
        self.version = version_in(metadata)
        self.generation: int = metadata.get("generation") or 0
        self.phase: str = (body.get("status") or {}).get("phase", Phase.PENDING)
        self.is_canary = is_canary(body)
        self.is_cut = TOO_LARGE in body or TOO_MANY_VALUES in body
        self._is_reduced = False

    def __len__(self) -> int:
        """Return the number of bytes that it counts: those of its JSON, or more if it has many short values."""
        return self._size

    def body(self) -> Manifest:
        """Return the object."""
        found: Manifest = msgspec.json.decode(self._json)
        return found

    def reduced(self) -> KeptObject:
        """Return the object without all but what identifies it, and a query's status."""
        body = self.body()
        metadata = {name: value for name, value in body["metadata"].items() if name in _IDENTIFYING}
        labels = body["metadata"].get("labels") or {}
        metadata["labels"] = {name: value for name, value in labels.items() if name in OUR_LABELS}
        for name in ("finalizers", "ownerReferences"):
            if len(msgspec.json.encode(body["metadata"].get(name))) <= _LISTED:
                metadata |= {name: body["metadata"][name]} if name in body["metadata"] else {}
        names = ["apiVersion", "kind", TOO_LARGE, TOO_MANY_VALUES]
        if body.get("kind") == KIND:
            names.append("status")
        found = KeptObject({name: body[name] for name in names if name in body} | {"metadata": metadata})
        found._is_reduced = True
        return found

    def is_older_than(self, other: KeptObject) -> bool:
        """Compare resource versions, which are increasing numbers (guaranteed from Kubernetes 1.35 on)."""
        return self.version is not None and other.version is not None and self.version < other.version

    def is_version(self, metadata: Mapping[str, Any]) -> bool:
        """Return whether this is all of the version of the object that has these metadata."""
        if self.version is None or self._is_reduced:
            return False
        return (self.uid, self.version) == (metadata["uid"], version_in(metadata))


def version_in(metadata: Mapping[str, Any]) -> int | None:
    """Return the resource version in an object's metadata; None if it is no number."""
    version = str(metadata.get("resourceVersion", ""))
    return int(version) if version.isdecimal() else None
