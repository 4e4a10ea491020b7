"""The canary as a query: its step writes a status that answers the last touch, and deploys nothing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from millrace_api.crd import GROUP
from millrace_api.model.status import ConditionType, Phase, Status
from millrace_api.model.streamquery import CANARY_LABEL

from .conditions import ReadyReason, condition, merged
from .observed_query import ObservedQuery

TOUCHED = f"{GROUP}/touched"
"""Annotation with the time of the last touch."""


def is_canary(body: Mapping[str, Any]) -> bool:
    """Return whether a query is a canary, which is never deployed."""
    return CANARY_LABEL in body["metadata"].get("labels", {})


def touch_of(body: Mapping[str, Any]) -> str | None:
    """Return the stamp of a canary's last touch; None before the first."""
    stamp = (body["metadata"].get("annotations") or {}).get(TOUCHED)
    return None if stamp is None else str(stamp)


def canary_status(observed: ObservedQuery, now: datetime) -> Status:
    """Return the status that answers the last touch of a canary."""
    touch, generation = touch_of(observed.body), observed.generation
    message = f"a worker has seen the touch of {touch}"
    ready = condition(ConditionType.READY, False, ReadyReason.SUSPENDED, message, generation, now)
    conditions = merged(observed.status.conditions, (ready,))
    changes = {"observed_generation": generation, "phase": Phase.SUSPENDED, "conditions": conditions}
    return observed.status.model_copy(update=changes | {"answered_touch": touch})


def answered_touch(body: Mapping[str, Any]) -> str | None:
    """Return the stamp of the touch that a canary's status answers; None before the first answer."""
    stamp = (body.get("status") or {}).get("answeredTouch")
    return None if stamp is None else str(stamp)
