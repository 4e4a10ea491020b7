"""Decisions about the size of a job: zones say when, the model says how much, guards say whether.

A decision passes ``answers`` (what the metrics say), ``learned`` (what is known of the job), ``limits`` (which plans
the guards allow), ``steps`` (what the case calls for, over candidates from ``search``), and ``decision`` (whether it is
held back, and its words), in this order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..answers import MAX_AGE, AnswerReader
from ..batch_time.batch_model import BatchModel
from ..batch_time.calibration import Calibration
from ..observation import OF_PODS, Answer, NoAnswer, Observation
from ..seasons import Seasons, in_words
from ..shape import Bounds, Shape
from ..zones import Zone
from .changes import Change, Line
from .decision import Decision, Inputs, Reason, Situation, held, sentence
from .learned import Expected, Learned
from .limits import counted, limits, quota_limit
from .search import SPEEDUP, predicted
from .settings import Guard, Mode, Settings
from .steps import Case, careful, make_do, scale_in, scale_out, undo

SCALE_IN_SECONDS = 30.0
"""Seconds between two searches for a plan that releases cores."""

_STARTUPS = 2.0
"""Times that executors take to start by which those of a job at rest are asked for before a rise."""


class Scaler:
    """The autoscaler of one job, bounded in memory; ``save`` and ``restore`` carry its state over a restart."""

    def __init__(
        self,
        settings: Settings,
        bounds: Bounds,
        state_partitions: int,
        calibration: Calibration | None = None,
        seasons: Seasons | None = None,
    ) -> None:
        """Scale within ``bounds`` a job whose state has ``state_partitions`` partitions.

        ``calibration`` is what was learned of the job before, with replicas where they are now, and ``seasons`` what
        was learned of its load.
        """
        self.settings, self.bounds = settings, bounds
        self._reading = AnswerReader(bounds.executor_cores)
        calibration = calibration or Calibration(bounds, state_partitions)
        self._learned = Learned(settings, bounds, calibration, seasons or Seasons())
        self._no_scale_in: Decision | None = None
        self._idle: tuple[float, float] | None = None  # from when until when no batch ran, without a gap in the metrics

    @property
    def calibration(self) -> Calibration:
        """What has been learned of the job."""
        return self._learned.calibration

    @property
    def seasons(self) -> Seasons:
        """What has been learned of the load, which is the same under all settings and placements."""
        return self._learned.seasons

    def step(self, answer: Answer | None, situation: Situation) -> Decision:
        """Return the next decision, from the metrics' answer and what else is known; the caller carries it out."""
        memory = self._learned.memory
        pending = situation.executors_pending_since
        memory.follow(situation.now, situation.plan, situation.executors_ready, pending, self.settings.patience)
        decision = held(self._decide(answer, situation), self.settings, situation)
        if decision.changed:
            self._begin(decision, situation)
        decision = replace(decision, outcome=memory.outcome, serial=self._learned.serial.found)
        return replace(decision, sentence=sentence(decision, self.settings))

    def _decide(self, answer: Answer | None, situation: Situation) -> Decision:
        """Read the answer, learn from it, set out the case, and choose; or say why there is nothing to decide on."""
        now, shape = situation.now, situation.plan
        if self.settings.mode is Mode.OFF:
            return Decision(now, shape, shape, Reason.OFF)
        carried_out = self.settings.mode is Mode.ACTIVE and not situation.paused
        if carried_out and Guard.BOUNDS in self.settings.guards:
            if (nearest := self.bounds.nearest(shape)) != shape:
                return Decision(now, shape, nearest, Reason.OUT_OF_BOUNDS, Guard.BOUNDS)
            if (nearest := self._bounds_now(situation).nearest(shape)) != shape:
                return self._scheduled(situation, nearest)
        if not shape.executors:
            return self._at_rest(situation)
        if answer is not None and not self.bounds.dedicated:  # series of pods outlive the pods for a while
            answer = answer.without(OF_PODS)
        if answer is not None and self.bounds.dedicated and answer.dedicated_lag_rows is None:
            answer = answer.without(["progress_time"])  # records may wait in front of the pods
        seen = self._reading.step(answer, now, situation.epoch, shape)
        if isinstance(seen, NoAnswer):
            return Decision(now, shape, shape, Reason.NO_ANSWER, detail=f"{seen.reason}: {seen.message}")
        self._note_idle(seen)
        outcome = self._learned.add(seen, situation)
        case = self._case(seen, situation, self._learned.expect(seen, now))
        if outcome is not None and not outcome.helped and case.on(Guard.INEFFECTIVE):
            return undo(case, outcome)
        return self._choose(case)

    def _case(self, seen: Observation, situation: Situation, expected: Expected) -> Case:
        """Return what the decision depends on, of a job at which so many records per second are expected."""
        settings, learned, demand, bounds = (
            self.settings,
            self._learned,
            self._learned.demand,
            self._bounds_now(situation),
        )
        keeping_up, memory = learned.keeping_up, learned.memory
        delay = settings.scale_in_delay if Guard.SCALE_IN_DELAYED in settings.guards else 0.0
        largest = demand.largest(situation.now, delay)
        before = None if memory.change is None else memory.change.rate
        return Case(
            settings=settings,
            bounds=bounds,
            situation=situation,
            learned=learned,
            inputs=Inputs(
                interval=seen.interval,
                utilization=keeping_up.utilization,
                at_arrival=keeping_up.at_arrival,
                batches_at_arrival=keeping_up.batches_at_arrival,
                arrival=demand.level,
                growth=demand.level / before - 1 if before else None,
                lag=seen.lag,
                demand=expected.required,
                keys=seen.keys,
                period=None if expected.rise is None else expected.rise.period,
            ),
            expected=expected.rate,
            target=min(max(keeping_up.safe, settings.target - settings.step / 2), settings.target),
            limits=limits(settings, bounds, memory, situation, max(expected.required, largest or 0.0)),
            largest=largest,
            falling=delay > 0 and demand.falling(situation.now, delay),
        )

    def _bounds_now(self, situation: Situation) -> Bounds:
        """Return the bounds, with the minimum that the schedule asks for."""
        return self.bounds.with_minimum(situation.minimum_now)

    def _scheduled(self, situation: Situation, plan: Shape) -> Decision:
        """Decide on the minimum that the schedule asks for; a quota that allows less is the guard."""
        detail, guard = f"{counted(situation.scheduled_minimum)} now", Guard.BOUNDS
        if situation.minimum_now < situation.scheduled_minimum:
            detail, guard = f"{detail}, and {quota_limit(situation)}", Guard.QUOTA
        return Decision(situation.now, situation.plan, plan, Reason.SCHEDULED, guard, detail=detail)

    def _at_rest(self, situation: Situation) -> Decision:
        """Decide on a job without executors: it has no batch to measure, and the first task that waits ends its rest.

        A rise of the load that repeats ends it, too, so that executors are there before the records.
        """
        now, shape, memory = situation.now, situation.plan, self._learned.memory
        if situation.tasks_wait:  # the rest is over, but for the plan, which may not change yet
            self._idle = None
            detail = "its tasks run on one executor until the plan may change"
            return Decision(now, shape, shape, Reason.AT_REST, detail=detail)
        if self._idle is not None and 0 < now - self._idle[1] <= MAX_AGE:
            self.seasons.add(self._idle[1], now, 0.0)
        self._idle = now, now
        ahead = _STARTUPS * memory.startup
        rise = self.seasons.coming(now, 0.0, ahead, ahead)
        paused = situation.scale_out_paused and Guard.SCALE_OUT_PAUSED in self.settings.guards
        if rise is None or paused:
            return Decision(now, shape, shape, Reason.AT_REST)
        rested = memory.change is not None and not memory.change.after.executors
        executors = memory.change.before.executors if memory.change is not None and rested else 1
        woken = self._bounds_now(situation).nearest(replace(shape, executors=executors))
        before = f"a rise that came {in_words(rise.period)} ago"
        detail = f"{before} is expected to come again, to {rise.rate:,.0f} records/s"
        return Decision(now, shape, woken, Reason.WOKEN, detail=detail)

    def _choose(self, case: Case) -> Decision:
        """Rest, wait, make do with the ready executors, scale out, or scale in: the first of these that applies."""
        keeping_up, memory = case.learned.keeping_up, case.learned.memory
        if (idle := self._may_rest(case)) is not None:
            plan = replace(case.situation.plan, executors=0)
            return case.move(plan, Reason.AT_REST, f"no batch has run for {idle:.0f} s")
        waiting = memory.short_for(case.situation.now)
        lasting = waiting is not None and waiting > self.settings.patience
        fewer = max(case.situation.executors_ready, case.bounds.executors.low) < case.situation.plan.executors
        if lasting and fewer and case.on(Guard.CLUSTER):
            return make_do(case)
        if case.on(Guard.COOLDOWN) and ((waiting is not None and not lasting) or not case.settled):
            return self._more_at_once(case)
        calibrating = case.on(Guard.CALIBRATING) and not case.learned.calibration.ready and not case.at_rest
        outgrown = keeping_up.outgrown or case.rise_is_due
        if case.urgent or keeping_up.persistently_above(case.target) or outgrown:
            if calibrating:
                return case.stay(Reason.AT_CAPACITY) if case.serial_exceeds else careful(case)
            keeps_up = case.inputs.at_arrival <= case.target and not keeping_up.behind
            if keeps_up and not outgrown:
                return case.stay(Reason.DRAINING)
            return scale_out(case)
        if calibrating:
            return case.stay(Guard.CALIBRATING)
        return self._give_back(case) if case.zone is Zone.UNDERUSED else case.stay(Reason.STABLE)

    def _note_idle(self, seen: Observation) -> None:
        """Note for how long no batch has run."""
        goes_on = self._idle is not None and self._idle[1] == seen.since
        since = self._idle[0] if self._idle is not None and goes_on else seen.since
        self._idle = (since, seen.until) if seen.idle else None

    def _may_rest(self, case: Case) -> float | None:
        """Return for how long no batch has run, if so long that all executors may go; None if some have to stay.

        Batches without records count as well, as a job that has them now and then would be woken each time. So does a
        rise that is due soon.
        """
        situation = case.situation
        stays = situation.paused or self.settings.mode is not Mode.ACTIVE
        stays = stays or (situation.scale_in_paused and case.on(Guard.SCALE_IN_PAUSED))
        if stays or self._idle is None or not (case.bounds.rests and situation.can_rest and case.at_rest):
            return None
        idle = self._idle[1] - self._idle[0]
        return idle if idle >= self.settings.scale_in_delay else None

    def _more_at_once(self, case: Case) -> Decision:
        """Scale out further if the load outgrows what the last change was planned for; otherwise await its effect."""
        if case.outgrows_change and self._learned.calibration.ready:
            decision = scale_out(case)
            if decision.plan.executors > case.situation.plan.executors:
                return decision
        return case.stay(Guard.COOLDOWN)

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
        memory, inputs, before, after = self._learned.memory, decision.inputs, situation.plan, decision.plan
        rate = inputs.arrival if inputs is not None else self._learned.demand.level
        foreseen = inputs is not None and inputs.period is not None
        load = inputs.demand if inputs is not None and foreseen else rate
        complete = situation.executors_ready >= before.executors  # otherwise the plan before has shown nothing
        if decision.reason is Guard.CLUSTER:
            memory.ran_short(after.executors, decision.time)
        elif inputs is not None and after.executors > before.executors and complete:
            memory.were_too_few(before.executors, load, decision.time)
        elif inputs is not None and self._adds_pods(before, after) and complete:
            memory.were_too_few_replicas(before.replicas, load, decision.time)
        expected = None
        predictable = complete and self._learned.calibration.ready and after.executors > 0
        if inputs is not None and inputs.batches_at_arrival and predictable:
            expected = self._expected(decision.reason, before, after, inputs)
        undoes = decision.reason is Reason.UNDONE
        planned = None if inputs is None else inputs.demand
        memory.begin(Change(decision.time, before, after, rate, expected, undoes, planned, foreseen))

    def _adds_pods(self, before: Shape, after: Shape) -> bool:
        """Return whether pods of replicas are added, and not in place of executors."""
        more = self.bounds.cores(after) > self.bounds.cores(before)
        return self.bounds.dedicated and after.replicas > before.replicas and more

    def _expected(self, reason: Reason | Guard, before: Shape, after: Shape, inputs: Inputs) -> tuple[Line, Line]:
        """Predict batch times without and with a change, scaled by the model's present error."""
        model, rows = self._learned.calibration.model(), max(inputs.arrival * inputs.interval, 1.0)
        without, instead = _line(model, before, rows, inputs.interval), _line(model, after, rows, inputs.interval)
        if reason is Reason.TRIAL:
            instead = without.times((before.executors / after.executors) ** SPEEDUP)
        bias = inputs.batches_at_arrival * inputs.interval / without.at(rows)
        return without.times(bias), instead.times(bias)

    def save(self) -> dict[str, Any]:
        """Return the whole state in JSON types."""
        return {"dedicated": self.bounds.dedicated, "reading": self._reading.save()} | self._learned.save()

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Continue from what ``save`` returned.

        Raises:
            ValueError: the state is of a job whose replicas had another placement, and so its batches other stages.
        """
        if saved.get("dedicated", False) != self.bounds.dedicated:
            raise ValueError("the replicas of the job had another placement")
        self._reading.restore(saved["reading"])
        self._learned.restore(saved)


def _line(model: BatchModel, shape: Shape, rows: float, interval: float) -> Line:
    """Return the line through the predicted batch seconds of a plan at ``rows`` and at twice as many records."""
    times = [predicted(model, shape, count, interval).utilization * interval for count in (rows, 2 * rows)]
    return Line.through((rows, times[0]), (2 * rows, times[1]))
