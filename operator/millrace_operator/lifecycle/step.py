"""Next step of a query, computed from its spec and the observed state; pure and deterministic functions.

What the driver should run is in ``target``, under which plan in ``next_plan``, its objects in ``resources.manifests``,
and the status in ``status``. Then ``reconcile`` writes the status and carries out the actions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from millrace_api.errors import MillraceError
from millrace_api.model.plan import Plan
from millrace_api.model.status import Phase, Status
from millrace_api.model.streamquery import Annotation, StreamQuery

from ..resources.gangs import POD_GROUP, is_in_group
from ..resources.manifests import healthy_spec, objects
from ..resources.names import Manifest
from ..resources.pod_defaults import PodDefaults
from ..resources.spec_changes import changed_parts, revision, with_in_place
from .actions import Action, Apply, Compare, Drain, Drop, DropPodGroup, DropSecret, Finalize, MakeSecret
from .autoscaling.scaling_status import ScalingResult
from .canary import canary_status, is_canary
from .conditions import ProgressingReason, parse_time
from .next_plan import plan_for
from .objects.configurations import forged_configurations, lacks_configuration, unused_configurations
from .observed_query import ObservedQuery
from .pods.driver_health import STUCK_AFTER, UNSCHEDULABLE_AFTER, created, healthy_from
from .pods.executor_failures import executor_trouble, executor_trouble_at
from .pods.out_of_memory import has_memory, why_replaced
from .pods.partitioners import partitioners_for, trouble_at
from .pods.pending_executors import available_executors, executors_pending_at
from .refusals import Refusal
from .requested_snapshots import unanswered_at, with_request
from .shadow import forged_objects, is_compared, missing_objects, unused_objects
from .status import (
    VALID_BY_ITSELF,
    deleting_status,
    healthy_lost_status,
    invalid_status,
    refused_status,
    status_of,
    upgrade_to_report,
)
from .takeover import may_take_over, runs_as, takeover_due, takeover_progress, with_next_version
from .target import DriverTarget, pod_missing_at, runs_healthy, target_of
from .undone_raises import undone_at

FINALIZER = "millrace.io/drain"
"""Finalizer that keeps a deleted query until its driver has finished the running batch."""

_UNKNOWN = "not-made-yet"
"""In the place of a Secret's name, in objects that are compared or tried but not applied."""

DRAIN_MARGIN = timedelta(seconds=60)
"""Time beyond the driver pod's grace period that a deletion waits for the driver."""

READ_AGAIN_AFTER = timedelta(seconds=60)
"""Time after which a query is looked at again that is not kept."""

_LONGEST_GRACE = 5 * 365 * 86_400
"""Seconds of a grace period that count, so that a pod with a huge one does not keep its query forever."""


@dataclass(frozen=True)
class Step:
    """Next step of a query.

    Attributes:
        status: status to write before any action.
        actions: actions in order; empty if the query matches its spec or has to wait.
        requeue_at: when to reconcile again if no event arrives earlier.
    """

    status: Status
    actions: tuple[Action, ...] = ()
    requeue_at: datetime | None = None


def next_step(
    observed: ObservedQuery,
    query: StreamQuery | MillraceError,
    defaults: PodDefaults,
    now: datetime,
    scaling: ScalingResult | None = None,
    refusal: Refusal | None = None,
) -> Step:
    """Return the next step that brings a query closer to its spec.

    ``defaults`` are those of the pods of all queries. ``scaling`` is the last scaling result, and ``refusal`` what the
    API server has refused of this version of the query and is not to be tried again yet.
    """
    if is_canary(observed.body):
        return Step(canary_status(observed, now))
    if observed.deleted_at is not None:
        return _step_to_delete(observed, observed.deleted_at, now)
    if (unreadable := observed.unreadable) is not None:
        return Step(invalid_status(observed, unreadable, now), requeue_at=now + READ_AGAIN_AFTER)
    if isinstance(query, MillraceError):
        return _keep_running(observed, query, defaults, now, scaling)
    if refusal is not None:
        step = _keep_running(observed, refusal, defaults, now, None)
        return replace(step, requeue_at=_soonest((refusal.until, step.requeue_at), now))
    if _healthy_is_lost(observed, query):
        return Step(healthy_lost_status(observed, now))
    target = target_of(observed, query, defaults, now)
    if observed.is_set(Annotation.PAUSED):
        paused = (ProgressingReason.PAUSED, f"the annotation {Annotation.PAUSED} is set: nothing is changed")
        if scaling is not None and scaling.change is not None:
            scaling = replace(scaling, last_scaling=None)  # decided before the pause, so it may not have been applied
        status = status_of(observed, target, now, progress=paused, scaling=scaling)
        return Step(status, requeue_at=_due(observed, target, now))
    takes_over = _takes_over(observed, target, defaults, now)
    if not takes_over and _must_drain(observed, target, defaults):
        return _step_to_drain(observed, target, defaults, now)
    return _step_to_apply(observed, target, defaults, now, scaling, takes_over=takes_over)


