"""What scaling has to say of a query, as its status needs it."""

from __future__ import annotations

from dataclasses import dataclass

from millrace_api.model.status import Condition, LastScaling, ObservedLoad, PlanShape


@dataclass(frozen=True)
class Scaled:
    """One look at a running query.

    Attributes:
        uid: of the query.
        account: of the last decision that was for another plan; None before the first.
        change: the plan that it decided, where it is to be carried out and was for the plan of ``epoch``.
        epoch: of the plan that was looked at.
        load: what the job was seen doing; None where nothing was seen.
        conditions: MetricsAvailable, ScalingActive and AtCapacity.
    """

    uid: str = ""
    account: LastScaling | None = None
    change: PlanShape | None = None
    epoch: int = 0
    load: ObservedLoad | None = None
    conditions: tuple[Condition, ...] = ()
