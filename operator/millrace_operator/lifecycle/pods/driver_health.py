"""Health of a driver as its pod shows it, the failures of its runs, and when a failed driver is started again.

The pods of executors and partitioner replicas show the same, so that these functions take the role of a pod. All
functions are pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError

from millrace_api.model.status import Attempt, FailureClass, FailureReport
from millrace_api.model.streamquery import DRIVER, EXECUTOR, PARTITIONER

from ...resources.names import Manifest
from ...resources.scheduling import is_announced, queue_wait
from ..conditions import format_time, parse_time, shortened

HEALTHY_AFTER = timedelta(seconds=60)
"""Time that a driver must stay ready before its spec counts as healthy."""

HEALTH_DEADLINE = timedelta(minutes=10)
"""Time from the pod's creation within which a replaced driver must be ready; includes image pulls."""


def ready_since(pod: Manifest) -> datetime | None:
    """Return when the pod became ready; None if it is not ready or is being deleted."""
    if "deletionTimestamp" in pod["metadata"]:
        return None
    for each in pod.get("status", {}).get("conditions", ()):
        if each["type"] == "Ready" and each["status"] == "True":
            changed = each.get("lastTransitionTime")
            return parse_time(changed) if changed else created(pod)
    return None


def healthy_from(pod: Manifest | None) -> datetime | None:
    """Return when the driver's spec will count as healthy if the driver stays ready; None if it is not ready."""
    since = None if pod is None else ready_since(pod)
    return None if since is None else since + HEALTHY_AFTER


def started_at(pod: Manifest) -> datetime | None:
    """Return when a driver was started that serves its probes by now, ready or not; None if it does not.

    Between the two, its first batch runs, or waits for executors.
    """
    ready = ready_since(pod)
    if "deletionTimestamp" in pod["metadata"]:
        return None
    for each in states(pod, DRIVER):
        running = each.get("state", {}).get("running")
        if running and (each.get("started") or ready is not None):
            return parse_time(running["startedAt"])
    return ready


def created(pod: Manifest) -> datetime:
    """Return when the pod was created."""
    return parse_time(pod["metadata"].get("creationTimestamp", "1970-01-01T00:00:00Z"))


def turn_of(pod: Manifest) -> datetime | None:
    """Return from when on a pod has to start: its creation, or when it got a node, if a batch scheduler admits it.

    None before that: it may wait for its turn in a queue for hours, or have been admitted and find no node.
    """
    if not is_announced(pod):
        return created(pod)
    for each in pod.get("status", {}).get("conditions", ()):
        if each["type"] == "PodScheduled" and each["status"] == "True":
            changed = each.get("lastTransitionTime")
            return parse_time(changed) if changed else created(pod)
    return created(pod) if pod.get("spec", {}).get("nodeName") else None


def waiting_for(pod: Manifest | None, role: str = DRIVER) -> str:
    """Return why a driver or a replica is not ready, as far as its pod shows."""
    if pod is None:
        return f"the {role}'s pod does not exist yet"
    if "deletionTimestamp" in pod["metadata"]:
        return f"the {role}'s pod is being replaced"
    if (wait := queue_wait(pod)) is not None:
        return f"the {role} {wait}"
    status = pod.get("status", {})
    before = [each for each in status.get("initContainerStatuses", ()) if not _waits_for_others(each)]
    for container in (*before, *status.get("containerStatuses", ())):
        waiting = container.get("state", {}).get("waiting")
        if waiting is not None:
            reason, message = waiting.get("reason", "waiting"), waiting.get("message", "")
            return f"container {container['name']}: {reason}{': ' if message else ''}{message}"
    for each in status.get("conditions", ()):
        if each["type"] == "PodScheduled" and each["status"] == "False":
            return f"the {role} cannot be scheduled: {each.get('message', each.get('reason', ''))}"
    return f"the {role} is starting"


@dataclass(frozen=True)
class RestartPolicy:
    """When a driver is started again after failures in a row, by the class of the last one.

    Kubernetes handles the first failure: it restarts the container at once. After the second one, the operator pauses
    for ``first`` seconds. The pause doubles with each further failure, up to ``longest`` seconds. The driver is given
    up after ``max_failures`` in a row of this class. None means no limit: the query is not at fault, and the cause may
    pass.
    """

    max_failures: int | None
    first: float = 15.0
    longest: float = 300.0

    def pause_after(self, failures: int) -> float:
        """Return the seconds to wait before the next start; 0 leaves the restart to Kubernetes."""
        return 0.0 if failures < 2 else min(self.first * 2.0 ** min(failures - 2, 30), self.longest)

    def gives_up(self, failures: int) -> bool:
        """Return whether the driver is given up after this many failures in a row of one class."""
        return self.max_failures is not None and failures >= self.max_failures