def _healthy_is_lost(observed: ObservedQuery, query: StreamQuery) -> bool:
    """Return whether the last healthy spec is lost, which the driver runs since the current one may not be followed."""
    applied = revision(query.spec)
    if not (observed.status.rejects(applied) or is_compared(observed, query.spec)) or observed.revision in (
        None,
        applied,
    ):
        return False
    return observed.healthy is None


def _keep_running(
    observed: ObservedQuery,
    why: MillraceError | Refusal,
    defaults: PodDefaults,
    now: datetime,
    scaling: ScalingResult | None,
) -> Step:
    """Keep the driver running after an invalid change; restart a drained one with the last healthy spec.

    If what runs is that spec, it is scaled as before. A suspended query stays so: its last healthy spec may be one that
    a policy no longer allows. A query that is not allowed, whose Connection is gone, or that is too large with what its
    Connections lead to, is suspended all the same.
    """

    def status(before: Status | None = None) -> Status:
        if isinstance(why, Refusal):
            return refused_status(observed, why, now, before)
        return invalid_status(observed, why, now, before)

    due = _soonest([*_executors_due(observed), _unscheduled_at(observed), _stuck_at(observed)], now)
    if observed.is_set(Annotation.PAUSED):
        return Step(status(), requeue_at=due)
    if observed.is_suspended:
        return Step(status(), _drains(observed) if isinstance(why, VALID_BY_ITSELF) else (), due)
    was_suspended = observed.status.phase is Phase.SUSPENDED
    restarts = observed.stateful_set is not None and observed.is_drained and not was_suspended
    follows = isinstance(why, MillraceError) and runs_healthy(observed)
    if observed.healthy is None or not (restarts or follows):
        return Step(status(), requeue_at=due)
    target = target_of(observed, observed.query_with(observed.healthy[1]), defaults, now, raises=False)
    step = _step_to_apply(observed, target, defaults, now, scaling)
    return replace(step, status=status(step.status))


def _takes_over(observed: ObservedQuery, target: DriverTarget, defaults: PodDefaults, now: datetime) -> bool:
    """Return whether the target is to take over in the running driver, which has not reported that it has."""
    if observed.healthy is None or observed.revision == target.revision or not may_take_over(observed, target, now):
        return False
    before = observed.query_with(with_in_place(observed.healthy[1], target.query.spec))
    plan, auth = plan_for(observed, target.query), _auth_secret(observed, target) or _UNKNOWN
    old, new = (
        _objects(observed, replace(target, query=query), plan, defaults, auth) for query in (before, target.query)
    )
    return runs_as(observed, old, new)


def _must_drain(observed: ObservedQuery, target: DriverTarget, defaults: PodDefaults) -> bool:
    """Return whether the driver has to end before the objects can be updated."""
    if observed.stateful_set is None or observed.is_drained:
        return False
    is_other = observed.revision not in (None, target.revision) or not has_memory(observed, target.memory)
    if not target.may_run or is_other:
        return True
    if not lacks_configuration(observed):
        return False
    auth = _auth_secret(observed, target) or _UNKNOWN
    desired = _objects(observed, target, plan_for(observed, target.query), defaults, auth)
    return observed.configuration not in [each["metadata"]["name"] for each in desired]


def _step_to_drain(observed: ObservedQuery, target: DriverTarget, defaults: PodDefaults, now: datetime) -> Step:
    replacements: tuple[Manifest, ...] = ()
    if target.may_run:
        desired = _objects(observed, target, plan_for(observed, target.query), defaults, _UNKNOWN)
        replacements = tuple(each for each in desired if each["kind"] in ("StatefulSet", POD_GROUP))
    actions = _drains(observed, replacements)
    status = status_of(observed, target, now, progress=_why_drained(observed, target), draining=True)
    return Step(status, actions, _soonest((target.failed.retry_time, _stuck_at(observed)), now))


