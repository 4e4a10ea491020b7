"""Scaling state saved on the cluster for a restarted operator: the full last decision and the learned model."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from typing import Any

from ..resources.names import Manifest, Owner
from ..resources.texts import to_json
from ..scaling.decision.decide import Scaler
from ..scaling.decision.decision import Decision
from .observe import ObservedQuery

DECISION, LEARNED = "decision.json", "learned.json"
"""Keys of the ConfigMap; ``millrace explain`` shows the first entry."""

log = logging.getLogger(__name__)


def memory(owner: Owner, decision: Decision, scaler: Scaler) -> Manifest:
    """Return the ConfigMap with the decision and the learned state."""
    data = {DECISION: to_json(to_document(decision)), LEARNED: to_json(scaler.save())}
    return owner.manifest("v1", "ConfigMap", owner.scaling, {"data": data})


def recall(scaler: Scaler, seen: ObservedQuery) -> bool:
    """Restore a new scaler from saved state, if there is any.

    Returns whether the scaler can be used; unreadable state, such as another version's, may leave it half restored.
    """
    try:
        text = seen.memory["data"][LEARNED]
    except (KeyError, TypeError):
        return True
    try:
        scaler.restore(json.loads(text))
        return True
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        log.info("what scaling had learned cannot be read and is discarded: %s", error)
        return False


def to_document(decision: Decision) -> dict[str, Any]:
    """Convert a decision with all its inputs to JSON types."""
    return dict(json.loads(json.dumps(asdict(decision), default=sorted)))
