"""A decision about the size of a job, with everything that it rests on, whether it is held back, and its words.

``lifecycle.autoscaling.scaling_status`` has what the status says of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from ..seasons import in_words
from ..serial_time import SerialTime
from ..shape import Shape
from ..zones import LoadDriver, Zone
from .changes import ChangeOutcome
from .search import REPLICAS, Forecast
from .settings import Guard, Mode, Settings


class Reason(StrEnum):
    """The reason for a decision; if a guard decided, the reason is that ``Guard`` instead."""

    OFF = "Off"
    """Scaling is switched off."""
    NO_ANSWER = "NoAnswer"
    """The metrics are missing or unreliable; ``Decision.detail`` says why."""
    STABLE = "Stable"
    """The plan fits the load."""
    DRAINING = "Draining"
    """Batches are long because they catch up; the plan drains the lag in time."""
    SCALE_OUT = "ScaleOut"
    """More cores are needed."""
    SCALE_IN = "ScaleIn"
    """Fewer cores are enough."""
    RESHAPE = "Reshape"
    """Other tasks on as many cores are enough."""
    TRIAL = "Trial"
    """No plan is predicted to be enough; one with more executors than have run lately is tried."""
    AT_CAPACITY = "AtCapacity"
    """More cores are needed than are allowed or would help; the plan is the best that is allowed."""
    UNDONE = "Undone"
    """A step did not help and is taken back."""
    OUT_OF_BOUNDS = "OutOfBounds"
    """The plan was outside the bounds, which have changed."""
    AT_REST = "AtRest"
    """No batch has run for long, so that no executor is needed."""
    WOKEN = "Woken"
    """Tasks wait for executors in a job at rest, or will soon: it gets those back that it had before."""
    SCHEDULED = "Scheduled"
    """The plan has the minimum of executors that spec.scaling.schedule asks for now."""
    TO_DEDICATED = "ToDedicated"
    """With placement Auto: replicas in pods of their own are expected to take fewer cores than the batch does."""
    TO_INLINE = "ToInline"
    """With placement Auto: replicas in pods of their own do not pay, or do not run."""


@dataclass(frozen=True)
class Situation:
    """What is known of a job besides metrics; all times are of one clock, in seconds.

    Attributes:
        now: the current time.
        plan: the plan that was decided last.
        epoch: the epoch of that plan.
        executors_ready: executors that are running.
        executors_pending_since: when the executor that has been pending longest was requested; None if none is pending.
        executors_quota: executors that the quotas of the namespace allow; None if they do not limit them.
        paused, scale_in_paused, scale_out_paused: what the user has paused.
        dedicated: whether the plan has replicas in pods of their own.
        replicas_ready: such pods that are ready; None if unknown.
        applied_epoch: epoch of the last plan that the driver has acknowledged; None before the first.
        quota_reason: which quota allows no more executors, and why; may be empty.
        scheduled_minimum: executors that the user's schedule asks for at ``now``; 0 if it asks for none.
        can_rest: whether the driver follows a plan without executors, and reports tasks that wait for one.
        tasks_wait: whether it has reported that; it has taken an executor by itself.
    """

    now: float
    plan: Shape
    epoch: int
    executors_ready: int
    executors_pending_since: float | None = None
    executors_quota: int | None = None
    paused: bool = False
    scale_in_paused: bool = False
    scale_out_paused: bool = False
    dedicated: bool = False
    replicas_ready: int | None = None
    applied_epoch: int | None = None
    quota_reason: str = ""
    scheduled_minimum: int = 0
    can_rest: bool = False
    tasks_wait: bool = False

    @property
    def minimum_now(self) -> int:
        """The executors of the schedule, as far as the quota and a pause of scaling out allow them."""
        least = self.scheduled_minimum
        if self.executors_quota is not None:
            least = min(least, self.executors_quota)
        return min(least, self.plan.executors) if self.scale_out_paused else least

    @property
    def exceeds_quota(self) -> bool:
        """Whether the plan has more executors than the quota allows, so that some of them will not come."""
        return self.executors_quota is not None and self.plan.executors > self.executors_quota


@dataclass(frozen=True)
class Inputs:
    """The numbers that a decision rests on.

    Attributes:
        interval: the batch interval, seconds.
        utilization: observed W of the last batches.
        at_arrival: W that the model expects without records that are only caught up; or the busy share of the
            partitioner pods, if that is higher.
        batches_at_arrival: the same for batches alone.
        arrival: records per second that arrive.
        growth: growth of the arrival rate since the last change, as a share of the rate then; None without a change.
        lag: records that wait at the source.
        demand: records per second that the plan is made for, including growth until executors are ready, and the lag.
        keys: distinct keys of a batch, None if unknown.
        period: seconds after which a rise is expected to come again, which ``demand`` includes; None if it has none.
    """

    interval: float
    utilization: float
    at_arrival: float
    batches_at_arrival: float
    arrival: float
    growth: float | None
    lag: float
    demand: float
    keys: float | None
    period: float | None = None


@dataclass(frozen=True)
class Decision:
    """A scaling decision: what to do, and why.

    Attributes:
        time: when it was made, seconds.
        before: the plan so far.
        plan: the plan to run under from now on.
        reason: a ``Reason``, or a ``Guard`` if a guard decided.
        guard: the guard that limits the plan or holds it back; None if none does.
        detail: explains the reason: the fault in the metrics, what the guard says, or why a change is held back.
        zone, drivers: the zone of W, and what drives it; None and empty without an answer.
        inputs: the numbers; None without an answer.
        present, chosen: forecasts for the plan before and for the best plan, whether or not it is adopted.
        ruled_out: other plans, and why each was ruled out.
        outcome: the outcome of the last change whose effect is known; None before the first.
        serial: what of the last batches more executors do not shorten; None if too little was measured.
        dedicated: where replicas move with ``plan``: to pods of their own, or to tasks; None if they stay.
        placement: with placement Auto, what was last found of both placements; otherwise empty.
        sentence: the decision in one plain sentence.
    """

    time: float
    before: Shape
    plan: Shape
    reason: Reason | Guard
    guard: Guard | None = None
    detail: str = ""
    zone: Zone | None = None
    drivers: frozenset[LoadDriver] = frozenset()
    inputs: Inputs | None = None
    present: Forecast | None = None
    chosen: Forecast | None = None
    ruled_out: tuple[tuple[Shape, str], ...] = ()
    outcome: ChangeOutcome | None = None
    serial: SerialTime | None = None
    dedicated: bool | None = None
    placement: str = ""
    sentence: str = ""

    @property
    def changed(self) -> bool:
        """Whether the plan differs from the one before."""
        return self.plan != self.before or self.dedicated is not None

    @property
    def prediction_error(self) -> float | None:
        """Predicted minus observed batch time after the change of ``outcome``, as a share of the observed."""
        return self.outcome.error if self.outcome is not None else None


def held(decision: Decision, settings: Settings, situation: Situation) -> Decision:
    """Return the decision, but keep the present plan if everything is paused or the mode is Advise."""
    if not decision.changed:
        return decision
    if situation.paused and Guard.PAUSED in settings.guards:
        guard = Guard.PAUSED
    elif settings.mode is Mode.ADVISE and Guard.ADVISE in settings.guards:
        guard = Guard.ADVISE
    else:
        return decision
    return replace(decision, plan=situation.plan, reason=guard, guard=guard, detail=str(decision.reason))


_WAITING: dict[Reason | Guard, str] = {
    Reason.STABLE: "it fits the load",
    Reason.DRAINING: "batches are long because they catch up",
    Guard.COOLDOWN: "the effect of the last change is not known yet",
    Guard.CALIBRATING: "there are too few observations to predict",
    Guard.UNCERTAIN: "the prediction is too wide to release cores",
    Guard.SCALE_IN_DELAYED: "cores are released only if less has been enough for longer",
    Guard.FLAPPING: "fewer did not suffice at this load",
    Guard.SCALE_IN_PAUSED: "scaling in is paused",
}


def sentence(decision: Decision, settings: Settings) -> str:
    """Return what is decided and why, with the numbers, as one sentence."""
    if decision.reason is Reason.OFF:
        return "Scaling is switched off."
    if decision.reason is Reason.NO_ANSWER:
        return f"Nothing is decided, since the metrics cannot be relied on ({decision.detail})."
    if decision.reason is Reason.OUT_OF_BOUNDS:
        return f"{_arrow(decision)}, since the bounds have changed."
    if decision.reason is Reason.SCHEDULED:
        return f"{_arrow(decision)}, since spec.scaling.schedule asks for {decision.detail}."
    if decision.reason is Reason.WOKEN:
        return f"{_arrow(decision)}, since {decision.detail}."
    if decision.reason is Reason.AT_REST:
        return _of_rest(decision)
    if decision.reason is Reason.UNDONE and decision.outcome is not None:
        return f"{_arrow(decision)}: {_no_help(decision.outcome)}."
    return f"{observed_load(decision)}: {_conclusion(decision, settings)}."


def _of_rest(decision: Decision) -> str:
    woken = "executors start again when tasks wait for them"
    if decision.changed:
        return f"{_arrow(decision)}, since {decision.detail}; {woken}."
    return (
        f"{decision.plan} stays, since {decision.detail}."
        if decision.detail
        else (f"{decision.plan} stays while no record arrives; {woken}.")
    )


def _conclusion(decision: Decision, settings: Settings) -> str:
    reason = decision.reason
    if reason in (Guard.PAUSED, Guard.ADVISE):
        why = "everything is paused" if reason is Guard.PAUSED else "scaling is not active"
        chosen = decision.chosen
        best = f"{decision.before} -> {chosen.plan} would be best {_predicted(chosen)}" if chosen else "a change is due"
        return f"{best}, but {why}"
    if reason is Reason.TRIAL:
        return (
            f"{_arrow(decision)} is tried in proportion to W, since no plan that ran lately is predicted to be enough"
        )
    if reason is Reason.AT_CAPACITY:
        useless = (
            "no plan is predicted to be enough" if decision.changed else "more cores would not make batches shorter"
        )
        if decision.serial is not None and decision.serial.exceeds:
            useless = f"{decision.serial}"
        why = decision.detail or useless
        return f"{_arrow(decision)} is the best there is {_predicted(decision.chosen)}, since {why}"
    if reason in (Guard.CLUSTER, Guard.QUOTA):
        return f"{_arrow(decision)} is the best for the executors that are ready, since {decision.detail}"
    if reason is Guard.CALIBRATING and decision.changed:
        return f"{_arrow(decision)} in proportion to W, since there are too few observations to predict"
    if not decision.changed:
        return f"{decision.before} stays, since {decision.detail or _WAITING.get(reason, str(reason))}"
    limit = settings.target if reason is not Reason.SCALE_IN else settings.target - settings.step / 2
    text = f"{_arrow(decision)} is the cheapest plan with W under {limit:.2f} {_predicted(decision.chosen)}"
    if decision.guard is not None:
        text += f" and allowed, since {decision.detail}"
    return f"{text}; {_bottleneck(decision.chosen)}"


def observed_load(decision: Decision) -> str:
    """Return W and what arrives, as the beginning of a sentence."""
    inputs = decision.inputs
    if inputs is None:
        return "No batch has been seen"
    if not inputs.utilization and not inputs.arrival and not inputs.lag:
        return "No records arrive, and no batch runs"
    seconds = inputs.utilization * inputs.interval
    text = f"W was {inputs.utilization:.2f} (batches took {seconds:.2f} s, the interval is {inputs.interval:g} s)"
    text += f", and {inputs.arrival:,.0f} records/s arrive"
    if inputs.growth is not None and abs(inputs.growth) >= 0.005:
        share = f"{abs(inputs.growth):.0%} {'more' if inputs.growth > 0 else 'less'} than"
        text += f", {from_before(inputs) or share} at the last change"
    if inputs.at_arrival > inputs.batches_at_arrival:
        text += f", which take {inputs.at_arrival:.0%} of the replicas' time"
    if inputs.lag:
        text += f", while {inputs.lag:,.0f} wait"
    if inputs.demand > inputs.arrival * 1.005:
        text += f"; the plan is for {inputs.demand:,.0f}"
        if inputs.period is not None:
            text += f", since a rise that came {in_words(inputs.period)} ago is expected to come again"
    return text


def from_before(inputs: Inputs) -> str:
    """Return what an arrival rate has grown from, as ``up from 20``; empty unless it has more than doubled.

    Above that, a share says less and less: a query that was changed before its records came has grown by 2062%.
    """
    if inputs.growth is None or inputs.growth <= 1:
        return ""
    before = inputs.arrival / (1 + inputs.growth)
    return f"up from {before:,.0f}" if before >= 10 else f"up from {before:.2g}"


def _arrow(decision: Decision) -> str:
    return f"{decision.before} -> {decision.plan}" if decision.changed else str(decision.plan)


def _predicted(chosen: Forecast | None) -> str:
    if chosen is None:
        return ""
    return f"(W {chosen.utilization:.2f} is predicted, {chosen.low:.2f} to {chosen.high:.2f})"


def _bottleneck(chosen: Forecast | None) -> str:
    if chosen is None:
        return ""
    if chosen.bottleneck == "fixed":
        return "fixed costs take longer than any stage"
    return f"{chosen.bottleneck} {'are' if chosen.bottleneck == REPLICAS else 'is'} the bottleneck"


def _no_help(outcome: ChangeOutcome) -> str:
    change = outcome.change
    return (
        f"{change.before} -> {change.after} did not help; batches took {outcome.observed:.2f} s where "
        f"{outcome.predicted:.2f} s were predicted, and {outcome.without:.2f} s without it"
    )
