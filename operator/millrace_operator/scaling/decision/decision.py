"""A decision about the size of a job, with everything that it rests on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ..plans import Shape
from ..zones import Driver, Zone
from .changes import ChangeOutcome
from .search import Forecast
from .settings import Guard


class Reason(StrEnum):
    """The reason for a decision; if a guard decided, the reason is that ``Guard`` instead."""

    OFF = "Off"
    """Scaling is switched off."""
    NO_ANSWER = "NoAnswer"
    """The metrics say nothing that can be relied on; ``Decision.detail`` says why."""
    STABLE = "Stable"
    """The plan fits the load."""
    DRAINING = "Draining"
    """Batches are long since they catch up; the plan drains the lag in time."""
    SCALE_OUT = "ScaleOut"
    """More cores are needed."""
    SCALE_IN = "ScaleIn"
    """Fewer cores are enough."""
    RESHAPE = "Reshape"
    """Other tasks on as many cores are enough."""
    TRIAL = "Trial"
    """No plan is predicted to be enough, but one with so many executors has never run: it is tried."""
    AT_CAPACITY = "AtCapacity"
    """More is needed than allowed or than helps; the plan is the best of what is allowed."""
    UNDONE = "Undone"
    """A step did not help and is taken back."""
    OUT_OF_BOUNDS = "OutOfBounds"
    """The plan was outside the bounds, which have changed."""


@dataclass(frozen=True)
class Situation:
    """What is known of a job besides metrics; all times are of one clock, in seconds.

    Attributes:
        now: the current time.
        plan: the plan that was decided last.
        epoch: the epoch of that plan.
        executors_ready: executors that are running.
        executors_pending_since: when the executor that has been pending longest was requested; None if none is pending.
        executors_quota: executors that the namespace's quota allows; None without a quota.
        paused, scale_in_paused, scale_out_paused: what the user has paused.
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
        outcome: the outcome of the last change; None before it is known.
        sentence: the decision in one plain sentence.
    """

    time: float
    before: Shape
    plan: Shape
    reason: Reason | Guard
    guard: Guard | None = None
    detail: str = ""
    zone: Zone | None = None
    drivers: frozenset[Driver] = frozenset()
    inputs: Inputs | None = None
    present: Forecast | None = None
    chosen: Forecast | None = None
    ruled_out: tuple[tuple[Shape, str], ...] = ()
    outcome: ChangeOutcome | None = None
    sentence: str = ""

    @property
    def changed(self) -> bool:
        """Whether the plan differs from the one before."""
        return self.plan != self.before

    @property
    def prediction_error(self) -> float | None:
        """Predicted minus observed batch time after the last change, as a share of the observed."""
        return self.outcome.error if self.outcome is not None else None
