"""Scaling part of a query's status, and which changes of it deserve a write; pure functions."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum

from millrace_api.model.deployment import Placement, ScalingMode
from millrace_api.model.plan import Plan
from millrace_api.model.status import Condition, ConditionType, LastScaling, ObservedLoad, PlanShape
from millrace_api.model.streamquery import Annotation, Spec

from ...scaling.decision.decision import Decision, Reason
from ...scaling.decision.settings import Guard
from ...scaling.observation import Answer, NoAnswerReason
from ...scaling.serial_time import SerialTime
from ...scaling.shape import Shape
from ..conditions import condition, format_time, shortened
from .ineffective import ineffective_condition

REFRESH_SECONDS = 120.0
"""Seconds between two writes of changed numbers in the status if nothing notable happens."""

NOTABLE = 0.1
"""Change of utilization that is written to the status at once."""


_LEAST_MILLIONS = 0.001
"""Millions of records in an hour from which a cost for each is stated: an idle query has none."""


class MetricsReason(StrEnum):
    """Reason of the MetricsAvailable condition."""

    AVAILABLE = "Available"
    """Metrics are available."""
    NO_PROMETHEUS = "NoPrometheus"
    """The operator was started without the URL of a Prometheus."""
    UNREACHABLE = "PrometheusUnreachable"
    """Prometheus does not answer, or refuses the query."""
    NO_ANSWER = "NoAnswer"
    """Prometheus has no metrics of the query, or no reliable ones."""


class ActiveReason(StrEnum):
    """Reason of the ScalingActive condition."""

    ACTIVE = "Active"
    """Decisions are carried out."""
    ADVISE = "AdviseOnly"
    """``spec.scaling.mode`` is Advise: decisions are reported but not carried out."""
    OFF = "Off"
    """``spec.scaling.mode`` is Off."""
    PAUSED = "Paused"
    """An annotation pauses all scaling."""
    NO_METRICS = "NoMetrics"
    """Scaling needs metrics, and there are none."""
    NOT_RUNNING = "NotRunning"
    """The query does not run."""
    STARTING = "Starting"
    """The query runs, and nothing has been decided yet."""
    NOT_FOLLOWED = "SpecNotFollowed"
    """The spec is invalid, or the API server refuses what it takes; the message of Ready says which."""


class LimitedReason(StrEnum):
    """Reason of the ScalingLimited condition; the guard that limits the query is a possible reason too."""

    WITHIN_LIMITS = "WithinLimits"
    """The query has the executors that it needs, as far as they are known."""


@dataclass(frozen=True)
class ScalingResult:
    """Result of one scaling check of a running query.

    Attributes:
        last_scaling: status entry of the last decision for another shape; None before the first.
        change: shape to change to from the plan of ``epoch``; None for no change.
        placement: placement to change to together with ``change``; None for no change.
        epoch: epoch of the plan that was checked.
        load: observed load of the job; None without an observation.
        conditions: MetricsAvailable, ScalingActive, ScalingLimited and ScalingIneffective.
    """

    last_scaling: LastScaling | None = None
    change: Shape | None = None
    placement: Placement | None = None
    epoch: int = 0
    load: ObservedLoad | None = None
    conditions: tuple[Condition, ...] = ()

    def is_in(self, plan: Plan) -> bool:
        """Return whether a plan has the change."""
        shape = Shape(plan.executors, plan.parallelism, plan.replicas)
        return self.change == shape and self.placement in (None, plan.placement)

    def deserves_write(self, before: ScalingResult, seconds: float) -> bool:
        """Return whether to report this, ``seconds`` after ``before`` was; small changes of the load wait."""
        if self.change is not None or self.last_scaling != before.last_scaling:
            return True
        if self._states() != before._states():
            return True
        return self.load != before.load and (seconds >= REFRESH_SECONDS or _is_notable(before.load, self.load))

    def _states(self) -> list[tuple[object, ...]]:
        """Return the conditions without their messages, which contain numbers."""
        return [(each.status, each.reason, each.observed_generation) for each in self.conditions]


def is_missing(decision: Decision) -> bool:
    """Return whether metrics are missing or unreliable; normal gaps, such as no new batch, do not count."""
    if decision.reason is not Reason.NO_ANSWER:
        return False
    usual = (NoAnswerReason.NO_BATCH, NoAnswerReason.OTHER_PLAN, NoAnswerReason.COUNTER_RESET)
    return not decision.detail.startswith(tuple(f"{each}:" for each in usual))


def scaling_conditions(
    spec: Spec,
    decision: Decision | None,
    metrics: tuple[MetricsReason, str],
    generation: int,
    now: datetime,
    *,
    paused: bool,
    serial: SerialTime | None = None,
) -> tuple[Condition, ...]:
    """Return the scaling conditions; ``decision`` is the last one based on an answer, ``serial`` of the newest one."""
    available = metrics[0] is MetricsReason.AVAILABLE
    sentence = "" if decision is None else shortened(decision.sentence)
    active, why = _activity(spec, decision, sentence, available=available, paused=paused)
    shortage = _shortage(decision)
    limited = (shortage is not None, shortage or LimitedReason.WITHIN_LIMITS, sentence if shortage else "")
    return (
        condition(ConditionType.METRICS_AVAILABLE, available, *metrics, generation, now),
        condition(ConditionType.SCALING_LIMITED, *limited, generation, now),
        ineffective_condition(spec, serial, _unknown(decision, serial, available=available), generation, now),
        condition(ConditionType.SCALING_ACTIVE, active is ActiveReason.ACTIVE, active, why, generation, now),
    )


def _unknown(decision: Decision | None, serial: SerialTime | None, *, available: bool) -> ActiveReason | None:
    """Return why it is not known whether more executors would help; None if it is."""
    if not available:
        return ActiveReason.NO_METRICS
    return ActiveReason.STARTING if serial is None else None


def undecided(reason: ActiveReason, generation: int, now: datetime) -> tuple[Condition, ...]:
    """Return the scaling conditions of a query that is not scaled; all have this reason."""
    return (
        condition(ConditionType.METRICS_AVAILABLE, None, reason, "", generation, now),
        condition(ConditionType.SCALING_LIMITED, None, reason, "", generation, now),
        condition(ConditionType.SCALING_INEFFECTIVE, None, reason, "", generation, now),
        condition(ConditionType.SCALING_ACTIVE, False, reason, "", generation, now),
    )


def load_of(decision: Decision, answer: Answer, ready: int, cores: float) -> ObservedLoad | None:
    """Return the observed load of the job, whose pods request ``cores``; None if the decision has no inputs."""
    inputs = decision.inputs
    if not decision.plan.executors and decision.reason is Reason.AT_REST and not decision.detail:
        return _load_at_rest(answer, ready, cores)
    if inputs is None:
        return None
    million = inputs.arrival * 3600 / 1e6
    return ObservedLoad(
        utilization=round(inputs.utilization, 3),
        processing_seconds=round(inputs.utilization * inputs.interval, 3),
        input_rate=round(inputs.arrival, 1),
        lag=round(inputs.lag),
        imbalance=None if answer.imbalance is None else round(answer.imbalance, 3),
        executors_ready=ready,
        cores=round(cores, 3),
        core_hours_per_million_records=float(f"{cores / million:.3g}") if million >= _LEAST_MILLIONS else None,
        observed_time=format_time(datetime.fromtimestamp(answer.time, UTC)),
    )


_MOST_LAG = 2.0**53
"""Largest lag that is reported of a job at rest: what JSON readers take for a whole number."""


def _load_at_rest(answer: Answer, ready: int, cores: float) -> ObservedLoad:
    """Return the load of a job that runs no batch; nothing has checked the numbers of the answer."""
    lag = answer.lag_rows or 0.0
    return ObservedLoad(
        utilization=0.0,
        processing_seconds=0.0,
        input_rate=0.0,
        lag=round(min(lag, _MOST_LAG)) if math.isfinite(lag) and lag > 0 else 0,
        executors_ready=ready,
        cores=round(cores, 3),
        observed_time=format_time(datetime.fromtimestamp(answer.time, UTC)),
    )


def placement_of(decision: Decision) -> Placement | None:
    """Return the placement that a decision changes to; None if replicas stay where they are."""
    if decision.dedicated is None:
        return None
    return Placement.DEDICATED if decision.dedicated else Placement.INLINE


def last_scaling_of(decision: Decision, last: LastScaling | None) -> LastScaling | None:
    """Return the status entry of a decision for another shape, applied or advised; None for no change or old advice."""
    wanted = decision.plan if decision.changed else _advised(decision)
    if wanted is None:
        return None
    after = _plan_shape(wanted)
    if not decision.changed and last is not None and (last.to, last.reason) == (after, str(decision.reason)):
        return None
    chosen = decision.chosen
    return LastScaling.model_validate(
        {
            "time": format_time(datetime.fromtimestamp(decision.time, UTC)),
            "from": _plan_shape(decision.before),
            "to": after,
            "reason": str(decision.reason),
            "message": shortened(decision.sentence),
            "predicted": None if chosen is None else round(chosen.utilization, 3),
        }
    )


def with_outcome(last: LastScaling | None, decision: Decision) -> LastScaling | None:
    """Return the last scaling with the utilization observed after its change, once known."""
    outcome, inputs = decision.outcome, decision.inputs
    if last is None or outcome is None or inputs is None or last.observed is not None:
        return last
    if _plan_shape(outcome.change.after) != last.to:
        return last
    return last.model_copy(update={"observed": round(outcome.observed / inputs.interval, 3)})


def _is_notable(before: ObservedLoad | None, now: ObservedLoad | None) -> bool:
    if before is None or now is None:
        return True
    difference = abs((now.utilization or 0.0) - (before.utilization or 0.0))
    return difference >= NOTABLE or bool(now.lag) != bool(before.lag)


def _activity(
    spec: Spec, decision: Decision | None, sentence: str, *, available: bool, paused: bool
) -> tuple[ActiveReason, str]:
    if spec.scaling.mode is ScalingMode.OFF:
        return ActiveReason.OFF, "spec.scaling.mode is Off"
    if not available:
        return ActiveReason.NO_METRICS, "nothing is scaled without metrics"
    if paused:
        held = decision is not None and decision.guard is Guard.PAUSED
        return ActiveReason.PAUSED, sentence if held else f"the annotation {Annotation.PAUSED} is set"
    return (ActiveReason.ACTIVE if spec.scaling.mode is ScalingMode.ACTIVE else ActiveReason.ADVISE), sentence


LIMITS = (Guard.BOUNDS, Guard.QUOTA, Guard.CLUSTER, Guard.SCALE_OUT_PAUSED, Guard.INEFFECTIVE)
"""The guards that can keep a query from the executors that it needs."""


def _shortage(decision: Decision | None) -> str | None:
    """Return what keeps the query from getting the executors that it needs; None if nothing does."""
    if decision is None:
        return None
    limited = decision.reason is Reason.AT_CAPACITY or decision.guard in (Guard.QUOTA, Guard.CLUSTER)
    return str(decision.guard or decision.reason) if limited else None


def _advised(decision: Decision) -> Shape | None:
    chosen = decision.chosen
    if decision.guard is not Guard.ADVISE or chosen is None or chosen.plan == decision.before:
        return None
    return chosen.plan


def _plan_shape(shape: Shape) -> PlanShape:
    return PlanShape(**asdict(shape))
