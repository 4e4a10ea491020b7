"""Desired status of a query, computed from observations; pure and deterministic functions.

It is a part of a ``step.Step``, which ``reconcile`` takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from millrace_api.errors import MillraceError
from millrace_api.model.deployment import Algorithm
from millrace_api.model.plan import Applied, Plan
from millrace_api.model.status import (
    Attempt,
    Condition,
    ConditionType,
    ConnectionStatus,
    ConnectionUpdate,
    DriverStatus,
    FailureClass,
    MemoryStatus,
    Phase,
    PlanStatus,
    Status,
    UpgradeStatus,
)
from millrace_api.model.streamquery import DRIVER, EXECUTOR, Annotation, Spec
from millrace_api.validation.connections import ConnectionNotFoundError

from ..resources.memory import AS_SPECIFIED
from ..resources.names import Manifest
from ..resources.permissions import NotAllowedError
from ..resources.scheduling import queue_wait
from .autoscaling.scaling_status import ActiveReason, ScalingResult, undecided
from .chains.chain_status import chain_status, not_running, upstream_condition, waits_for_upstream, was_too_early
from .conditions import DegradedReason, ProgressingReason, ReadyReason, condition, format_time, merged
from .connections.connection_turns import begun_updates, shown_connections
from .observed_query import ObservedQuery, TooLargeWithConnectionsError
from .pods.driver_health import blocked, failed_runs, ready_since, started_at, states, waiting_for
from .pods.driver_runs import DRIVER_LOST, POD_MISSING, FailedRuns, is_lost
from .pods.executor_failures import executor_trouble
from .pods.out_of_memory import has_memory, remedy, shortage_of, shortages_ahead
from .pods.partitioners import partitioner_status, trouble
from .pods.pending_executors import executors_pending, executors_queue, missing_executors
from .refusals import Refusal
from .requested_snapshots import snapshots_status
from .target import DriverTarget, pod_missing_at
from .undone_raises import undone_at


class _Summary(NamedTuple):
    """Phase of a query, with reason and message of Ready and of Progressing."""

    phase: Phase
    reason: ReadyReason
    message: str
    progress: ProgressingReason
    progress_message: str = ""


_AT_REST = (
    ProgressingReason.INVALID_QUERY,
    ProgressingReason.NOT_ALLOWED,
    ProgressingReason.CONNECTION_NOT_FOUND,
    ProgressingReason.FAILED,
    ProgressingReason.PAUSED,
    ProgressingReason.WAITING_FOR_TURN,
    ProgressingReason.ROLLOUT_HELD,
    ProgressingReason.SETTLED,
)

_OF_MEMORY = (FailureClass.OUT_OF_MEMORY, DegradedReason.EXECUTORS_FAILING, DegradedReason.MEMORY_FILLING)
"""Reasons of Degraded to which what keeps memory from being raised is added."""

VALID_BY_ITSELF = (NotAllowedError, ConnectionNotFoundError, TooLargeWithConnectionsError)
"""Errors of queries in which nothing but their surroundings is wrong, so that they are suspended when they say so."""


def status_of(
    observed: ObservedQuery,
    target: DriverTarget,
    now: datetime,
    *,
    progress: tuple[ProgressingReason, str] | None = None,
    draining: bool = False,
    plan: Plan | None = None,
    scaling: ScalingResult | None = None,
) -> Status:
    """Return the status of a valid query; equal to the current one if nothing has changed.

    Args:
        observed: the query and its objects.
        target: what the driver should run.
        now: the time of the step.
        progress: reason and message of Progressing; None derives both from the phase.
        draining: whether the driver is about to end.
        plan: plan to follow from now on; None keeps the reported one.
        scaling: the last scaling result; None keeps the reported one.
    """
    summary = _summary(observed, target, draining=draining)
    if progress is not None:
        summary = summary._replace(progress=progress[0], progress_message=progress[1])
    if target.turn is not None and target.turn.waits is not None and summary.progress is ProgressingReason.SETTLED:
        reason, message = target.turn.waits
        summary = summary._replace(progress=reason, progress_message=message)
    compares = target.is_wanted and target.shadow is not None and target.shadow.is_running
    if compares and target.shadow is not None and summary.progress is ProgressingReason.SETTLED:
        reason, message = target.shadow.progress(observed.comparison_refused)
        summary = summary._replace(progress=reason, progress_message=message)
    if target.waits and summary.progress in (ProgressingReason.DEPLOYING, ProgressingReason.BACKING_OFF):
        waits = f"not rolled back: {target.waits}"
        summary = summary._replace(progress_message="; ".join(filter(None, (summary.progress_message, waits))))
    before, failed, running = observed.status, target.failed, summary.phase is Phase.RUNNING
    changes = {
        **_changes(observed, summary, now, _degraded(observed, target, now), failed.last, updates=target.updates),
        "selector": ",".join(f"{name}={value}" for name, value in observed.owner.selector(EXECUTOR).items()),
        "revision": target.revision,
        "revision_time": before.revision_time if before.revision == target.revision else format_time(now),
        "attempts": failed.attempts,
        "failures": failed.failures,
        "retry_time": None if failed.retry_time is None else format_time(failed.retry_time),
        "memory": None if target.memory == AS_SPECIFIED else target.memory,
        "rejected": target.rejected or target.retried,
        "upgrade": upgrade_to_report(before, target),
    }
    if plan is not None:
        changes["plan"] = _plan_status(plan, observed.applied, target.query.spec)
    if running and scaling is not None:
        changes["load"] = scaling.load
        changes["last_scaling"] = scaling.last_scaling or before.last_scaling
        changes["conditions"] = merged(changes["conditions"], scaling.conditions)
    return before.model_copy(update=changes)


def invalid_status(
    observed: ObservedQuery, error: MillraceError, now: datetime, before: Status | None = None
) -> Status:
    """Return the status of an invalid query: a running driver keeps running, and the conditions explain the error.

    ``before`` is the status to update, of a query that is scaled; without it, the query is not.
    """
    phase = Phase.RUNNING if _is_ready(observed) else (before or observed.status).phase or Phase.PENDING
    reasons = ReadyReason.INVALID_QUERY, ProgressingReason.INVALID_QUERY
    if isinstance(error, NotAllowedError):
        reasons = ReadyReason.NOT_ALLOWED, ProgressingReason.NOT_ALLOWED
    if isinstance(error, ConnectionNotFoundError):
        reasons = ReadyReason.CONNECTION_NOT_FOUND, ProgressingReason.CONNECTION_NOT_FOUND
    is_stopped = observed.is_suspended and observed.stateful_set is not None and not observed.wants_pods
    if is_stopped and isinstance(error, VALID_BY_ITSELF):
        phase = Phase.SUSPENDED if observed.is_drained else Phase.DRAINING
    summary = _Summary(phase, reasons[0], str(error), reasons[1])
    return _not_followed(observed, summary, now, before)


def refused_status(observed: ObservedQuery, refusal: Refusal, now: datetime, before: Status | None = None) -> Status:
    """Return the status of a query whose objects cannot be changed as things are; what runs keeps running."""
    running = Phase.RUNNING if _is_ready(observed) else (before or observed.status).phase or Phase.PENDING
    phase = Phase.PENDING if observed.driver is None else running
    again = f"tried again at {format_time(refusal.until)}"
    error = refusal.error
    summary = _Summary(phase, error.reason, str(error), ProgressingReason.BACKING_OFF, again)
    return _not_followed(observed, summary, now, before)


def healthy_lost_status(observed: ObservedQuery, now: datetime) -> Status:
    """Return the status of a query whose driver runs the last healthy spec after its saved copy was lost."""
    message = (
        "the last healthy spec, which runs, is lost: correct the spec, or change spec.restartNonce to try it again"
    )
    summary = _of_driver(observed)._replace(progress=ProgressingReason.FAILED, progress_message=message)
    return observed.status.model_copy(update=_changes(observed, summary, now))


def deleting_status(observed: ObservedQuery, until: datetime, now: datetime) -> Status:
    """Return the status of a deleted query that waits for its driver to end."""
    message = f"the query is deleted once its driver has ended, at {format_time(until)} at the latest"
    summary = _Summary(Phase.DRAINING, ReadyReason.DELETING, message, ProgressingReason.DELETING)
    return observed.status.model_copy(update=_changes(observed, summary, now))


def _not_followed(observed: ObservedQuery, summary: _Summary, now: datetime, before: Status | None) -> Status:
    """Return the status of a query whose spec is not followed; ``before`` is as in ``invalid_status``."""
    if before is not None:
        changes = _changes(observed, summary, now, before=before.conditions)
        changes["conditions"] = merged(observed.status.conditions, changes["conditions"])  # whose times count
        return before.model_copy(update=changes)
    degraded = _degraded_by_pod(observed, now)
    status = observed.status.model_copy(update=_changes(observed, summary, now, degraded))
    if summary.phase is not Phase.RUNNING:
        return status
    rest = undecided(ActiveReason.NOT_FOLLOWED, observed.generation, now)
    return status.model_copy(update={"load": None, "conditions": merged(status.conditions, rest)})


def _changes(
    observed: ObservedQuery,
    summary: _Summary,
    now: datetime,
    degraded: Condition | None = None,
    last: Attempt | None = None,
    before: Sequence[Condition] | None = None,
    updates: Mapping[str, ConnectionUpdate] | None = None,
) -> dict[str, Any]:
    """Return the fields that every status has.

    Args:
        observed: the query and its objects.
        summary: its phase, and the reasons of Ready and Progressing.
        now: the time of the step.
        degraded: the condition Degraded; None keeps the one before.
        last: the last failure.
        before: the conditions before; None for those of the observed status.
        updates: how far the driver is from following Connections; None for what was reported of those that have begun.
    """
    ready, progressing = summary.reason is ReadyReason.RUNNING, summary.progress not in _AT_REST
    generation, pod = observed.generation, observed.driver
    current = [
        condition(ConditionType.READY, ready, summary.reason, summary.message, generation, now),
        condition(ConditionType.PROGRESSING, progressing, summary.progress, summary.progress_message, generation, now),
        upstream_condition(observed.upstream, last, generation, now),
    ]
    before = observed.status.conditions if before is None else before
    current += [] if degraded is None else [degraded]
    current += _unscaled(before, summary.phase, generation, now)
    return {
        "observed_generation": generation,
        "connections": _connections(observed, begun_updates(observed) if updates is None else updates),
        "phase": summary.phase,
        "conditions": merged(before, current),
        "driver": None if pod is None else _driver_status(pod, observed.revision),
        "partitioner": partitioner_status(observed, now),
        "chain": chain_status(observed.upstream),
        "snapshots": snapshots_status(observed, now),
        **({} if summary.phase is Phase.RUNNING else {"load": None}),
    }


def _connections(observed: ObservedQuery, updates: Mapping[str, ConnectionUpdate]) -> tuple[ConnectionStatus, ...]:
    return tuple(
        ConnectionStatus(name=name, generation=generation, brokers=brokers, update=updates.get(name))
        for name, generation, brokers in shown_connections(observed)
    )


def _unscaled(before: Sequence[Condition], phase: Phase, generation: int, now: datetime) -> tuple[Condition, ...]:
    """Return the scaling conditions of a query that does not run, or whose scaling has not begun; else none."""
    if phase is not Phase.RUNNING:
        return undecided(ActiveReason.NOT_RUNNING, generation, now)
    active = next((each for each in before if each.type is ConditionType.SCALING_ACTIVE), None)
    waiting = (ActiveReason.NOT_RUNNING, ActiveReason.NOT_FOLLOWED, ActiveReason.STARTING)
    return undecided(ActiveReason.STARTING, generation, now) if active is None or active.reason in waiting else ()


def _summary(observed: ObservedQuery, target: DriverTarget, *, draining: bool) -> _Summary:
    failed = target.failed
    if failed.last is not None and target.is_wanted:
        if failed.given_up:
            hint = f"given up after {failed.failures} runs; change the spec, or spec.restartNonce, to try again"
            return _Summary(Phase.FAILED, ReadyReason.FAILED, failed.last.message, ProgressingReason.FAILED, hint)
        if (waiting := _waiting(observed, failed, failed.last)) is not None:
            return waiting
    if not target.is_wanted and observed.is_drained:
        message = "spec.suspend is true"
        return _Summary(Phase.SUSPENDED, ReadyReason.SUSPENDED, message, ProgressingReason.SETTLED)
    if not target.is_wanted or draining:
        message = "the driver ends after its running batch"
        return _Summary(Phase.DRAINING, ReadyReason.DRAINING, message, ProgressingReason.DRAINING)
    return _of_driver(observed)


def _waiting(observed: ObservedQuery, failed: FailedRuns, last: Attempt) -> _Summary | None:
    """Return the summary of a query that waits for its next run, or for upstream; None if it does neither."""
    progress, pause = ProgressingReason.DEPLOYING, ""
    if failed.retry_time is not None:
        until = format_time(failed.retry_time)
        progress = ProgressingReason.BACKING_OFF
        pause = f"{failed.failures} runs in a row have failed; the next one starts at {until}"
    if waits_for_upstream(observed.upstream, last) and not _is_ready(observed):
        message = f"{not_running(observed.upstream)}; the driver reports: {last.message}"
        return _Summary(Phase.PENDING, ReadyReason.WAITING, message, progress, pause)
    if failed.retry_time is None:
        return None
    return _Summary(Phase.FAILED, ReadyReason.BACKING_OFF, last.message, progress, pause)


def _of_driver(observed: ObservedQuery) -> _Summary:
    """Return the summary of a query whose driver runs or starts."""
    if _is_ready(observed):
        message = f"the driver is ready{_rests(observed)}{_waits(observed)}"
        return _Summary(Phase.RUNNING, ReadyReason.RUNNING, message, ProgressingReason.SETTLED)
    reason, message = ReadyReason.DEPLOYING, waiting_for(observed.driver)
    if is_lost(observed):
        reason, message = ReadyReason.DRIVER_LOST, f"{DRIVER_LOST}: {message}"
    if observed.driver is not None and queue_wait(observed.driver) is not None:
        reason = ReadyReason.QUEUED
    if observed.driver is not None and started_at(observed.driver) is not None:
        missing = missing_executors(observed)
        waits = ReadyReason.QUEUED if executors_queue(observed) else ReadyReason.DEPLOYING
        reason = waits if missing else ReadyReason.FIRST_BATCH
        message = f"the driver's first batch has not finished{f'; {missing}' if missing else ''}{_waits(observed)}"
    if (refused := observed.refused_pods(DRIVER)) is not None:
        reason, message = refused.reason, refused.message
    return _Summary(Phase.DEPLOYING, reason, message, ProgressingReason.DEPLOYING)


def _waits(observed: ObservedQuery) -> str:
    """Return what the driver reports to wait for, as the rest of a sentence; empty if it waits for nothing."""
    return "".join(f"; {each.text} (since {each.time})" for each in observed.driver_waits.waits)


def _rests(observed: ObservedQuery) -> str:
    """Return that the plan has no executor, as the rest of a sentence; empty if it has some."""
    if observed.plan is None or observed.plan.executors:
        return ""
    if observed.driver_waits.executors:
        return ", and its tasks run on one executor until the plan may change"
    return ", and at rest without executors until records arrive"


def _is_ready(observed: ObservedQuery) -> bool:
    return observed.driver is not None and ready_since(observed.driver) is not None


def _degraded(observed: ObservedQuery, target: DriverTarget, now: datetime) -> Condition:
    reason: str = DegradedReason.HEALTHY
    message, last, rejected = "", target.failed.last, target.rejected
    blockage = None if observed.driver is None else blocked(observed.driver, now)
    missing_at = pod_missing_at(observed, target)
    ahead = next(iter(shortages_ahead(observed, target.memory, now)), None)
    if rejected is not None and rejected.verdict is not None:
        reason = DegradedReason.UPGRADE_REJECTED
        message = (
            f"generation {rejected.generation} is not followed, and the last healthy spec runs: {rejected.message}"
        )
    elif rejected is not None:
        reason = DegradedReason.ROLLED_BACK
        again = f", is tried again at {rejected.retry_time}" if rejected.retry_time is not None else ""
        message = f"generation {rejected.generation} did not become healthy{again}, and the last healthy spec runs"
        message += f"{' until then' if again else ' again'}: {rejected.message}"
    elif observed.refused:
        role, reason, message = observed.refused[0]
        message += _raise_note(target.memory) if role == DRIVER else ""
    elif last is not None and not was_too_early(observed.upstream, last):
        reason, message = last.reason, last.message
    elif blockage is not None:
        reason, message = blockage
        message += _raise_note(target.memory)
    elif target.is_wanted and missing_at is not None and now >= missing_at:
        reason, message = FailureClass.OTHER, POD_MISSING
    elif target.may_run and (found := _trouble_of_executors(observed, now) or trouble(observed, now)) is not None:
        reason, message = found
    elif target.may_run and has_memory(observed, target.memory) and ahead is not None:
        reason, message = DegradedReason.MEMORY_FILLING, ahead.message
    if reason in _OF_MEMORY and has_memory(observed, target.memory):
        shortage = shortage_of(observed, target.failed, now) or ahead
        waits = observed.is_set(Annotation.PAUSED)
        message += "" if shortage is None else f"; {remedy(shortage, target.query.spec, target.memory, paused=waits)}"
    degraded = reason is not DegradedReason.HEALTHY
    return condition(ConditionType.DEGRADED, degraded, reason, message, observed.generation, now)


def _raise_note(memory: MemoryStatus) -> str:
    """Return what is to be known of raised memory where the driver has no room; empty if its memory is as specified."""
    raised = memory.driver
    if raised is None or raised.memory.bytes <= raised.from_.bytes:
        return ""
    undone = undone_at(memory)
    how = "a lower spec.driver.maxMemory undoes that" if undone is None else f"undone at {format_time(undone)}"
    return f"; its memory was raised to {raised.memory}: {how}"


def upgrade_to_report(before: Status, target: DriverTarget) -> UpgradeStatus | None:
    """Return the last comparison; one that was given up before its end leaves nothing."""
    if target.shadow is not None:
        return target.shadow.status
    return None if before.upgrade is None or before.upgrade.verdict is None else before.upgrade


def _trouble_of_executors(observed: ObservedQuery, now: datetime) -> tuple[str, str] | None:
    return executor_trouble(observed.failed_executors, observed.driver, now) or executors_pending(observed, now)


def _degraded_by_pod(observed: ObservedQuery, now: datetime) -> Condition:
    """Return Degraded as far as pods and missing pods show it, whatever the driver runs."""
    reason, message = str(DegradedReason.HEALTHY), ""
    if observed.refused:
        _, reason, message = observed.refused[0]
    elif observed.driver is not None:
        runs = failed_runs(observed.driver)
        found = blocked(observed.driver, now)
        if found is not None:
            reason, message = found
        elif runs and ready_since(observed.driver) is None:
            reason, message = runs[-1].reason, runs[-1].message
        elif (of_executors := _trouble_of_executors(observed, now)) is not None:
            reason, message = of_executors
    degraded = reason != DegradedReason.HEALTHY
    return condition(ConditionType.DEGRADED, degraded, reason, message, observed.generation, now)


def _driver_status(pod: Manifest, revision: str | None) -> DriverStatus:
    restarts = sum(each.get("restartCount", 0) for each in states(pod, DRIVER))
    name, started = pod["metadata"]["name"], pod.get("status", {}).get("startTime")
    return DriverStatus(pod=name, start_time=started, restarts=restarts, revision=revision or None)


def _plan_status(plan: Plan, applied: Applied | None, spec: Spec) -> PlanStatus:
    """Return the plan's status; with ``auto``, it shows the algorithm that the job has chosen."""
    chosen = applied is not None and spec.partitioner.algorithm is Algorithm.AUTO
    return PlanStatus(
        epoch=plan.epoch,
        algorithm=applied.algorithm if applied is not None and chosen else plan.algorithm,
        replicas=plan.replicas,
        parallelism=plan.parallelism,
        executors=plan.executors,
        placement=plan.placement,
        applied_epoch=None if applied is None else applied.epoch,
    )
