"""What a query's status should say, from what was seen and found out: pure, and the same for the same input."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from millrace_api.errors import MillraceError
from millrace_api.plan import Plan
from millrace_api.status import Condition, ConditionStatus, ConditionType, DriverStatus, Phase, PlanStatus, Status
from millrace_api.streamquery import State, StreamQuery

from ..resources.names import EXECUTOR, Manifest
from .conditions import ProgressingReason, ReadyReason, condition, merged
from .deploy import plan_for
from .observe import Seen


class _Situation(NamedTuple):
    """Where a query is, and why."""

    phase: Phase
    ready: bool
    reason: ReadyReason
    message: str


def next_status(seen: Seen, query: StreamQuery | MillraceError, missing: Sequence[Manifest], now: datetime) -> Status:
    """The status that the query should have; equal to the one it has where nothing has changed.

    ``missing`` are the objects that are about to be applied.
    """
    before = seen.status
    found = _situation(seen, query)
    holds = ConditionStatus.TRUE if found.ready else ConditionStatus.FALSE
    ready = condition(ConditionType.READY, holds, found.reason, found.message, seen.generation, now)
    changes = {
        "observed_generation": seen.generation,
        "phase": found.phase,
        "conditions": merged(before.conditions, [ready, _progressing(seen, found, missing, now)]),
        "driver": None if seen.driver is None else _driver_status(seen.driver),
    }
    if isinstance(query, StreamQuery):
        changes["plan"] = _plan_status(plan_for(seen, query), before)
        changes["selector"] = ",".join(f"{name}={value}" for name, value in seen.owner.selector(EXECUTOR).items())
    return before.model_copy(update=changes)


_GOING_ON = {
    ReadyReason.INVALID_QUERY: ProgressingReason.INVALID_QUERY,
    ReadyReason.DEPLOYING: ProgressingReason.DEPLOYING,
    ReadyReason.DRAINING: ProgressingReason.DRAINING,
}
_AT_REST = (ProgressingReason.INVALID_QUERY, ProgressingReason.SETTLED)


def _progressing(seen: Seen, found: _Situation, missing: Sequence[Manifest], now: datetime) -> Condition:
    """Whether the query is on its way to what its spec says."""
    reason, message = _GOING_ON.get(found.reason, ProgressingReason.SETTLED), ""
    if missing:
        reason = ProgressingReason.APPLYING
        message = ", ".join(f"{each['kind']} {each['metadata']['name']}" for each in missing)
    holds = ConditionStatus.FALSE if reason in _AT_REST else ConditionStatus.TRUE
    return condition(ConditionType.PROGRESSING, holds, reason, message, seen.generation, now)


def _situation(seen: Seen, query: StreamQuery | MillraceError) -> _Situation:
    """An invalid change tears nothing down: what runs goes on, and the condition says why it is not followed."""
    pod = seen.driver
    if isinstance(query, MillraceError):
        return _Situation(seen.status.phase or Phase.PENDING, False, ReadyReason.INVALID_QUERY, str(query))
    if query.spec.state is State.SUSPENDED:
        if pod is None:
            return _Situation(Phase.SUSPENDED, False, ReadyReason.SUSPENDED, "spec.state is Suspended")
        return _Situation(Phase.DRAINING, False, ReadyReason.DRAINING, "the driver ends after its running batch")
    if pod is not None and _is_ready(pod):
        return _Situation(Phase.RUNNING, True, ReadyReason.RUNNING, "the driver is ready")
    return _Situation(Phase.DEPLOYING, False, ReadyReason.DEPLOYING, _waiting_for(pod))


def _is_ready(pod: Manifest) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _waiting_for(pod: Manifest | None) -> str:
    """Why a driver is not ready, as far as its pod says it."""
    if pod is None:
        return "the driver's pod is not there yet"
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


def _driver_status(pod: Manifest) -> DriverStatus:
    status = pod.get("status", {})
    restarts = sum(container.get("restartCount", 0) for container in status.get("containerStatuses", ()))
    return DriverStatus(pod=pod["metadata"]["name"], start_time=status.get("startTime"), restarts=restarts)


def _plan_status(plan: Plan, before: Status) -> PlanStatus:
    return PlanStatus(
        epoch=plan.epoch,
        algorithm=plan.algorithm,
        replicas=plan.replicas,
        parallelism=plan.parallelism,
        executors=plan.executors,
        shape=f"{plan.executors}/{plan.parallelism}/{plan.replicas}",
        applied_epoch=None if before.plan is None else before.plan.applied_epoch,
    )
