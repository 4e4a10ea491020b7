"""Events of what belongs to queries: found by their label. Nothing is kept of what belongs to another shard's."""

from __future__ import annotations

from ..resources.names import QUERY_LABEL, Manifest
from .operator import Operator


def object_known(operator: Operator, body: Manifest) -> None:
    """An object is there; what belongs to its query may not be known yet."""
    if _is_ours(operator, body):
        operator.reconciler.observations.object_seen(body)


def object_changed(operator: Operator, kind: str | None, body: Manifest) -> None:
    """An object was there at the start (``kind`` is None), was added or changed, or is gone."""
    if _is_ours(operator, body):
        observations = operator.reconciler.observations
        key = observations.object_gone(body) if kind == "DELETED" else observations.object_seen(body)
        operator.reconciler.queue.add(key)


def _is_ours(operator: Operator, body: Manifest) -> bool:
    metadata = body["metadata"]
    return operator.owns(metadata["namespace"], metadata["labels"][QUERY_LABEL])
