"""Why a driver failed, by what its pod shows; and how often and how soon one is started again: pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError

from millrace_api.failures import FailureClass, FailureReport
from millrace_api.model.labels import DRIVER
from millrace_api.model.status import Attempt

from ..resources.names import Manifest
from .conditions import moment, shortened
from .health import created


@dataclass(frozen=True)
class Patience:
    """What a class of failures is worth: ``runs`` that fail in a row, and the seconds between the second and the next.

    The first failure is left to Kubernetes, which starts the container again at once. The pause doubles from one to
    the next. ``runs`` of None are as many as it takes: what failed is not the query's fault, and may pass.
    """

    runs: int | None
    first: float = 15.0
    longest: float = 300.0

    def pause_after(self, failures: int) -> float:
        """Seconds until the next start; 0 leaves it to Kubernetes."""
        return 0.0 if failures < 2 else min(self.first * 2.0 ** min(failures - 2, 30), self.longest)

    def is_over(self, failures: int) -> bool:
        """Whether it is given up."""
        return self.runs is not None and failures >= self.runs


PATIENCE = {
    FailureClass.CONFIG: Patience(2),
    FailureClass.STATE: Patience(2),
    FailureClass.USER_CODE: Patience(4),
    FailureClass.OUT_OF_MEMORY: Patience(6),
    FailureClass.OTHER: Patience(6),
    FailureClass.HUNG: Patience(6),
    FailureClass.SOURCE: Patience(None),
    FailureClass.SINK: Patience(None),
    FailureClass.LOST_NODE: Patience(None, first=1.0, longest=60.0),
    FailureClass.IMAGE: Patience(None),
    FailureClass.SCHEDULING: Patience(None),
}
"""By class. A mistake in the query is not mended by another run, nor is a full broker by giving up."""

STUCK_AFTER = timedelta(seconds=60)
"""Beyond the time it had to end, after which a pod that is still there is told of."""

UNSCHEDULABLE_AFTER = timedelta(minutes=2)
"""For which a pod may wait for a node before that is a failure."""

_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError")
_CONFIG = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
_LOST = ("NodeLost", "Evicted", "Shutdown", "NodeShutdown", "Terminated", "NodeAffinity", "UnexpectedAdmissionError")
_HUNG = 137
"""Of a container that Kubernetes killed since its liveness probe failed; or that somebody killed otherwise."""


def failed_runs(pod: Manifest) -> list[Attempt]:
    """The runs of a driver's pod that failed, as far as it still shows them, oldest first."""
    found = [
        _attempt(ended, state)
        for state in _driver_states(pod)
        for ended in (state.get("lastState", {}).get("terminated"), state.get("state", {}).get("terminated"))
        if ended is not None and ended.get("exitCode", 0) != 0
    ]
    lost = _lost(pod)  # what its node did to it comes before what its container ended with
    return found if lost is None or (found and lost.reason != FailureClass.LOST_NODE) else [lost]


def blocked(pod: Manifest, now: datetime) -> tuple[FailureClass, str] | None:
    """Why a driver's pod does not even begin to run; None where it does, or may.

    That it finds no node counts after a while: where nodes come as they are needed, each pod waits for one.
    """
    gone = pod["metadata"].get("deletionTimestamp")  # which has the pod's grace in it
    if gone is not None and now >= moment(gone) + STUCK_AFTER:
        node = pod.get("spec", {}).get("nodeName", "")
        hint = "when it is surely off, taint it node.kubernetes.io/out-of-service, or delete the pod with --force"
        return FailureClass.LOST_NODE, f"the driver's pod does not end: node {node} does not answer; {hint}"
    for state in _driver_states(pod):
        waiting = state.get("state", {}).get("waiting") or {}
        reason = waiting.get("reason", "")
        said = f"{reason}: {waiting['message']}" if waiting.get("message") else reason
        if reason in _IMAGE:
            return FailureClass.IMAGE, said
        if reason in _CONFIG:
            return FailureClass.CONFIG, said
    for each in pod.get("status", {}).get("conditions", ()):
        lasts = now >= moment(created(pod)) + UNSCHEDULABLE_AFTER
        if lasts and each["type"] == "PodScheduled" and each.get("reason") == "Unschedulable":
            return FailureClass.SCHEDULING, f"the driver cannot be scheduled: {each.get('message', '')}"
    return None


def patience_with(last: Attempt) -> Patience:
    """That of its class; a class of another version is any other failure."""
    known = last.reason in list(FailureClass)
    return PATIENCE[FailureClass(last.reason) if known else FailureClass.OTHER]


def retry_at(last: Attempt, failures: int) -> datetime | None:
    """When a driver that failed so often in a row may be started again; None where Kubernetes does so."""
    pause = patience_with(last).pause_after(failures)
    return moment(last.time) + timedelta(seconds=pause) if pause else None


def _driver_states(pod: Manifest) -> Iterator[Mapping[str, Any]]:
    return (each for each in pod.get("status", {}).get("containerStatuses", ()) if each["name"] == DRIVER)


def _attempt(ended: Mapping[str, Any], state: Mapping[str, Any]) -> Attempt:
    run = ended.get("containerID") or f"{state['name']} {ended.get('startedAt', '')}"
    failure, message = _told(ended)
    return Attempt(time=ended["finishedAt"], run=run, reason=failure.value, message=shortened(message))


def _told(ended: Mapping[str, Any]) -> tuple[FailureClass, str]:
    """The class, and the driver's own words where it had time for them."""
    code, said = ended.get("exitCode"), (ended.get("message") or "").strip()
    if ended.get("reason") == "OOMKilled":
        hint = "give the driver more by spec.driver.memory"
        return FailureClass.OUT_OF_MEMORY, f"the driver used more memory than it may; {hint}"
    try:
        report = FailureReport.model_validate_json(said, by_name=False)
    except ValidationError:
        failure = FailureClass.HUNG if code == _HUNG else FailureClass.OTHER
        return failure, said or f"the driver ended with status {code} and said nothing"
    return report.failure, report.message


def _lost(pod: Manifest) -> Attempt | None:
    """What a pod shows whose node is gone, or has put it out."""
    status = pod.get("status", {})
    if status.get("phase") != "Failed":
        return None
    reason, message = status.get("reason", ""), status.get("message", "")
    disrupted = [each for each in status.get("conditions", ()) if each["type"] == "DisruptionTarget"]
    failure = FailureClass.LOST_NODE if disrupted or reason in _LOST else FailureClass.OTHER
    when = max((each["lastTransitionTime"] for each in status.get("conditions", ())), default=None)
    said = f"{reason}: {message}" if message else reason or "the driver's pod failed"
    return Attempt(time=when or created(pod), run=pod["metadata"]["uid"], reason=failure.value, message=shortened(said))
