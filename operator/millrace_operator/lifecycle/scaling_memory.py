"""What scaling keeps on the cluster: the last decision in full, and what it has learned, for a restarted operator."""

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
"""Entries of the ConfigMap; ``millrace explain`` shows the first."""

log = logging.getLogger(__name__)


def memory(owner: Owner, decision: Decision, scaler: Scaler) -> Manifest:
    """The ConfigMap with both."""
    data = {DECISION: to_json(to_document(decision)), LEARNED: to_json(scaler.save())}
    return owner.manifest("v1", "ConfigMap", owner.scaling, {"data": data})


def recall(scaler: Scaler, seen: ObservedQuery) -> bool:
    """Let a new scaler go on with what an earlier one kept, if that is there and can be read.

    Returns whether the scaler can be used: what another version has kept may have left it half filled.
    """
    try:
        text = seen.memory["data"][LEARNED]
    except (KeyError, TypeError):
        return True
    try:
        scaler.restore(json.loads(text))
        return True
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        log.info("what scaling had learned cannot be read, and is learned anew: %s", error)
        return False


def to_document(decision: Decision) -> dict[str, Any]:
    """A decision in the types of JSON, with all that it rests on."""
    return dict(json.loads(json.dumps(asdict(decision), default=sorted)))
