"""Result of a scaling check, in the types of the status."""

from __future__ import annotations

from dataclasses import dataclass

from millrace_api.model.status import Condition, LastScaling, ObservedLoad, PlanShape


@dataclass(frozen=True)
class Scaled:
    """Result of one scaling check of a running query.

    Attributes:
        uid: uid of the query.
        account: account of the last decision for another plan; None before the first.
        change: plan to change to from the plan of ``epoch``; None for no change.
        epoch: epoch of the plan that was checked.
        load: observed load of the job; None without an observation.
        conditions: MetricsAvailable, ScalingActive and AtCapacity.
    """

    uid: str = ""
    account: LastScaling | None = None
    change: PlanShape | None = None
    epoch: int = 0
    load: ObservedLoad | None = None
    conditions: tuple[Condition, ...] = ()
