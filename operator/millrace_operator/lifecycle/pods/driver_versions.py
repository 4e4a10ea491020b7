"""A driver's pod in which another version has taken over, as if it had been created for that version. Pure functions.

All that follows a new driver asks its pod: whether the spec is healthy, what to roll back, when it is late. So those
questions have the same answers after a takeover as after a replacement.
"""

from __future__ import annotations

from typing import Any

from millrace_api.model.takeover import RunningVersion

from ...resources.names import Manifest
from ...resources.spec_changes import REVISION
from ..conditions import parse_time


def as_running(pod: Manifest, running: RunningVersion) -> Manifest:
    """Return the pod with the revision that it runs, created when that took over, and ready once that computes.

    The version of its template changes nothing: the pod says all about that one itself. The start of the pod is left
    out, as it says nothing of how long a start takes until the driver is ready.
    """
    if not running.revision or running.time is None:
        return pod
    metadata = pod["metadata"]
    status = {name: value for name, value in pod.get("status", {}).items() if name != "startTime"}
    annotations = {**(metadata.get("annotations") or {}), REVISION: running.revision}
    conditions = [_condition(each, running.computes_since) for each in status.get("conditions", ())]
    return {
        **pod,
        "metadata": metadata | {"annotations": annotations, "creationTimestamp": running.time},
        "status": status | {"conditions": conditions},
    }


def _condition(found: dict[str, Any], since: str | None) -> dict[str, Any]:
    if found["type"] != "Ready" or found["status"] != "True":
        return found
    if since is None:
        return found | {"status": "False"}
    changed = found.get("lastTransitionTime")
    later = changed is None or parse_time(changed) < parse_time(since)
    return found | {"lastTransitionTime": since} if later else found
