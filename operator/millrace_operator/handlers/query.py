"""Events of StreamQueries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..lifecycle.reconcile import Reconciler


def query_changed(reconciler: Reconciler, kind: str | None, body: Mapping[str, Any]) -> None:
    """A query was there at the start (``kind`` is None), was added or changed, or is gone."""
    observations = reconciler.observations
    key = observations.query_gone(body) if kind == "DELETED" else observations.query_seen(body)
    reconciler.queue.add(key)
