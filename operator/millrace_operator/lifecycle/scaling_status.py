"""Scaling part of a query's status, and which changes of it deserve a write; pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from millrace_api.model.deployment import ScalingMode
from millrace_api.model.status import Condition, ConditionType, LastScaling, ObservedLoad, PlanShape
from millrace_api.model.streamquery import Spec

from ..scaling.decision.decision import Decision, Reason
from ..scaling.decision.settings import Guard
from ..scaling.observation import Answer, NoAnswerReason
from ..scaling.shape import Shape
from .conditions import condition, holds, shortened, stamp


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


REFRESH_SECONDS = 120.0
"""Seconds between two writes of changed numbers in the status if nothing notable happens."""

NOTABLE = 0.1
"""Change of utilization that is written to the status at once."""

_CAPACITY = (Guard.QUOTA, Guard.CLUSTER)


class MetricsReason(StrEnum):
    """Reason of the MetricsAvailable condition."""

    AVAILABLE = "Available"
    """There are metrics."""
    NO_PROMETHEUS = "NoPrometheus"
    """The operator knows no Prometheus to ask."""
    UNREACHABLE = "PrometheusUnreachable"
    """Prometheus does not answer, or refuses to."""
    NO_ANSWER = "NoAnswer"
    """Prometheus has no metrics of the query, or none that can be relied on."""


class ActiveReason(StrEnum):
    """Reason of the ScalingActive condition."""

    ACTIVE = "Active"
    """Decisions are carried out."""
    ADVISE = "AdviseOnly"
    """``spec.scaling.mode`` is Advise: decisions are reported, and not carried out."""
    OFF = "Off"
    """``spec.scaling.mode`` is Off."""
    PAUSED = "Paused"
    """An annotation forbids all changes."""
    NO_METRICS = "NoMetrics"
    """Nothing is scaled without metrics."""


class CapacityReason(StrEnum):
    """Reason of the AtCapacity condition; the guard that limits the query is a possible reason too."""

    SUFFICIENT = "Sufficient"
    """The query needs no more than it may have."""


def is_missing(decision: Decision) -> bool:
    """Return whether metrics are missing or unreliable; normal gaps, such as no new batch, do not count."""
    if decision.reason is not Reason.NO_ANSWER:
        return False
    usual = (NoAnswerReason.NO_BATCH, NoAnswerReason.OTHER_PLAN, NoAnswerReason.COUNTER_RESET)
    return not decision.detail.startswith(tuple(f"{each}:" for each in usual))


def conditions(
    spec: Spec, decision: Decision | None, metrics: tuple[MetricsReason, str], generation: int, now: datetime
) -> tuple[Condition, ...]:
    """Return the three scaling conditions; ``decision`` is the last one based on an answer."""
    available = metrics[0] is MetricsReason.AVAILABLE
    active, why = _activity(spec, decision, available=available)
    short, guard = _shortage(decision)
    return (
        condition(ConditionType.METRICS_AVAILABLE, holds(available), *metrics, generation, now),
        condition(ConditionType.AT_CAPACITY, holds(short), guard, why if short else "", generation, now),
        condition(ConditionType.SCALING_ACTIVE, holds(active is ActiveReason.ACTIVE), active, why, generation, now),
    )


def load_of(decision: Decision, answer: Answer, ready: int) -> ObservedLoad | None:
    """Return the observed load of the job; None if the decision has no inputs."""
    inputs = decision.inputs
    if inputs is None:
        return None
    return ObservedLoad(
        utilization=round(inputs.utilization, 3),
        processing_seconds=round(inputs.utilization * inputs.interval, 3),
        input_rate=round(inputs.arrival, 1),
        lag=round(inputs.lag),
        imbalance=None if answer.imbalance is None else round(answer.imbalance, 3),
        executors_ready=ready,
        observed_time=stamp(datetime.fromtimestamp(answer.time, UTC)),
    )


def account_of(decision: Decision, last: LastScaling | None) -> LastScaling | None:
    """Return the account of a decision for another plan, applied or advised; None for no change or old advice."""
    wanted = decision.plan if decision.changed else _advised(decision)
    if wanted is None:
        return None
    after = _shape(wanted)
    if not decision.changed and last is not None and (last.to, last.reason) == (after, str(decision.reason)):
        return None
    chosen = decision.chosen
    return LastScaling.model_validate(
        {
            "time": stamp(datetime.fromtimestamp(decision.time, UTC)),
            "from": _shape(decision.before),
            "to": after,
            "reason": str(decision.reason),
            "message": shortened(decision.sentence),
            "predicted": None if chosen is None else round(chosen.utilization, 3),
        }
    )


def with_outcome(account: LastScaling | None, decision: Decision) -> LastScaling | None:
    """Return the account with the utilization observed after its change, once known."""
    outcome, inputs = decision.outcome, decision.inputs
    if account is None or outcome is None or inputs is None or account.observed is not None:
        return account
    if _shape(outcome.change.after) != account.to:
        return account
    return account.model_copy(update={"observed": round(outcome.observed / inputs.interval, 3)})


def shape_for(decision: Decision) -> PlanShape | None:
    """Return the shape to change to; None if the current one stays."""
    return _shape(decision.plan) if decision.changed else None


def is_news(before: Scaled, now: Scaled, seconds: float) -> bool:
    """Return whether a result deserves a write, ``seconds`` after the last one; small changes of the load wait."""
    if now.change is not None or now.account != before.account:
        return True
    if _without_messages(now) != _without_messages(before):
        return True
    return now.load != before.load and (seconds >= REFRESH_SECONDS or _notable(before.load, now.load))


def _without_messages(scaled: Scaled) -> list[tuple[object, ...]]:
    """Return the conditions without their messages, which contain numbers."""
    return [(each.status, each.reason, each.observed_generation) for each in scaled.conditions]


def _notable(before: ObservedLoad | None, now: ObservedLoad | None) -> bool:
    if before is None or now is None:
        return True
    apart = abs((now.utilization or 0.0) - (before.utilization or 0.0))
    return apart >= NOTABLE or bool(now.lag) != bool(before.lag)


def _activity(spec: Spec, decision: Decision | None, *, available: bool) -> tuple[ActiveReason, str]:
    said = "" if decision is None else shortened(decision.sentence)
    if spec.scaling.mode is ScalingMode.OFF:
        return ActiveReason.OFF, "spec.scaling.mode is Off"
    if not available:
        return ActiveReason.NO_METRICS, "nothing is scaled without metrics"
    if decision is not None and decision.guard is Guard.PAUSED:
        return ActiveReason.PAUSED, said
    return (ActiveReason.ACTIVE if spec.scaling.mode is ScalingMode.ACTIVE else ActiveReason.ADVISE), said


def _shortage(decision: Decision | None) -> tuple[bool, str]:
    if decision is None or not (decision.reason is Reason.AT_CAPACITY or decision.guard in _CAPACITY):
        return False, CapacityReason.SUFFICIENT
    return True, str(decision.guard or decision.reason)


def _advised(decision: Decision) -> Shape | None:
    chosen = decision.chosen
    if decision.guard is not Guard.ADVISE or chosen is None or chosen.plan == decision.before:
        return None
    return chosen.plan


def _shape(plan: Shape) -> PlanShape:
    return PlanShape(executors=plan.executors, parallelism=plan.parallelism, replicas=plan.replicas)