RESTART_POLICIES: Mapping[str, RestartPolicy] = {
    FailureClass.CONFIG: RestartPolicy(2),
    FailureClass.STATE: RestartPolicy(2),
    FailureClass.USER_CODE: RestartPolicy(4),
    FailureClass.OUT_OF_MEMORY: RestartPolicy(6),
    FailureClass.OTHER: RestartPolicy(6),
    FailureClass.HUNG: RestartPolicy(6),
    FailureClass.SOURCE: RestartPolicy(None),
    FailureClass.SOURCE_MISSING: RestartPolicy(None),
    FailureClass.SINK: RestartPolicy(None),
    FailureClass.STORE: RestartPolicy(None),
    FailureClass.CODE: RestartPolicy(None),
    FailureClass.DISK_FULL: RestartPolicy(None),
    FailureClass.LOST_NODE: RestartPolicy(None, first=1.0, longest=60.0),
    FailureClass.IMAGE: RestartPolicy(None),
    FailureClass.SCHEDULING: RestartPolicy(None),
}
"""Restart policy by failure class. A restart does not fix a faulty query; giving up does not fix a full disk."""

STUCK_AFTER = timedelta(seconds=60)
"""Time after a pod's deletion deadline when a pod that still exists is reported as stuck."""

UNSCHEDULABLE_AFTER = timedelta(minutes=2)
"""Time that a pod may stay unschedulable before this counts as a failure."""

IMAGE_REASONS = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError")
"""Why a container waits whose image cannot be pulled."""

CONFIG_REASONS = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
"""Why a container waits that cannot be made."""

_LOST = ("NodeLost", "Evicted", "Shutdown", "NodeShutdown", "Terminated", "NodeAffinity", "UnexpectedAdmissionError")
_MEMORY = {
    DRIVER: "spec.driver.memory",
    EXECUTOR: "spec.executors.memory",
    PARTITIONER: "spec.partitioner.pod.memory",
}
"""Fields with the memory of a pod, by role."""

_NODE_IS_LOST = (
    "nothing else runs in its place until the node is back or removed; once it is certainly off, taint it "
    "node.kubernetes.io/out-of-service, or delete the pod with --force"
)
"""What to do about a pod on a node that is gone: Kubernetes cannot know whether its containers still run."""

_OTHER_ZONE = (
    " A volume of the pod can only be reached from other nodes, such as those of one zone: add a node there, or use a "
    "volume that all zones reach."
)
_SCHEDULING_HINTS = {
    "volume node affinity conflict": _OTHER_ZONE,
    "match PersistentVolume's node affinity": _OTHER_ZONE,
    "unbound immediate PersistentVolumeClaims": " See the events of the claim: no volume has been made for it yet.",
}
"""What to do about some reasons, by words in the scheduler's message; the first are those of earlier versions."""

_KILLED = 137
"""Exit code of a killed container, for example after a failed liveness probe."""

_HEAP_IS_FULL = (3, 52)
"""Exit codes of an executor whose heap is full: of ``-XX:+ExitOnOutOfMemoryError``, and of Spark's own handler."""


def failed_runs(pod: Manifest, role: str = DRIVER) -> list[Attempt]:
    """Return the failed runs that a pod still shows, oldest first."""
    found = [
        _attempt(ended, state)
        for state in states(pod, role)
        for ended in (state.get("lastState", {}).get("terminated"), state.get("state", {}).get("terminated"))
        if ended is not None and ended.get("exitCode", 0) != 0
    ]
    lost = _lost(pod, role)  # a lost node takes precedence over the container's exit code
    return found if lost is None or (found and lost.reason != FailureClass.LOST_NODE) else [lost]


def exceeded_limit(pod: Manifest, run: str, role: str = DRIVER) -> bool:
    """Return whether Kubernetes ended a run, as ``failed_runs`` has it, since its container exceeded its limit."""
    return any(
        ended is not None and ended.get("reason") == "OOMKilled" and _run_of(ended, state) == run
        for state in states(pod, role)
        for ended in (state.get("lastState", {}).get("terminated"), state.get("state", {}).get("terminated"))
    )


