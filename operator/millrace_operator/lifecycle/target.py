"""Choice of the spec that a driver should run: the applied one, or the last healthy one after a failure; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any

from millrace_api.model.plan import Plan
from millrace_api.model.status import Attempt, ConditionStatus, ConditionType, PlanShape, PlanStatus, RejectedSpec
from millrace_api.model.streamquery import QueryState, Spec, StreamQuery

from ..resources.names import Manifest
from ..resources.objects import asked
from ..resources.spec_fields import revision, with_in_place
from .conditions import condition_of, moment, shortened, stamp
from .driver_health import (
    HEALTH_DEADLINE,
    HEALTHY_AFTER,
    created,
    failed_runs,
    patience_with,
    ready_since,
    retry_at,
    waiting_for,
)
from .observe import ObservedQuery
from .scaling_status import Scaled

RUNS_TO_ROLL_BACK = 3
"""Failed runs of a changed spec before a rollback to the last healthy one, unless the failure class allows fewer."""


UNMADE_AFTER = timedelta(minutes=2)
"""Time that the driver's pod may be missing before this is reported."""

NOT_MADE = "the driver's pod is not made: see the events of its StatefulSet"


@dataclass(frozen=True)
class FailedRuns:
    """Most recent failed runs, and the number of failures in a row under the current revision."""

    attempts: tuple[Attempt, ...] = ()
    failures: int = 0

    @property
    def last(self) -> Attempt | None:
        """Last failure; None if the driver has been healthy since."""
        return self.attempts[-1] if self.failures and self.attempts else None

    @property
    def alike(self) -> int:
        """Number of failures in a row with the class of the last one; only these count towards its limit."""
        same = takewhile(lambda each: each.reason == self.attempts[-1].reason, reversed(self.attempts))
        return min(sum(1 for _ in same), self.failures)

    @property
    def given_up(self) -> bool:
        """Whether the driver has been given up."""
        return self.last is not None and patience_with(self.last).is_over(self.alike)

    def retry_time(self, now: datetime) -> datetime | None:
        """Return when the next run may start; None if it may start now or Kubernetes restarts the driver."""
        due = None if self.last is None or self.given_up else retry_at(self.last, self.failures)
        return due if due is not None and due > now else None


@dataclass(frozen=True)
class DriverTarget:
    """Spec that the driver should run, with its failed runs.

    ``rejected`` is the applied spec if it did not become healthy and was rolled back. ``wake`` is when to check the
    driver's health again.
    """

    query: StreamQuery
    revision: str
    tally: FailedRuns
    rejected: RejectedSpec | None = None
    wake: datetime | None = None

    @property
    def running(self) -> bool:
        """Whether the user wants a driver."""
        return self.query.spec.state is QueryState.RUNNING


def target_of(seen: ObservedQuery, query: StreamQuery, now: datetime) -> DriverTarget:
    """Return the spec to follow now; roll back if the applied spec did not become healthy."""
    wanted, rejected = revision(query.spec), seen.status.rejected
    if rejected is not None and rejected.revision == wanted and seen.healthy is not None:
        return _rolled_back(seen, query, rejected, now)
    target = DriverTarget(query, wanted, _tally(seen, wanted, now))
    if not target.running:  # a resumed query gets a fresh start
        return replace(target, tally=replace(target.tally, failures=0))
    if seen.healthy is None or seen.healthy[0] == wanted:
        return target
    if reason := _unhealthy(seen, target, now):
        given_up = RejectedSpec(
            revision=wanted, generation=seen.generation, time=stamp(now), message=shortened(reason, 2048)
        )
        back = _rolled_back(seen, query, given_up, now)
        return replace(back, tally=replace(back.tally, attempts=target.tally.attempts))
    pod = _own_pod(seen, wanted)
    since = unmade_since(seen, wanted, target.tally, now) if pod is None else moment(created(pod))
    return target if since is None else replace(target, wake=since + HEALTH_DEADLINE)


def healthy_from(pod: Manifest | None) -> datetime | None:
    """Return when the driver's spec will count as healthy if the driver stays ready; None if it is not ready."""
    since = None if pod is None else ready_since(pod)
    return None if since is None else since + HEALTHY_AFTER


def _rolled_back(seen: ObservedQuery, query: StreamQuery, rejected: RejectedSpec, now: datetime) -> DriverTarget:
    """Return the last healthy spec, with the in-place fields of the applied one."""
    assert seen.healthy is not None
    healthy, spec = seen.healthy
    spec = with_in_place(spec, query.spec)
    return DriverTarget(query.model_copy(update={"spec": spec}), healthy, _tally(seen, healthy, now), rejected)


def followed(seen: ObservedQuery, spec: Spec) -> Spec:
    """Return the spec that the driver should run: ``spec``, or after a rollback the last healthy one.

    The in-place fields are always those of ``spec``.
    """
    rejected, healthy = seen.status.rejected, seen.healthy
    if rejected is None or healthy is None or rejected.revision != revision(spec):
        return spec
    return with_in_place(healthy[1], spec)