def _why_drained(observed: ObservedQuery, target: DriverTarget) -> tuple[ProgressingReason, str] | None:
    """Return why the driver is drained; None if its last failure says it."""
    if target.rejected is not None and observed.revision == target.rejected.revision:
        return ProgressingReason.ROLLING_BACK, target.rejected.message
    if not target.is_wanted:
        return ProgressingReason.DRAINING, "spec.suspend is true"
    if target.failed.last is not None and not target.may_run and observed.revision == target.revision:
        return None
    if observed.revision == target.revision and not has_memory(observed, target.memory):
        return ProgressingReason.REPLACING, why_replaced(target.memory)
    if observed.revision == target.revision:
        message = f"the driver's configuration, ConfigMap {observed.configuration}, was deleted: another driver starts"
        return ProgressingReason.REPLACING, message
    changed = [] if observed.healthy is None else changed_parts(observed.healthy[1], target.query.spec)
    fields = ", ".join(changed) or "the spec"
    message = f"{fields} changed: the driver ends after its running batch, and another continues from the checkpoint"
    if target.retried is not None:
        message = f"generation {target.retried.generation} is tried again: {message}"
    return ProgressingReason.REPLACING, message


def _step_to_apply(
    observed: ObservedQuery,
    target: DriverTarget,
    defaults: PodDefaults,
    now: datetime,
    scaling: ScalingResult | None,
    *,
    takes_over: bool = False,
) -> Step:
    """Apply all missing or changed objects, then save a spec that has proven healthy."""
    plan = plan_for(observed, target.query, scaling)
    auth = _auth_secret(observed, target)
    desired = with_request(_objects(observed, target, plan, defaults, auth or _UNKNOWN), observed, now)
    desired = with_next_version(desired, observed, target, takes_over=takes_over)
    missing = _to_apply(observed, desired)
    actions: list[Action] = [] if _has_finalizer(observed) else [Finalize(present=True)]
    if dropped := forged_configurations(observed, missing):
        actions += [Drop(each) for each in dropped]  # the next step makes them
    elif not auth:
        actions.append(MakeSecret())
    else:
        actions += [DropPodGroup()] if _leaves_group(observed, desired, missing) else []
        actions += [Apply(each) for each in missing]
    actions += [DropSecret(observed.auth_secret)] if auth and observed.auth_secret not in (None, auth) else []
    healthy = healthy_from(observed.driver) if target.may_run else None
    failing = executor_trouble(observed.failed_executors, observed.driver, now) is not None
    if healthy is not None and healthy <= now and observed.revision == target.revision and not failing:
        actions += [Apply(each) for each in observed.missing([healthy_spec(target.query, observed.owner)])]
    if not missing:
        actions += [Drop(each) for each in unused_configurations(observed, desired)]
    actions += _of_comparison(observed, target, defaults, now)
    if scaling is not None and scaling.change is not None and not scaling.is_in(plan):
        scaling = replace(scaling, last_scaling=None)  # a spec change took precedence, so the decision was not applied
    names = ", ".join(f"{each['kind']} {_shown_name(observed, each)}" for each in missing)
    applying = (ProgressingReason.APPLYING, names) if missing else None
    applying = takeover_progress() if takes_over else applying
    status = status_of(observed, target, now, progress=applying, plan=plan, scaling=scaling)
    return Step(status, tuple(actions), _due(observed, target, now))


def _of_comparison(
    observed: ObservedQuery, target: DriverTarget, defaults: PodDefaults, now: datetime
) -> Iterator[Action]:
    """Yield the actions of a comparison: its next object, and the removal of what is not needed any more."""
    if target.is_wanted:
        yield from map(Compare, missing_objects(observed, target.shadow, target.query, defaults, now))
        yield from map(Drop, forged_objects(observed, target.shadow, target.query, defaults))
    upgrade = upgrade_to_report(observed.status, target) if target.is_wanted else None
    yield from map(Drop, unused_objects(observed, upgrade))


def _to_apply(observed: ObservedQuery, desired: list[Manifest]) -> list[Manifest]:
    """Return what is missing or differs; with a driver's StatefulSet also its PodGroup, which may be gone unseen."""
    missing = observed.missing(desired)
    if not _has_driver(observed, missing):
        return missing
    return [each for each in desired if each["kind"] == POD_GROUP or each in missing]


def _leaves_group(observed: ObservedQuery, desired: list[Manifest], missing: list[Manifest]) -> bool:
    """Return whether the driver had a PodGroup and gets none.

    Its StatefulSet says so until it is applied, also to an operator that has just started and knows no PodGroup.
    """
    before = observed.stateful_set
    if before is None or any(each["kind"] == POD_GROUP for each in desired):
        return False
    return _has_driver(observed, missing) and is_in_group(before["spec"]["template"], observed.owner)


def _has_driver(observed: ObservedQuery, manifests: list[Manifest]) -> bool:
    """Return whether the driver's StatefulSet is among these manifests."""
    at = "StatefulSet", observed.owner.driver
    return any((each["kind"], each["metadata"]["name"]) == at for each in manifests)


