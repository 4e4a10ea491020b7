"""Desired status of a query, computed from observations; pure and deterministic functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from millrace_api.errors import MillraceError
from millrace_api.failures import FailureClass
from millrace_api.model.applied import Applied
from millrace_api.model.deployment import Algorithm
from millrace_api.model.labels import EXECUTOR
from millrace_api.model.plan import Plan
from millrace_api.model.status import (
    Condition,
    ConditionType,
    DriverStatus,
    Phase,
    PlanStatus,
    Status,
)
from millrace_api.model.streamquery import Spec

from ..resources.names import Manifest
from .conditions import DegradedReason, ProgressingReason, ReadyReason, condition, holds, merged, stamp
from .driver_health import blocked, ready_since, waiting_for
from .observe import ObservedQuery
from .scaling_status import Scaled
from .target import NOT_MADE, DriverTarget, is_unmade


@dataclass(frozen=True)
class StepReport:
    """Facts about a step that the observations do not show.

    Attributes:
        progress: reason and message of Progressing; None derives both from the phase.
        draining: whether the driver is about to end.
        applying: objects about to be applied.
        plan: plan to follow from now on; None keeps the reported one.
        scaled: the last scaling result; None keeps the reported one.
    """

    progress: tuple[ProgressingReason, str] | None = None
    draining: bool = False
    applying: Sequence[Manifest] = ()
    plan: Plan | None = None
    scaled: Scaled | None = None


class _Found(NamedTuple):
    """Phase of a query with reason and message, and its progress with a message."""

    phase: Phase
    reason: ReadyReason
    message: str
    progress: ProgressingReason
    about: str = ""


_AT_REST = (
    ProgressingReason.INVALID_QUERY,
    ProgressingReason.FAILED,
    ProgressingReason.PAUSED,
    ProgressingReason.SETTLED,
)


def situation(seen: ObservedQuery, target: DriverTarget, report: StepReport, now: datetime) -> Status:
    """Return the status of a valid query; equal to the current one if nothing has changed."""
    found = _found(seen, target, report, now)
    if report.applying:
        about = ", ".join(f"{each['kind']} {each['metadata']['name']}" for each in report.applying)
        found = found._replace(progress=ProgressingReason.APPLYING, about=about)
    elif report.progress is not None:
        found = found._replace(progress=report.progress[0], about=report.progress[1])
    before, tally = seen.status, target.tally
    retry = tally.retry_time(now)
    changes = {
        **_common(seen, found, now, _degraded(seen, target, now)),
        "selector": ",".join(f"{name}={value}" for name, value in seen.owner.selector(EXECUTOR).items()),
        "revision": target.revision,
        "revision_time": before.revision_time if before.revision == target.revision else stamp(now),
        "attempts": tally.attempts,
        "failures": tally.failures,
        "retry_time": None if retry is None else stamp(retry),
        "rejected": target.rejected,
    }
    if report.plan is not None:
        changes["plan"] = _plan_status(report.plan, seen.applied, target.query.spec)
    if found.phase is not Phase.RUNNING:
        changes["load"] = None
    return _with_scaling(before.model_copy(update=changes), report.scaled if found.phase is Phase.RUNNING else None)


def _with_scaling(status: Status, scaled: Scaled | None) -> Status:
    """Return the status with the scaling result added."""
    if scaled is None:
        return status
    changes: dict[str, object] = {"load": scaled.load, "last_scaling": scaled.account or status.last_scaling}
    said = {each.type for each in scaled.conditions}
    kept = [each for each in status.conditions if each.type not in said]
    changes["conditions"] = merged(status.conditions, [*kept, *scaled.conditions])
    return status.model_copy(update=changes)


def invalid(seen: ObservedQuery, error: MillraceError, now: datetime, before: Status | None = None) -> Status:
    """Return the status of an invalid query: a running driver keeps running, and the conditions explain the error.

    ``before`` is the status to update; the default is the observed one.
    """
    runs = seen.driver is not None and ready_since(seen.driver) is not None
    phase = Phase.RUNNING if runs else (before or seen.status).phase or Phase.PENDING
    found = _Found(phase, ReadyReason.INVALID_QUERY, str(error), ProgressingReason.INVALID_QUERY)
    return (before or seen.status).model_copy(update=_common(seen, found, now))


def healthy_lost(seen: ObservedQuery, now: datetime) -> Status:
    """Return the status of a query whose driver runs the last healthy spec after its saved copy was lost."""
    said = "the last healthy spec, which runs, is lost: correct the spec, or change spec.restartNonce to try it again"
    runs = seen.driver is not None and ready_since(seen.driver) is not None
    if runs:
        found = _Found(Phase.RUNNING, ReadyReason.RUNNING, "the driver is ready", ProgressingReason.FAILED, said)
    else:
        waiting = waiting_for(seen.driver)
        found = _Found(Phase.DEPLOYING, ReadyReason.DEPLOYING, waiting, ProgressingReason.FAILED, said)
    return seen.status.model_copy(update=_common(seen, found, now))


def deleting(seen: ObservedQuery, until: datetime, now: datetime) -> Status:
    """Return the status of a deleted query that waits for its driver to end."""
    said = f"the query is deleted once its driver has ended, at {stamp(until)} at the latest"
    found = _Found(Phase.DRAINING, ReadyReason.DELETING, said, ProgressingReason.DELETING)
    return seen.status.model_copy(update=_common(seen, found, now))


def _common(seen: ObservedQuery, found: _Found, now: datetime, degraded: Condition | None = None) -> dict[str, object]:
    progress, ready = found.progress, found.reason is ReadyReason.RUNNING
    current = [
        condition(ConditionType.READY, holds(ready), found.reason, found.message, seen.generation, now),
        condition(
            ConditionType.PROGRESSING, holds(progress not in _AT_REST), progress, found.about, seen.generation, now
        ),
    ]
    renewed = {each.type for each in current} | ({degraded.type} if degraded is not None else set())
    kept = [each for each in seen.status.conditions if each.type not in renewed]
    return {
        "observed_generation": seen.generation,
        "phase": found.phase,
        "conditions": merged(seen.status.conditions, [*kept, *current, *([degraded] if degraded is not None else [])]),
        "driver": None if seen.driver is None else _driver_status(seen.driver, seen.revision),
    }


def _found(seen: ObservedQuery, target: DriverTarget, report: StepReport, now: datetime) -> _Found:
    pod, last = seen.driver, target.tally.last
    if last is not None and target.running:
        retry = target.tally.retry_time(now)
        if target.tally.given_up:
            said = f"given up after {target.tally.failures} runs; change the spec, or spec.restartNonce, to try again"
            return _Found(Phase.FAILED, ReadyReason.FAILED, last.message, ProgressingReason.FAILED, said)
        if retry is not None:
            said = f"run {target.tally.failures} in a row has failed; the next one begins at {stamp(retry)}"
            return _Found(Phase.FAILED, ReadyReason.BACKING_OFF, last.message, ProgressingReason.BACKING_OFF, said)
    if not target.running:
        if seen.is_drained:
            settled = ProgressingReason.SETTLED
            return _Found(Phase.SUSPENDED, ReadyReason.SUSPENDED, "spec.state is Suspended", settled)
        return _draining()
    if report.draining:
        return _draining()
    if pod is not None and ready_since(pod) is not None:
        return _Found(Phase.RUNNING, ReadyReason.RUNNING, "the driver is ready", ProgressingReason.SETTLED)
    return _Found(Phase.DEPLOYING, ReadyReason.DEPLOYING, waiting_for(pod), ProgressingReason.DEPLOYING)


def _draining() -> _Found:
    said = "the driver ends after its running batch"
    return _Found(Phase.DRAINING, ReadyReason.DRAINING, said, ProgressingReason.DRAINING)


def _degraded(seen: ObservedQuery, target: DriverTarget, now: datetime) -> Condition:
    """Return the Degraded condition."""
    reason: str = DegradedReason.HEALTHY
    message, last = "", target.tally.last
    stuck = None if seen.driver is None else blocked(seen.driver, now)
    if target.rejected is not None:
        reason, given_up = DegradedReason.ROLLED_BACK, target.rejected
        message = f"generation {given_up.generation} did not become healthy, and the last healthy spec runs again: "
        message += given_up.message
    elif last is not None:
        reason, message = last.reason, last.message
    elif stuck is not None:
        reason, message = stuck
    elif is_unmade(seen, target, now):
        reason, message = FailureClass.OTHER, NOT_MADE
    status = holds(reason is not DegradedReason.HEALTHY)
    return condition(ConditionType.DEGRADED, status, reason, message, seen.generation, now)


def _driver_status(pod: Manifest, revision: str | None) -> DriverStatus:
    status = pod.get("status", {})
    restarts = sum(container.get("restartCount", 0) for container in status.get("containerStatuses", ()))
    name = pod["metadata"]["name"]
    return DriverStatus(pod=name, start_time=status.get("startTime"), restarts=restarts, revision=revision or None)


def _plan_status(plan: Plan, applied: Applied | None, spec: Spec) -> PlanStatus:
    """Return the plan's status; with ``auto``, it shows the algorithm that the job has chosen."""
    chosen = applied is not None and spec.partitioner.algorithm is Algorithm.AUTO
    return PlanStatus(
        epoch=plan.epoch,
        algorithm=applied.algorithm if applied is not None and chosen else plan.algorithm,
        replicas=plan.replicas,
        parallelism=plan.parallelism,
        executors=plan.executors,
        shape=f"{plan.executors}/{plan.parallelism}/{plan.replicas}",
        applied_epoch=None if applied is None else applied.epoch,
    )
