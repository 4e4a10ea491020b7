"""Handler of StreamQuery events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .canary import is_canary
from .operator import Operator


def query_changed(operator: Operator, kind: str | None, body: Mapping[str, Any]) -> None:
    """Store and queue a query that was listed at the start (``kind`` is None), added, changed or deleted."""
    if is_canary(body):
        operator.canary.seen(body)
    elif operator.owns(body["metadata"]["namespace"], body["metadata"]["name"]):
        observations = operator.reconciler.observations
        key = observations.query_gone(body) if kind == "DELETED" else observations.query_seen(body)
        operator.reconciler.queue.add(key, new=kind == "ADDED")
