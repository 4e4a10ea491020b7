"""What a driver should run: the applied spec, or the last healthy one after a failure; and the plan. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any

from millrace_api.errors import MillraceError
from millrace_api.model.deployment import Placement
from millrace_api.model.plan import FIRST_EPOCH, Applied, Plan
from millrace_api.model.status import Attempt, ConditionStatus, ConditionType, FailureClass, RejectedSpec
from millrace_api.model.streamquery import DRIVER, QueryState, Spec, StreamQuery

from ..resources.names import Manifest
from ..resources.objects import AUTO_FOR, plan_settings
from ..resources.spec_fields import revision, with_in_place
from ..scaling.shape import Shape
from .conditions import condition_of, format_time, parse_time, shortened
from .driver_health import (
    HEALTH_DEADLINE,
    HEALTHY_AFTER,
    created,
    failed_runs,
    policy_of,
    ready_since,
    retry_at,
    waiting_for,
)
from .executor_failures import executor_trouble
from .observe import ObservedQuery
from .scaling_inputs import bounds_of
from .scaling_status import ScalingResult

RUNS_TO_ROLL_BACK = 3
"""Failed runs of a changed spec before a rollback to the last healthy one, unless the failure class allows fewer."""

_POD_MISSING_AFTER = timedelta(minutes=2)
"""Time that the driver's pod may be missing before this is reported."""

_LOST_EPOCHS = 100_000
"""Plans that a restored backup may lack."""

_NOT_OF_PLAN = ("replanNonce", AUTO_FOR)
"""Settings beside those of a plan."""

POD_MISSING = "the driver's pod is missing: see the events of its StatefulSet"


@dataclass(frozen=True)
class FailedRuns:
    """Most recent failed runs as of ``now``, and the number of failures in a row under the current revision.

    ``upstream_since`` is when the queries before this one became ready; of missing input, only later failures count.
    """

    now: datetime
    attempts: tuple[Attempt, ...] = ()
    failures: int = 0
    upstream_since: datetime | None = None

    @property
    def last(self) -> Attempt | None:
        """Last failure; None if the driver has been healthy since."""
        return self.attempts[-1] if self.failures and self.attempts else None

    @property
    def of_last_class(self) -> int:
        """Number of failures in a row with the class of the last one; only these count towards its limit."""
        same = takewhile(lambda each: each.reason == self.attempts[-1].reason, reversed(self.attempts))
        return min(sum(1 for _ in same), self.failures)

    @property
    def given_up(self) -> bool:
        """Whether the driver has been given up."""
        return self.last is not None and policy_of(self.last).gives_up(self.of_last_class)

    @property
    def due(self) -> datetime | None:
        """When the operator may start the next run; None if Kubernetes does, or if the driver is given up."""
        if self.last is None or self.given_up:
            return None
        since = self.upstream_since
        if since is None or self.last.reason != FailureClass.SOURCE_MISSING:
            return retry_at(self.last, self.failures)
        failures = sum(parse_time(each.time) >= since for each in self.attempts)
        return retry_at(self.last, min(failures, self.failures)) or since

    @property
    def retry_time(self) -> datetime | None:
        """When the next run may start; None if it may start now or Kubernetes restarts the driver."""
        due = self.due
        return due if due is not None and due > self.now else None


@dataclass(frozen=True)
class DriverTarget:
    """Spec that the driver should run, with its failed runs.

    ``rejected`` is the applied spec if it did not become healthy and was rolled back. ``requeue_at`` is when to check
    the driver's health again.
    """

    query: StreamQuery
    revision: str
    failed: FailedRuns
    rejected: RejectedSpec | None = None
    requeue_at: datetime | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether the user wants a driver."""
        return self.query.spec.state is QueryState.RUNNING

    @property
    def may_run(self) -> bool:
        """Whether the driver is wanted, not given up, and need not wait for its next run."""
        return self.is_wanted and not self.failed.given_up and self.failed.retry_time is None


def target_of(observed: ObservedQuery, query: StreamQuery, now: datetime) -> DriverTarget:
    """Return the spec to follow now; roll back if the applied spec did not become healthy."""
    applied, rejected = revision(query.spec), observed.status.rejected
    if rejected is not None and rejected.revision == applied and observed.healthy is not None:
        return _rolled_back(observed, query, rejected, now)
    target = DriverTarget(query, applied, _failed_runs(observed, applied, now))
    if not target.is_wanted:  # a resumed query gets a fresh start
        return replace(target, failed=replace(target.failed, failures=0))
    if observed.healthy is None or observed.healthy[0] == applied:
        return target
    if reason := _unhealthy(observed, target, now):
        rejected = RejectedSpec(
            revision=applied, generation=observed.generation, time=format_time(now), message=shortened(reason, 2048)
        )
        back = _rolled_back(observed, query, rejected, now)
        return replace(back, failed=replace(back.failed, attempts=target.failed.attempts))
    pod = _own_pod(observed, applied)
    since = _pod_missing_since(observed, target) if pod is None else created(pod)
    return target if since is None else replace(target, requeue_at=since + HEALTH_DEADLINE)


def healthy_from(pod: Manifest | None) -> datetime | None:
    """Return when the driver's spec will count as healthy if the driver stays ready; None if it is not ready."""
    since = None if pod is None else ready_since(pod)
    return None if since is None else since + HEALTHY_AFTER


