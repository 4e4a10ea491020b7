"""The plan that a driver runs under next: the current one, as the spec or else scaling changes it. Pure functions.

Next, ``resources.manifests`` makes the objects, for ``step``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from millrace_api.model.deployment import Placement
from millrace_api.model.plan import FIRST_EPOCH, Applied, Plan
from millrace_api.model.streamquery import Spec, StreamQuery

from ..resources.manifests import AUTO_FOR, plan_settings
from ..scaling.shape import Shape
from .autoscaling.scaling_inputs import bounds_of
from .autoscaling.scaling_status import ScalingResult
from .observed_query import ObservedQuery

_LOST_EPOCHS = 100_000
"""Plans that a restored backup may lack."""


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
    if before is None and plan.epoch == FIRST_EPOCH:  # nothing is written for the driver yet
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
    document = plan.to_document() | {name: value for name, value in changes.items() if name != AUTO_FOR}
    shape = Shape(document["executors"], document["parallelism"], document["replicas"])
    document |= asdict(bounds_of(spec).nearest(shape))
    changed = Plan.model_validate(document, by_name=False)
    return plan if changed == plan else changed.model_copy(update={"epoch": plan.epoch + 1})
