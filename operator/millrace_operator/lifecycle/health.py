"""Health of a driver, derived from its pod: readiness, since when, and what it waits for."""

from __future__ import annotations

from datetime import datetime, timedelta

from ..resources.names import Manifest
from .conditions import moment

HEALTHY_AFTER = timedelta(seconds=60)
"""Time that a driver must stay ready before its spec counts as healthy."""

HEALTH_DEADLINE = timedelta(minutes=10)
"""Time from the pod's creation within which a replaced driver must be ready; includes image pulls."""


def ready_since(pod: Manifest) -> datetime | None:
    """Return when the driver became ready; None if it is not ready or is being deleted."""
    if "deletionTimestamp" in pod["metadata"]:
        return None
    for each in pod.get("status", {}).get("conditions", ()):
        if each["type"] == "Ready" and each["status"] == "True":
            return moment(each.get("lastTransitionTime") or created(pod))
    return None


def created(pod: Manifest) -> str:
    """Return the pod's creation timestamp."""
    return str(pod["metadata"].get("creationTimestamp", "1970-01-01T00:00:00Z"))


def waiting_for(pod: Manifest | None) -> str:
    """Return why a driver is not ready, as far as its pod shows."""
    if pod is None:
        return "the driver's pod is not there yet"
    if "deletionTimestamp" in pod["metadata"]:
        return "the driver's pod is being replaced"
    status = pod.get("status", {})
    for container in status.get("containerStatuses", ()):
        waiting = container.get("state", {}).get("waiting")
        if waiting is not None:
            reason, message = waiting.get("reason", "waiting"), waiting.get("message", "")
            return f"container {container['name']}: {reason}{': ' if message else ''}{message}"
    for each in status.get("conditions", ()):
        if each["type"] == "PodScheduled" and each["status"] == "False":
            return f"the driver cannot be scheduled: {each.get('message', each.get('reason', ''))}"
    return "the driver is starting"