def runs_healthy(observed: ObservedQuery) -> bool:
    """Return whether the driver was made from the last healthy spec."""
    return observed.healthy is not None and observed.revision == observed.healthy[0]


def spec_to_run(observed: ObservedQuery, spec: Spec) -> Spec:
    """Return the spec that the driver should run: ``spec``, or after a rollback the last healthy one.

    The in-place fields are always those of ``spec``.
    """
    rejected = observed.status.rejected
    if rejected is None or rejected.revision != revision(spec) or observed.healthy is None:
        return spec
    return with_in_place(observed.healthy[1], spec)


def running_spec(observed: ObservedQuery, query: StreamQuery | MillraceError) -> Spec | None:
    """Return the spec that the driver runs or should run; after an invalid change the last healthy one, or None."""
    if isinstance(query, StreamQuery):
        return spec_to_run(observed, query.spec)
    return observed.healthy[1] if observed.healthy is not None and runs_healthy(observed) else None


def pod_missing_at(observed: ObservedQuery, target: DriverTarget) -> datetime | None:
    """Return when to report that the driver's pod is missing; None if it exists or is not expected."""
    since = _pod_missing_since(observed, target)
    return None if since is None else since + _POD_MISSING_AFTER


def plan_for(observed: ObservedQuery, query: StreamQuery, scaling: ScalingResult | None = None) -> Plan:
    """Return the current plan with the changes of the spec or, if there are none, of scaling; within the spec's bounds.

    A plan is written to the status before it is written for the driver. After a crash, the status has the newer plan.
    If that is the first plan, nothing says which spec it is of, so it follows the current one.
    With placement Auto, a driver that fails runs Inline next: it may be unable to follow any other plan.
    """
    plan = _current_plan(observed, query.spec)
    if plan is None:
        return Plan.initial(query.spec)
    plan = _after_restore(plan, observed.applied)
    wanted, before = json.loads(plan_settings(query)), observed.plan_settings
    changes: Mapping[str, Any] = {}
    is_unwritten = before is None and plan.epoch == FIRST_EPOCH
    if is_unwritten or (before is not None and before.get("replanNonce") != wanted["replanNonce"]):
        changes = wanted
    elif before is not None and before != wanted:
        changes = {name: value for name, value in wanted.items() if before.get(name) != value}
        if before.get(AUTO_FOR) != wanted.get(AUTO_FOR):
            changes = {**changes, "placement": wanted["placement"]}
    elif wanted.get(AUTO_FOR) and plan.placement is Placement.DEDICATED and observed.status.failures:
        changes = {"placement": wanted["placement"]}
    elif scaling is not None and scaling.change is not None and scaling.epoch == plan.epoch:
        changes = asdict(scaling.change)
        changes |= {} if scaling.placement is None else {"placement": scaling.placement.value}
    return _next_plan(plan, changes, query.spec)


def _rolled_back(observed: ObservedQuery, query: StreamQuery, rejected: RejectedSpec, now: datetime) -> DriverTarget:
    """Return the last healthy spec, with the in-place fields of the applied one."""
    assert observed.healthy is not None
    healthy, spec = observed.healthy
    query = query.model_copy(update={"spec": with_in_place(spec, query.spec)})
    return DriverTarget(query, healthy, _failed_runs(observed, healthy, now), rejected)


