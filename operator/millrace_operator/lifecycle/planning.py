"""Choice of the plan that a query should follow; pure functions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from millrace_api.model.plan import Plan
from millrace_api.model.status import PlanShape, PlanStatus
from millrace_api.model.streamquery import Spec, StreamQuery

from ..resources.objects import asked
from .observe import ObservedQuery
from .scaled import Scaled


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
