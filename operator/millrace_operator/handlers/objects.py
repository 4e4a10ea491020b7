"""Events of what belongs to queries: found by their label."""

from __future__ import annotations

from ..lifecycle.reconcile import Reconciler
from ..resources.names import Manifest


def object_changed(reconciler: Reconciler, kind: str | None, body: Manifest) -> None:
    """An object was there at the start (``kind`` is None), was added or changed, or is gone."""
    observations = reconciler.observations
    key = observations.object_gone(body) if kind == "DELETED" else observations.object_seen(body)
    reconciler.queue.add(key)
