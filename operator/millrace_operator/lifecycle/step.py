"""Next step of a query, computed from its spec and the observed state; pure and deterministic functions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from millrace_api.errors import MillraceError
from millrace_api.model.annotations import PAUSED, SKIP_DRAIN
from millrace_api.model.status import Status
from millrace_api.model.streamquery import ObjectMeta, QueryState, StreamQuery

from ..resources.names import Manifest
from ..resources.objects import healthy_spec, objects
from ..resources.spec_fields import replaced_fields, revision
from .conditions import ProgressingReason, moment
from .driver_health import STUCK_AFTER, UNSCHEDULABLE_AFTER, created
from .observe import ObservedQuery, missing_of
from .scaling_status import Scaled
from .status import StepReport, deleting, healthy_lost, invalid, situation
from .target import UNMADE_AFTER, DriverTarget, healthy_from, plan_for, shape_of, target_of, unmade_since

FINALIZER = "millrace.io/drain"
"""Finalizer that keeps a deleted query until its driver has finished the running batch."""

DRAIN_MARGIN = timedelta(seconds=60)
"""Time beyond the driver pod's grace period that a deletion waits for the driver."""


@dataclass(frozen=True)
class Apply:
    """Action that creates an object or updates it to its manifest."""

    manifest: Manifest


@dataclass(frozen=True)
class Drain:
    """Action that lets the driver end after its running batch and changes nothing else.

    ``trial`` is the object to apply after the drain. If the API server would reject it, the drain does not start. None
    if no driver follows.
    """

    trial: Manifest | None = None


@dataclass(frozen=True)
class Finalize:
    """Action that sets or removes the finalizer."""

    present: bool


Action = Apply | Drain | Finalize


@dataclass(frozen=True)
class Step:
    """Next step of a query.

    Attributes:
        status: status to write before any action.
        actions: actions in order; empty if the query matches its spec or has to wait.
        wake: when to check again if no event arrives earlier.
    """

    status: Status
    actions: tuple[Action, ...] = ()
    wake: datetime | None = None


def next_step(
    seen: ObservedQuery, query: StreamQuery | MillraceError, image: str, now: datetime, scaled: Scaled | None = None
) -> Step:
    """Return the next step that brings a query closer to its spec.

    ``image`` is the default for queries without one. ``scaled`` is the last scaling result.
    """
    if seen.deleted_at is not None:
        return _delete(seen, seen.deleted_at, now)
    if isinstance(query, MillraceError):
        return _keep_running(seen, query, image, now)
    if _healthy_is_lost(seen, query):
        return Step(healthy_lost(seen, now))
    target = target_of(seen, query, now)
    retry = target.tally.retry_time(now)
    running = target.running and not target.tally.given_up and retry is None
    if seen.is_set(PAUSED):
        paused = f"the annotation {PAUSED} is set: nothing is changed"
        return _report(seen, target, now, StepReport(progress=(ProgressingReason.PAUSED, paused)), wake=retry)
    if _must_drain(seen, target, running=running):
        return _drain(seen, target, image, now, running=running, wake=retry)
    return _settle(seen, target, image, now, scaled, running=running, retry=retry)


def _healthy_is_lost(seen: ObservedQuery, query: StreamQuery) -> bool:
    """Return whether the current spec was rejected and the last healthy one, which the driver runs, is lost."""
    rejected = seen.status.rejected
    if rejected is None or rejected.revision != revision(query.spec) or seen.healthy is not None:
        return False
    return seen.revision not in (None, rejected.revision)


def _keep_running(seen: ObservedQuery, error: MillraceError, image: str, now: datetime) -> Step:
    """Keep the driver running after an invalid change; restart a drained one with the last healthy spec."""
    wants_none = (seen.body.get("spec") or {}).get("state") == QueryState.SUSPENDED
    if seen.healthy is None or seen.stateful_set is None or not seen.is_drained or wants_none or seen.is_set(PAUSED):
        return Step(invalid(seen, error, now))
    metadata = ObjectMeta(name=seen.owner.name, namespace=seen.owner.namespace)
    query = StreamQuery(api_version="millrace.io/v1alpha1", kind="StreamQuery", metadata=metadata, spec=seen.healthy[1])
    target = target_of(seen, query, now)
    retry = target.tally.retry_time(now)
    running = target.running and not target.tally.given_up and retry is None
    step = _settle(seen, target, image, now, None, running=running, retry=retry)
    return replace(step, status=invalid(seen, error, now, step.status))


def _must_drain(seen: ObservedQuery, target: DriverTarget, *, running: bool) -> bool:
    """Return whether the driver has to end before the objects can be updated."""
    if seen.stateful_set is None:
        return False
    return not seen.is_drained and (not running or seen.revision not in (None, target.revision))


