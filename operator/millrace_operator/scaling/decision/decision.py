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
    """Why a decision is what it is. Where a guard decides, its value is the reason instead."""

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
    """What is known besides metrics; all times are of one clock, in seconds.

    Attributes:
        now: the time.
        plan: the plan that was decided last.
        epoch: its epoch.
        executors_ready: executors that run.
        executors_pending_since: when the executor was asked for that is waited for longest; None if none is.
        executors_quota: executors that the namespace's quota allows; None without one.
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
    """Numbers that a decision rests on.

    Attributes:
        interval: the batch interval, seconds.
        utilization: W of the last batches as observed.
        at_arrival: what W would be by the model without records that are only caught up; or the share of time that
            partitioner pods are busy, where it is higher.
        batches_at_arrival: the same of batches alone.
        arrival: records per second that come.
        growth: of the arrival since the last change, as a share of it then; None where there was no change.
        lag: records that wait.
        demand: records per second for which the plan is made: with growth until executors are ready, and the lag.
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
    """What to do, and why.

    Attributes:
        time: of the decision, seconds.
        before: the plan so far.
        plan: the plan to run under from now on.
        reason: a Reason or, where a guard decided, a Guard.
        guard: what cut the plan down or holds it back; None if nothing does.
        detail: of the reason: what is wrong with the metrics, what the guard says, why a change is held back.
        zone, drivers: where W is, and what drives it; None without an answer.
        inputs: the numbers; None without an answer.
        present, chosen: what is predicted of the plan before and of the one that is best, changed to or not.
        ruled_out: other plans, and why not.
        outcome: what came of the last change; None before it is known.
        sentence: all this for people.
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
        """Whether the plan is another one than before."""
        return self.plan != self.before

    @property
    def prediction_error(self) -> float | None:
        """Predicted less observed batch time after the last change, as a share of the latter."""
        return self.outcome.error if self.outcome is not None else None
