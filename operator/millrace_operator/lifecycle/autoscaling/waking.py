"""The end of a query's rest: a plan without executors gets some as soon as its driver reports tasks that wait.

A batch that waits reports no metrics, so the scaler, which decides by them, does not take part. ``reconcile`` asks
after each event, such as the driver's report, which is its change of the plan's ConfigMap.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import datetime

from millrace_api.model.status import LastScaling, PlanShape
from millrace_api.model.streamquery import Spec

from ...scaling.decision.decision import Reason
from ..conditions import format_time
from ..observed_query import ObservedQuery
from .scaling_inputs import bounds_of, shape_of
from .scaling_status import ScalingResult


def woken(
    observed: ObservedQuery, spec: Spec | None, scaling: ScalingResult | None, now: datetime
) -> ScalingResult | None:
    """Return the scaling result that ends the query's rest if tasks wait for executors; otherwise ``scaling``.

    It does so in every mode of scaling: without executors, nothing is computed at all.
    """
    plan = observed.plan
    if plan is None or spec is None or plan.executors or not observed.driver_waits.executors:
        return scaling
    last, before = observed.status.last_scaling, shape_of(plan)
    rested = last is not None and last.to.executors == 0
    former = last.from_.executors if last is not None and rested else 1
    after = bounds_of(spec, plan.placement).nearest(replace(before, executors=max(former, 1)))
    as_before = ", as before the rest" if rested and after.executors == former else ""
    entry = LastScaling.model_validate(
        {
            "time": format_time(now),
            "from": PlanShape(**asdict(before)),
            "to": PlanShape(**asdict(after)),
            "reason": str(Reason.WOKEN),
            "message": f"{before} -> {after}{as_before}, since tasks wait for executors.",
        }
    )
    found = ScalingResult() if scaling is None else scaling
    return replace(found, last_scaling=entry, change=after, placement=None, epoch=plan.epoch)