def _unhealthy(seen: ObservedQuery, target: DriverTarget, now: datetime) -> str:
    """Return why a changed spec is rolled back; empty if it is not."""
    tally, pod = target.tally, _own_pod(seen, target.revision)
    limited = tally.last is not None and patience_with(tally.last).runs is not None
    if tally.last is not None and limited and (tally.given_up or tally.alike >= RUNS_TO_ROLL_BACK):
        return f"{tally.last.reason}: {tally.last.message}"
    if pod is None:
        since = unmade_since(seen, target.revision, tally, now)
        return NOT_MADE if since is not None and now >= since + HEALTH_DEADLINE else ""
    if ready_since(pod) is not None or now < moment(created(pod)) + HEALTH_DEADLINE:
        return ""
    return f"not ready within {HEALTH_DEADLINE.seconds // 60} minutes: {waiting_for(pod)}"


def unmade_since(seen: ObservedQuery, wanted: str, tally: FailedRuns, now: datetime) -> datetime | None:
    """Return since when the driver's pod has been missing; None if it exists or is not expected."""
    if seen.status.revision != wanted:  # the revision has just been applied
        return None
    progress = condition_of(seen.status, ConditionType.PROGRESSING)
    if seen.driver is not None or tally.retry_time(now) is not None or tally.given_up:
        return None
    if progress is None or progress.status is not ConditionStatus.TRUE:
        return None
    changed, last = seen.status.revision_time, None if tally.last is None else retry_at(tally.last, tally.failures)
    times = [moment(progress.last_transition_time), None if changed is None else moment(changed), last]
    return max(each for each in times if each is not None)


def is_unmade(seen: ObservedQuery, target: DriverTarget, now: datetime) -> bool:
    """Return whether the driver's pod has been missing for at least ``UNMADE_AFTER``."""
    since = unmade_since(seen, target.revision, target.tally, now)
    return target.running and since is not None and now >= since + UNMADE_AFTER


def _not_later(attempt: Attempt, now: datetime) -> Attempt:
    """Cap the attempt's time at ``now``: a node's clock may be ahead, which would delay the retry."""
    return attempt if moment(attempt.time) <= now else attempt.model_copy(update={"time": stamp(now)})


def _own_pod(seen: ObservedQuery, wanted: str) -> Manifest | None:
    """Return the driver's pod if it was created from this revision."""
    return seen.driver if seen.revision == wanted else None


def _tally(seen: ObservedQuery, wanted: str, now: datetime) -> FailedRuns:
    """Return the failed runs counted so far plus those that the pod newly shows."""
    before, pod = seen.status, _own_pod(seen, wanted)
    failures = before.failures if before.revision == wanted else 0
    if pod is None or "deletionTimestamp" in pod["metadata"]:
        return FailedRuns(before.attempts, failures)
    known = {each.run for each in before.attempts}
    new = [_not_later(each, now) for each in failed_runs(pod) if each.run not in known]
    healthy = healthy_from(pod)
    failures = 0 if healthy is not None and healthy <= now else failures + len(new)
    return FailedRuns((*before.attempts, *new)[-10:], failures)


def plan_for(seen: ObservedQuery, query: StreamQuery, scaled: Scaled | None = None) -> Plan:
    """Return the current plan with the changes of the spec or, if there are none, of scaling; within the spec's bounds.

    A plan is written to the status before it is written for the driver. After a crash, the status has the newer plan.
    """
    held = _held(seen, query.spec)
    if held is None:
        return Plan.initial(query.spec)
    wanted, before = json.loads(asked(query)), seen.asked
    changes: Mapping[str, Any] = {}
    if before is not None and before.get("replanNonce") != wanted["replanNonce"]:
        changes = wanted
    elif before is not None and before != wanted:
        changes = {name: value for name, value in wanted.items() if before.get(name) != value}
    elif scaled is not None and scaled.change is not None and scaled.epoch == held.epoch:
        changes = scaled.change.to_document()
    return _next(held, changes, query.spec)


def shape_of(plan: Plan) -> PlanShape:
    """Return the part of a plan that scaling changes."""
    return PlanShape(executors=plan.executors, parallelism=plan.parallelism, replicas=plan.replicas)


def _held(seen: ObservedQuery, spec: Spec) -> Plan | None:
    """Return the newer of the plan written for the driver and the plan announced in the status."""
    announced, written = seen.status.plan, seen.plan
    if announced is None or (written is not None and written.epoch >= announced.epoch):
        return written
    return _announced(announced, spec, written)


def _announced(plan: PlanStatus, spec: Spec, written: Plan | None) -> Plan:
    same = written is not None and written.algorithm is plan.algorithm
    parameters = written.parameters if written is not None and same else spec.partitioner.parameters
    return Plan(
        epoch=plan.epoch,
        algorithm=plan.algorithm,
        parameters=parameters,
        replicas=plan.replicas,
        parallelism=plan.parallelism,
        executors=plan.executors,
    )


def _next(held: Plan, changes: Mapping[str, Any], spec: Spec) -> Plan:
    """Return the plan with the changes, within bounds; a changed plan gets a new epoch."""
    document = held.to_document() | {name: value for name, value in changes.items() if name != "replanNonce"}
    for name, bounds in _bounds(spec).items():
        document[name] = max(bounds.min, min(document[name], bounds.max))
    plan = Plan.model_validate(document, by_name=False)
    return plan if plan == held else plan.model_copy(update={"epoch": held.epoch + 1})


def _bounds(spec: Spec) -> Mapping[str, Any]:
    return {"executors": spec.executors, "parallelism": spec.parallelism, "replicas": spec.partitioner.replicas}
