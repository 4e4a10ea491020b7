"""Decisions about the size of a job: zones say when, the model says how much, guards say whether."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from ..answers import AnswerReader
from ..batch_time.batch_model import BatchModel
from ..batch_time.calibration import Calibration
from ..observation import OF_PODS, Answer, NoAnswer, Observation
from ..shape import Bounds, Shape
from ..zones import Zone, Zones
from .changes import Change, ChangeMemory, ChangeOutcome, Line
from .decision import Decision, Inputs, Reason, Situation, sentence
from .demand import Demand
from .guards import held, limits
from .keeping_up import KeepingUp
from .search import SPEEDUP, predicted
from .settings import Guard, Mode, Settings
from .steps import Case, careful, make_do, scale_in, scale_out, undo

CONTINUES = 0.5
"""Share of the forecast growth to plan for: a trend may end at any time, and noise may look like one."""

SCALE_IN_SECONDS = 30.0
"""Seconds between two searches for a plan that releases cores."""


class _Saved(Protocol):
    """A part of the scaler's state, in JSON types."""

    def save(self) -> dict[str, Any]: ...
    def restore(self, saved: Mapping[str, Any]) -> None: ...


class Scaler:
    """The autoscaler of one job, bounded in memory; ``save`` and ``restore`` carry its state over a restart."""

    def __init__(
        self, settings: Settings, bounds: Bounds, state_partitions: int, calibration: Calibration | None = None
    ) -> None:
        """Scale within ``bounds`` a job whose state has ``state_partitions`` partitions.

        ``calibration`` is what was learned of the job before, with replicas where they are now.
        """
        self.settings, self.bounds = settings, bounds
        self._judged = max(settings.window // 2, 1)
        self._reading = AnswerReader()
        self._zones = Zones(settings.target, settings.step, settings.window, settings.grace)
        self._calibration = calibration or Calibration(bounds, state_partitions)
        self._demand = Demand(settings.scale_in_delay)
        self._memory = ChangeMemory()
        self._no_scale_in: Decision | None = None
        self._keeping_up = KeepingUp(settings.drain_seconds)
        self._parts: dict[str, _Saved] = {
            "reading": self._reading,
            "zones": self._zones,
            "calibration": self._calibration,
            "demand": self._demand,
            "memory": self._memory,
            "keeping_up": self._keeping_up,
        }

    @property
    def calibration(self) -> Calibration:
        """What has been learned of the job."""
        return self._calibration

    def step(self, answer: Answer | None, situation: Situation) -> Decision:
        """Return the next decision, from the metrics' answer and what else is known; the caller carries it out."""
        pending = situation.executors_pending_since
        ready, patience = situation.executors_ready, self.settings.patience
        self._memory.follow(situation.now, situation.plan, ready, pending, patience)
        decision = held(self._decide(answer, situation), self.settings, situation)
        if decision.changed:
            self._begin(decision, situation)
        decision = replace(decision, outcome=self._memory.outcome)
        return replace(decision, sentence=sentence(decision, self.settings))

    def _decide(self, answer: Answer | None, situation: Situation) -> Decision:
        now, shape = situation.now, situation.plan
        if self.settings.mode is Mode.OFF:
            return Decision(now, shape, shape, Reason.OFF)
        nearest = self.bounds.nearest(shape)
        carried_out = self.settings.mode is Mode.ACTIVE and not situation.paused
        if nearest != shape and carried_out and Guard.BOUNDS in self.settings.guards:
            return Decision(now, shape, nearest, Reason.OUT_OF_BOUNDS, Guard.BOUNDS)
        if answer is not None and not self.bounds.dedicated:  # series of pods outlive the pods for a while
            answer = answer.without(OF_PODS)
        seen = self._reading.step(answer, now, situation.epoch, shape)
        if isinstance(seen, NoAnswer):
            return Decision(now, shape, shape, Reason.NO_ANSWER, detail=f"{seen.reason}: {seen.message}")
        outcome = self._learn(seen, situation)
        case = self._case(seen, situation)
        if outcome is not None and not outcome.helped and case.on(Guard.INEFFECTIVE):
            return undo(case, outcome)
        return self._choose(case)

    def _learn(self, seen: Observation, situation: Situation) -> ChangeOutcome | None:
        """Record an observation, and return the outcome of the last change once it is known."""
        self._zones.add(seen)
        self._calibration.add(seen)
        self._demand.add(seen)
        self._keeping_up.add(seen, situation.plan, self._demand, self._calibration)
        outcome = self._memory.observe(seen, situation.now, self.settings.grace, self._judged)
        if outcome is not None and not outcome.helped:
            self._memory.failed(outcome, situation.now)
        return outcome

    def _case(self, seen: Observation, situation: Situation) -> Case:
        """Record the forecast and the required rate, once per observation; return what the decision depends on."""
        settings, memory, demand, now = self.settings, self._memory, self._demand, situation.now
        outlook = self._zones.forecast(memory.startup + (settings.grace + settings.window) * seen.interval)
        coming = demand.level if outlook is None else demand.level + (outlook.value - demand.level) * CONTINUES
        target = min(max(self._keeping_up.safe, settings.target - settings.step / 2), settings.target)
        self._keeping_up.expect(coming / demand.level if demand.level else 1.0, settings.target)
        required = demand.required(coming, settings.drain_seconds)
        demand.remember(now, required, self._zones.zone is Zone.UNDERUSED)
        delay = settings.scale_in_delay if Guard.SCALE_IN_DELAYED in settings.guards else 0.0
        largest = demand.largest(now, delay)
        tried = memory.tried(now)
        return Case(
            settings=settings,
            bounds=self.bounds,
            situation=situation,
            zones=self._zones,
            inputs=Inputs(
                interval=seen.interval,
                utilization=self._keeping_up.utilization,
                at_arrival=self._keeping_up.at_arrival,
                batches_at_arrival=self._keeping_up.batches_at_arrival,
                arrival=demand.level,
                growth=_growth(demand.level, memory.change),
                lag=seen.lag,
                demand=required,
                keys=seen.keys,
            ),
            target=target,
            calibration=self._calibration,
            limits=limits(settings, self.bounds, memory, situation, max(required, largest or 0.0)),
            largest=largest,
            urgent=self._zones.zone is Zone.OVERLOADED or self._keeping_up.falling_behind,
            fewest_tried=min(tried),
            most_tried=max(tried),
            last_change=memory.change,
            downtime=memory.downtime,
            underused_for=demand.underused_for(now),
        )

    def _choose(self, case: Case) -> Decision:
        """Wait, make do with the ready executors, scale out, or scale in: the first of these that applies."""
        waiting = self._memory.short_for(case.situation.now)
        lasting = waiting is not None and waiting > self.settings.patience
        fewer = max(case.situation.executors_ready, self.bounds.executors.low) < case.situation.plan.executors
        if lasting and fewer and case.on(Guard.CLUSTER):
            return make_do(case)
        settled = self._memory.settled(self.settings.grace + self._judged)
        if case.on(Guard.COOLDOWN) and ((waiting is not None and not lasting) or not settled):
            return case.stay(Guard.COOLDOWN)
        calibrating = case.on(Guard.CALIBRATING) and not self._calibration.ready
        if case.urgent or self._keeping_up.persistently_above(case.target) or self._keeping_up.outgrown:
            if calibrating:
                return careful(case)
            keeps_up = case.inputs.at_arrival <= case.target and not self._keeping_up.behind
            if keeps_up and not self._keeping_up.outgrown:
                return case.stay(Reason.DRAINING)
            return scale_out(case)
        if calibrating:
            return case.stay(Guard.CALIBRATING)
        return self._give_back(case) if case.zone is Zone.UNDERUSED else case.stay(Reason.STABLE)

    def _give_back(self, case: Case) -> Decision:
        """Scale in if possible; otherwise stay, without another search for ``SCALE_IN_SECONDS``."""
        now, last = case.situation.now, self._no_scale_in
        if last is not None and last.plan == case.situation.plan and 0 <= now - last.time < SCALE_IN_SECONDS:
            return replace(last, time=now, inputs=case.inputs)
        decision = scale_in(case)
        self._no_scale_in = None if decision.changed else decision
        return decision

    def _begin(self, decision: Decision, situation: Situation) -> None:
        """Remember a change that is being made, and what is expected of it."""
        memory, inputs, before, after = self._memory, decision.inputs, situation.plan, decision.plan
        rate = inputs.arrival if inputs is not None else self._demand.level
        if decision.reason is Guard.CLUSTER:
            memory.ran_short(after.executors, decision.time)
        elif inputs is not None and after.executors > before.executors:
            memory.were_too_few(before.executors, rate, decision.time)
        expected = None
        if inputs is not None and self._calibration.ready:
            expected = self._expected(decision.reason, before, after, inputs)
        undoes = decision.reason is Reason.UNDONE
        memory.begin(Change(decision.time, before, after, rate, expected, undoes))

    def _expected(self, reason: Reason | Guard, before: Shape, after: Shape, inputs: Inputs) -> tuple[Line, Line]:
        """Predict batch times without and with a change, scaled by the model's present error."""
        model, rows = self._calibration.model(), max(inputs.arrival * inputs.interval, 1.0)
        without, instead = _line(model, before, rows, inputs.interval), _line(model, after, rows, inputs.interval)
        if reason is Reason.TRIAL:
            instead = without.times((before.executors / after.executors) ** SPEEDUP)
        bias = inputs.batches_at_arrival * inputs.interval / without.at(rows)
        return without.times(bias), instead.times(bias)

    def save(self) -> dict[str, Any]:
        """Return the whole state in JSON types."""
        return {"dedicated": self.bounds.dedicated} | {name: part.save() for name, part in self._parts.items()}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Continue from what ``save`` returned.

        Raises:
            ValueError: the state is of a job whose replicas had another placement, and so its batches other stages.
        """
        if saved.get("dedicated", False) != self.bounds.dedicated:
            raise ValueError("the replicas of the job had another placement")
        for name, part in self._parts.items():
            part.restore(saved[name])


def _growth(rate: float, change: Change | None) -> float | None:
    return rate / change.rate - 1 if change is not None and change.rate else None


def _line(model: BatchModel, shape: Shape, rows: float, interval: float) -> Line:
    """Return the line through the predicted batch seconds of a plan at ``rows`` and at twice as many records."""
    times = [predicted(model, shape, count, interval).utilization * interval for count in (rows, 2 * rows)]
    return Line.through((rows, times[0]), (2 * rows, times[1]))