def _drain(
    seen: ObservedQuery, target: DriverTarget, image: str, now: datetime, *, running: bool, wake: datetime | None
) -> Step:
    report = _draining(target, seen)
    plan = plan_for(seen, target.query)
    trial = objects(target.query, seen.owner, plan, image, running=True)[-1] if running else None
    actions = (Drain(trial),) if _wants_pods(seen) else ()
    return _report(seen, target, now, report, actions, _soonest((wake, _stuck_until(seen)), now))


def _settle(
    seen: ObservedQuery,
    target: DriverTarget,
    image: str,
    now: datetime,
    scaled: Scaled | None,
    *,
    running: bool,
    retry: datetime | None,
) -> Step:
    """Apply all missing or changed objects, then save a spec that has proven healthy."""
    plan = plan_for(seen, target.query, scaled)
    wanted = objects(target.query, seen.owner, plan, image, running=running)
    missing = missing_of(seen, wanted)
    actions: tuple[Action, ...] = tuple(Apply(each) for each in missing)
    healthy = healthy_from(seen.driver) if running else None
    wakes = [target.wake, retry, _unscheduled_until(seen), _unmade_until(seen, target, now)]
    if healthy is not None and seen.revision == target.revision:
        kept = seen.healthy is not None and seen.healthy[0] == target.revision
        if healthy > now:
            wakes.append(healthy)
        elif not kept:
            actions = (*actions, Apply(healthy_spec(target.query, seen.owner)))
    if scaled is not None and scaled.change is not None and scaled.change != shape_of(plan):
        scaled = replace(scaled, account=None)  # a spec change took precedence, so the decision was not applied
    report = StepReport(applying=missing, plan=plan, scaled=scaled)
    held = () if _has_finalizer(seen) else (Finalize(present=True),)
    return _report(seen, target, now, report, (*held, *actions), _soonest(wakes, now))


def _report(
    seen: ObservedQuery,
    target: DriverTarget,
    now: datetime,
    report: StepReport,
    actions: tuple[Action, ...] = (),
    wake: datetime | None = None,
) -> Step:
    return Step(situation(seen, target, report, now), actions, wake)


def _draining(target: DriverTarget, seen: ObservedQuery) -> StepReport:
    """Return the report that explains why the driver is drained."""
    if target.rejected is not None and seen.revision == target.rejected.revision:
        return StepReport(progress=(ProgressingReason.ROLLING_BACK, target.rejected.message), draining=True)
    if not target.running:
        return StepReport(progress=(ProgressingReason.DRAINING, "spec.state is Suspended"), draining=True)
    if target.tally.last is not None and seen.revision == target.revision:
        return StepReport(draining=True)
    changed = [] if seen.healthy is None else replaced_fields(seen.healthy[1], target.query.spec)
    fields = ", ".join(changed) or "the spec"
    said = f"{fields} changed: the driver ends after its running batch, and another goes on from the checkpoint"
    return StepReport(progress=(ProgressingReason.REPLACING, said), draining=True)


def _delete(seen: ObservedQuery, asked: datetime, now: datetime) -> Step:
    """Remove the finalizer once the driver has ended; the garbage collector then deletes the owned objects."""
    if not _has_finalizer(seen):
        return Step(seen.status)
    until = asked + timedelta(seconds=_grace(seen)) + DRAIN_MARGIN
    if seen.is_drained or seen.is_set(SKIP_DRAIN) or now >= until:
        return Step(seen.status, (Finalize(present=False),))
    actions = (Drain(),) if seen.stateful_set is not None and _wants_pods(seen) else ()
    return Step(deleting(seen, until, now), actions, until)


def _unscheduled_until(seen: ObservedQuery) -> datetime | None:
    """Return when to check again whether the driver was scheduled; None if it was."""
    pod = seen.driver
    return None if pod is None or pod.get("spec", {}).get("nodeName") else moment(created(pod)) + UNSCHEDULABLE_AFTER


def _unmade_until(seen: ObservedQuery, target: DriverTarget, now: datetime) -> datetime | None:
    """Return when to check again whether the driver's pod was created; None if no pod is missing."""
    since = unmade_since(seen, target.revision, target.tally, now)
    return None if since is None else since + UNMADE_AFTER


def _stuck_until(seen: ObservedQuery) -> datetime | None:
    """Return when to check again whether a deleted driver pod has ended; None if it is not being deleted."""
    gone = None if seen.driver is None else seen.driver["metadata"].get("deletionTimestamp")
    return None if gone is None else moment(gone) + STUCK_AFTER


def _grace(seen: ObservedQuery) -> int:
    pod = seen.driver or {}
    return int(pod.get("spec", {}).get("terminationGracePeriodSeconds", 30))


def _wants_pods(seen: ObservedQuery) -> bool:
    held = seen.stateful_set
    return held is not None and held["spec"].get("replicas", 1) != 0


def _has_finalizer(seen: ObservedQuery) -> bool:
    return FINALIZER in (seen.body["metadata"].get("finalizers") or ())


def _soonest(times: Iterable[datetime | None], now: datetime) -> datetime | None:
    return min((each for each in times if each is not None and each > now), default=None)