def blocked(pod: Manifest, now: datetime, role: str = DRIVER) -> tuple[FailureClass, str] | None:
    """Return why a pod cannot start, or why it does not end; None if neither is the case.

    An unschedulable pod counts only after ``UNSCHEDULABLE_AFTER``: with node autoscaling, every pod waits for a node.
    One that waits for its turn in a queue does not count.
    """
    gone = pod["metadata"].get("deletionTimestamp")  # includes the grace period
    if gone is not None and now >= parse_time(gone) + STUCK_AFTER:
        node = pod.get("spec", {}).get("nodeName", "")
        message = f"the {role}'s pod should have ended by {gone}: node {node} does not respond"
        return FailureClass.LOST_NODE, f"{message}; {_NODE_IS_LOST}"
    before = pod.get("status", {}).get("initContainerStatuses", ())
    for state in (*before, *states(pod, role)):
        waiting = state.get("state", {}).get("waiting") or {}
        reason = waiting.get("reason", "")
        message = f"{reason}: {waiting['message']}" if waiting.get("message") else reason
        message = message if state["name"] == role else f"container {state['name']}: {message}"
        if reason in IMAGE_REASONS:
            return FailureClass.IMAGE, message
        if reason in CONFIG_REASONS:
            return FailureClass.CONFIG, message
    for each in pod.get("status", {}).get("conditions", ()):
        lasts = now >= created(pod) + UNSCHEDULABLE_AFTER
        if each["type"] != "PodScheduled" or each.get("reason") != "Unschedulable":
            continue
        if lasts and queue_wait(pod) is None:
            message = each.get("message", "")
            hint = next((hint for words, hint in _SCHEDULING_HINTS.items() if words in message), "")
            return FailureClass.SCHEDULING, f"the {role} cannot be scheduled: {message}{hint}"
    return None


def restart_policy_of(last: Attempt) -> RestartPolicy:
    """Return the policy of a failure's class; a class unknown to this version counts as ``OTHER``."""
    return RESTART_POLICIES.get(last.reason, RESTART_POLICIES[FailureClass.OTHER])


def retry_at(last: Attempt, failures: int) -> datetime | None:
    """Return when a driver may restart after this many failures in a row; None if Kubernetes restarts it."""
    pause = restart_policy_of(last).pause_after(failures)
    return parse_time(last.time) + timedelta(seconds=pause) if pause else None


def states(pod: Manifest, role: str) -> Iterator[Mapping[str, Any]]:
    """Yield the state of the container that has the name of the pod's role, if it was reported."""
    return (each for each in pod.get("status", {}).get("containerStatuses", ()) if each["name"] == role)


def _waits_for_others(state: Mapping[str, Any]) -> bool:
    """Return whether a container waits for those that start before it, such as native sidecars."""
    waiting = state.get("state", {}).get("waiting") or {}
    return bool(waiting.get("reason") == "PodInitializing")


def _attempt(ended: Mapping[str, Any], state: Mapping[str, Any]) -> Attempt:
    failure, message = _classify(ended, state["name"])
    return Attempt(
        time=ended["finishedAt"], run=_run_of(ended, state), reason=failure.value, message=shortened(message)
    )


def _run_of(ended: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    return ended.get("containerID") or f"{state['name']} {ended.get('startedAt', '')}"


def _classify(ended: Mapping[str, Any], role: str) -> tuple[FailureClass, str]:
    """Return the failure's class and message; the container's own report if it wrote one."""
    code, message = ended.get("exitCode"), (ended.get("message") or "").strip()
    if ended.get("reason") == "OOMKilled":
        return FailureClass.OUT_OF_MEMORY, f"the {role} exceeded its memory limit; raise {_MEMORY[role]}"
    if role == EXECUTOR:
        return _of_executor(code)
    try:
        report = FailureReport.model_validate_json(message, by_name=False)
    except ValidationError:
        failure = FailureClass.HUNG if code == _KILLED else FailureClass.OTHER
        return failure, message or f"the {role} ended with status {code} and without a message"
    return report.failure, report.message


def _of_executor(code: int | None) -> tuple[FailureClass, str]:
    """Return class and message of an executor that ended; it writes no report, and no probe ends it."""
    if code in _HEAP_IS_FULL:
        return FailureClass.OUT_OF_MEMORY, f"the executor's heap is full; raise {_MEMORY[EXECUTOR]}"
    if code == _KILLED:
        return FailureClass.OTHER, f"the executor was killed, status {code}"
    return FailureClass.OTHER, f"the executor ended with status {code}"


def _lost(pod: Manifest, role: str) -> Attempt | None:
    """Return the failure of a pod in phase Failed, such as after an eviction or a node loss; otherwise None."""
    status = pod.get("status", {})
    if status.get("phase") != "Failed":
        return None
    reason, message = status.get("reason", ""), status.get("message", "")
    disrupted = [each for each in status.get("conditions", ()) if each["type"] == "DisruptionTarget"]
    failure = FailureClass.LOST_NODE if disrupted or reason in _LOST else FailureClass.OTHER
    changes = (each["lastTransitionTime"] for each in status.get("conditions", ()))
    time = max(changes, default=format_time(created(pod)))
    text = f"{reason}: {message}" if message else reason or f"the {role}'s pod failed"
    return Attempt(time=time, run=pod["metadata"]["uid"], reason=failure.value, message=shortened(text))