def _unhealthy(observed: ObservedQuery, target: DriverTarget, now: datetime) -> str:
    """Return why a changed spec is rolled back; empty if it is not."""
    failed, pod = target.failed, _own_pod(observed, target.revision)
    limited = failed.last is not None and policy_of(failed.last).max_failures is not None
    if failed.last is not None and limited and (failed.given_up or failed.of_last_class >= RUNS_TO_ROLL_BACK):
        return f"{failed.last.reason}: {failed.last.message}"
    if pod is None:
        since, refused = _pod_missing_since(observed, target), observed.refused_pods(DRIVER)
        why = POD_MISSING if refused is None else refused.message
        return why if since is not None and now >= since + HEALTH_DEADLINE else ""
    of_spec = (each for each in observed.failed_executors if each.attempt.reason != FailureClass.LOST_NODE)
    if (failing := executor_trouble(of_spec, pod, now)) is not None:
        return failing[1]
    if ready_since(pod) is not None or now < created(pod) + HEALTH_DEADLINE:
        return ""
    return f"not ready within {HEALTH_DEADLINE.seconds // 60} minutes: {waiting_for(pod)}"


def _pod_missing_since(observed: ObservedQuery, target: DriverTarget) -> datetime | None:
    """Return since when the driver's pod has been missing; None if it exists or is not expected."""
    status, failed = observed.status, target.failed
    if status.revision != target.revision:  # the revision has just been applied
        return None
    if observed.driver is not None or failed.retry_time is not None or failed.given_up:
        return None
    progress = condition_of(status, ConditionType.PROGRESSING)
    if progress is None or progress.status is not ConditionStatus.TRUE:
        return None
    changed = None if status.revision_time is None else parse_time(status.revision_time)
    times = (parse_time(progress.last_transition_time), changed, failed.due)
    return max(each for each in times if each is not None)


def _own_pod(observed: ObservedQuery, wanted: str) -> Manifest | None:
    """Return the driver's pod if it was created from this revision."""
    return observed.driver if observed.revision == wanted else None


def _failed_runs(observed: ObservedQuery, wanted: str, now: datetime) -> FailedRuns:
    """Return the failed runs counted so far plus those that the pod newly shows."""
    before, pod = observed.status, _own_pod(observed, wanted)
    failures = before.failures if before.revision == wanted else 0
    if pod is None or "deletionTimestamp" in pod["metadata"]:
        return FailedRuns(now, before.attempts, failures, observed.upstream.ready_since)
    known = {each.run for each in before.attempts}
    new = [_not_later(each, now) for each in failed_runs(pod) if each.run not in known]
    healthy = healthy_from(pod)
    failures = 0 if healthy is not None and healthy <= now else failures + len(new)
    return FailedRuns(now, (*before.attempts, *new)[-10:], failures, observed.upstream.ready_since)


def _not_later(attempt: Attempt, now: datetime) -> Attempt:
    """Cap the attempt's time at ``now``: a node's clock may be ahead, which would delay the retry."""
    return attempt if parse_time(attempt.time) <= now else attempt.model_copy(update={"time": format_time(now)})


def _current_plan(observed: ObservedQuery, spec: Spec) -> Plan | None:
    """Return the newer of the plan written for the driver and the plan announced in the status."""
    announced, written = observed.status.plan, observed.plan
    if announced is None or (written is not None and written.epoch >= announced.epoch):
        return written
    same = written is not None and written.algorithm is announced.algorithm
    return Plan(
        epoch=announced.epoch,
        algorithm=announced.algorithm,
        parameters=written.parameters if written is not None and same else spec.partitioner.parameters,
        replicas=announced.replicas,
        parallelism=announced.parallelism,
        executors=announced.executors,
        placement=announced.placement,
    )


def _after_restore(plan: Plan, applied: Applied | None) -> Plan:
    """Return the plan, above the epoch that the driver has applied if the API server's store was restored since then.

    Other epochs than lost ones are not the driver's, which anyone may write who may change the ConfigMap.
    """
    if applied is None or not 0 < applied.epoch - plan.epoch <= _LOST_EPOCHS:
        return plan
    return plan.model_copy(update={"epoch": applied.epoch + 1})


def _next_plan(plan: Plan, changes: Mapping[str, Any], spec: Spec) -> Plan:
    """Return the plan with the changes, within bounds; a changed plan gets a new epoch."""
    document = plan.to_document() | {name: value for name, value in changes.items() if name not in _NOT_OF_PLAN}
    shape = Shape(document["executors"], document["parallelism"], document["replicas"])
    document |= asdict(bounds_of(spec).nearest(shape))
    changed = Plan.model_validate(document, by_name=False)
    return plan if changed == plan else changed.model_copy(update={"epoch": plan.epoch + 1})