def _shown_name(observed: ObservedQuery, missing: Manifest) -> str:
    """Return the name of a missing object in the status.

    That of a configuration ends with a hash of its content, which is another one once the driver's Secret has a name:
    with it, the status would be written twice.
    """
    name: str = missing["metadata"]["name"]
    return name.rpartition("-")[0] if observed.owner.is_configuration(name) else name


def _step_to_delete(observed: ObservedQuery, deleted_at: datetime, now: datetime) -> Step:
    """Remove the finalizer once the driver has ended; the garbage collector then deletes the owned objects."""
    if not _has_finalizer(observed):
        return Step(observed.status)
    grace = int((observed.driver or {}).get("spec", {}).get("terminationGracePeriodSeconds", 30))
    until = deleted_at + timedelta(seconds=min(grace, _LONGEST_GRACE)) + DRAIN_MARGIN
    if observed.is_drained or observed.is_set(Annotation.SKIP_DRAIN) or now >= until:
        return Step(observed.status, (Finalize(present=False),))
    return Step(deleting_status(observed, until, now), _drains(observed), until)


def _auth_secret(observed: ObservedQuery, target: DriverTarget) -> str | None:
    """Return the name of the Secret for driver and executors; None if one has to be made.

    Each driver that the operator starts gets another one. So a value that has leaked is of no use after a restart, and
    a Secret that another client has deleted is replaced.
    """
    starts = target.may_run and observed.driver is None and not observed.wants_pods
    return observed.new_secret if starts or observed.auth_secret is None else observed.auth_secret


def _objects(
    observed: ObservedQuery, target: DriverTarget, plan: Plan, defaults: PodDefaults, auth: str
) -> list[Manifest]:
    query, running = target.query, target.may_run
    replicas = partitioners_for(observed, query.spec, plan, defaults.image, running=running)
    confinement = observed.permissions.confinement(query, observed.owner.namespace)
    return objects(
        query,
        observed.owner,
        plan,
        replace(defaults, raised=target.memory),
        running=running,
        auth=auth,
        partitioners=replicas,
        confinement=confinement,
        identities=observed.permissions.identity_endpoints(observed.owner.namespace),
        available=available_executors(observed),
    )


def _drains(observed: ObservedQuery, replacements: tuple[Manifest, ...] = ()) -> tuple[Drain, ...]:
    """Return the drains of the driver, and of replicas in pods of their own, as far as they still run."""
    owner, replicas = observed.owner, observed.partitioner_set
    drains = [Drain(owner.driver, replacements)] if observed.wants_pods else []
    if replicas is not None and replicas["spec"].get("replicas", 1) != 0:
        drains.append(Drain(owner.partitioner))
    return tuple(drains)


def _due(observed: ObservedQuery, target: DriverTarget, now: datetime) -> datetime | None:
    """Return when the status, or what is to be done, changes next without an event; None if it does not."""
    times = [target.requeue_at, target.failed.retry_time, pod_missing_at(observed, target)]
    times += [healthy_from(observed.driver) if target.may_run else None]
    times += [_unscheduled_at(observed), undone_at(target.memory)]
    times += [_stuck_at(observed), *trouble_at(observed, now)]
    times += [takeover_due(observed, target)]
    times += [*_executors_due(observed), *unanswered_at(observed, now)]
    return _soonest(times, now)


def _executors_due(observed: ObservedQuery) -> list[datetime]:
    """Return when what is wrong with executors begins or ceases to count."""
    failing = executor_trouble_at(observed.failed_executors, observed.driver)
    return [*failing, *executors_pending_at(observed)]


def _unscheduled_at(observed: ObservedQuery) -> datetime | None:
    """Return when the driver counts as unschedulable; None if it was scheduled."""
    pod = observed.driver
    return None if pod is None or pod.get("spec", {}).get("nodeName") else created(pod) + UNSCHEDULABLE_AFTER


def _stuck_at(observed: ObservedQuery) -> datetime | None:
    """Return when a deleted driver pod counts as stuck; None if it is not being deleted."""
    deadline = None if observed.driver is None else observed.driver["metadata"].get("deletionTimestamp")
    return None if deadline is None else parse_time(deadline) + STUCK_AFTER


def _has_finalizer(observed: ObservedQuery) -> bool:
    return FINALIZER in (observed.body["metadata"].get("finalizers") or ())


def _soonest(times: Iterable[datetime | None], now: datetime) -> datetime | None:
    return min((each for each in times if each is not None and each > now), default=None)
