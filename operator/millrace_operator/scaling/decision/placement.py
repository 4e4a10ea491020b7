"""Placement ``Auto``: a scaler that also decides where replicas run, by what each placement is measured to cost.

A job begins Inline. Dedicated is tried if the route stage is a good part of the batch, if the job is under pressure,
and if moving that stage off the batch is predicted to save more of the executors' cores than the replicas' pods take.
What it takes is then measured, and the job goes back if that is not clearly less than what it took Inline. A try that
did not pay is not repeated at a similar rate.

Both placements are compared at the rate that arrives now, by the cores that keep W under the target (``weighing``). An
answer that is no answer weighs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..batch_time.calibration import Calibration
from ..batch_time.cost_prior import CostPrior
from ..observation import Answer
from ..seasons import Seasons
from ..shape import Bounds, Shape
from .decision import Decision, Inputs, Reason, Situation, observed_load
from .scaler import Scaler
from .settings import Guard, Mode, Settings
from .weighing import CostMeter, Needed, Weighed, weigh

ROUTE_SHARE = 0.2
"""Smallest share of a batch that its route stage takes for Dedicated to be tried."""

WORTH, KEPT = 0.1, 0.05
"""Shares of Inline's cores: the saving from which Dedicated is tried, and that below which it is given up."""

AGAIN, WORTH_AGAIN = 1.5, 0.2
"""Factor by which the rate has to change, up or down, before Dedicated is tried again, and the saving that it takes."""

WEIGH_SECONDS, AGREE = 30.0, 4
"""Seconds between two comparisons of the placements, and how many in a row have to agree on a move."""

REFUSED_SECONDS, REFUSED_INTERVALS = 180.0, 5
"""Seconds, and batch intervals, after which a driver that does not acknowledge Dedicated is taken to refuse it."""

SHORT_SECONDS = 300.0
"""Seconds for which replicas' pods may be missing: records wait for them, and Inline they would not."""

CATCH_UP = 1.25
"""Factor on the rate that the first replicas are made for: records come while their pods start."""

UNCHANGED_SECONDS = 1800.0
"""Seconds without a change of plan after which Dedicated costs the cores that the plan has, if that is more."""

_NOT_WEIGHED = frozenset({Reason.OFF, Reason.NO_ANSWER, Guard.COOLDOWN, Guard.CALIBRATING, Guard.PAUSED, Guard.ADVISE})


@dataclass(frozen=True)
class GivenUp:
    """Why Dedicated was given up, at ``rate`` records per second; None for any rate."""

    rate: float | None
    why: str

    def holds(self, rate: float) -> bool:
        """Return whether Dedicated is not tried at ``rate`` records per second."""
        return self.rate is None or self.rate / AGAIN < rate < self.rate * AGAIN


@dataclass
class _PlacementState:
    """What has been decided of the placement so far; times are the operator's, in seconds.

    Attributes:
        subject: what was decided about: the query and its algorithm.
        given_up: why Dedicated was given up last; None if it never was.
        epoch, since: epoch of the first plan that is Dedicated, and when it was seen; 0 while Inline.
        followed: whether the driver has acknowledged that plan.
        ready: when all its pods were ready first; None before that.
        caught_up: whether the records that came until then have been worked off, or should have been.
        plan, unchanged: epoch of the plan, and since when it has been the plan.
        inline: the last shape that ran Inline; None if none did.
        batches: batches that were measured since the plan changed.
        paying: comparisons in a row that say that Dedicated pays.
        paid: whether it has been measured to pay, by as many as a move takes.
        leaving: whether a move back to Inline has been decided.
        agreeing: comparisons in a row that ask for a move.
        weighed: time of the last comparison; None before the first.
        measured: time of the last observation that was counted.
        short_since, most_ready: since when pods are missing, and how many were ready since; None if none is missing.
        interval, rate: batch interval and records per second of the last observation.
        found: the last comparison and what follows from it.
    """

    subject: str
    given_up: GivenUp | None = None
    epoch: int = 0
    since: float = 0.0
    followed: bool = False
    ready: float | None = None
    caught_up: bool = False
    plan: int = -1
    unchanged: float = 0.0
    inline: Shape | None = None
    batches: int = 0
    paying: int = 0
    paid: bool = False
    leaving: bool = False
    agreeing: int = 0
    weighed: float | None = None
    measured: float = -math.inf
    short_since: float | None = None
    most_ready: int = 0
    interval: float = 0.0
    rate: float = 0.0
    found: str = ""


class PlacedScaler:
    """The autoscaler of a job whose replicas may run in tasks and in pods; ``save`` and ``restore`` carry its state."""

    def __init__(
        self,
        settings: Settings,
        inline: Bounds,
        dedicated: Bounds,
        partitions: int,
        subject: str,
        seasons: Seasons | None = None,
        prior: CostPrior | None = None,
    ) -> None:
        """Scale within the bounds of either placement a job whose state has ``partitions`` partitions.

        ``subject`` names what the placement is decided for: what was decided for another one is not restored.
        ``seasons`` is what was learned of the load before, and ``prior`` what is expected of the costs Inline.
        """
        self.settings = settings
        self._bounds = {False: inline, True: dedicated}
        self._partitions = partitions
        self._scaler = Scaler(settings, inline, partitions, Calibration(inline, partitions, prior), seasons)
        self._kept = Calibration(dedicated, partitions)
        self._meters = {False: CostMeter(), True: CostMeter()}
        self._progress = _PlacementState(subject)

    @property
    def calibration(self) -> Calibration:
        """What has been learned of the job where its replicas are now."""
        return self._scaler.calibration

    @property
    def seasons(self) -> Seasons:
        """What has been learned of the load, which is the same under both placements."""
        return self._scaler.seasons

    def step(self, answer: Answer | None, situation: Situation) -> Decision:
        """Return the next decision on shape and placement; the caller carries it out."""
        self._follow(situation)
        if not situation.plan.executors:  # a job at rest stays as it is, its pods included
            return replace(self._scaler.step(answer, situation), placement=self._progress.found)
        if situation.dedicated and not self._caught_up(answer, situation):
            decision = _waiting(situation)
        else:
            decision = self._scaler.step(answer, situation)
            self._measure(decision, situation)
        move = self._move(decision, situation)
        return replace(move or decision, placement=self._progress.found)

    def _follow(self, situation: Situation) -> None:
        """Use what was learned under the plan's placement, and begin to follow a change of it."""
        progress, here = self._progress, self._scaler.bounds.dedicated
        if situation.dedicated is not here:
            kept, self._kept, known = self._kept, self._scaler.calibration, self.seasons
            self._scaler = Scaler(self.settings, self._bounds[situation.dedicated], self._partitions, kept, known)
            if here and not progress.leaving:
                self._give_up("the plan went back to Inline, because the driver failed or the spec asked for it")
            progress.batches = progress.agreeing = progress.paying = progress.epoch = 0
            progress.paid = progress.leaving = progress.followed = progress.caught_up = False
            progress.weighed = progress.short_since = progress.ready = None
        if situation.epoch != progress.plan:
            progress.plan, progress.unchanged = situation.epoch, situation.now
        if not situation.dedicated:
            progress.inline = situation.plan
        elif not progress.epoch:
            progress.epoch, progress.since = situation.epoch, situation.now

    def _caught_up(self, answer: Answer | None, situation: Situation) -> bool:
        """Return whether replicas have worked off what came while their pods started, or have had the time for it.

        Until then they are busy all the time and batches are large, which says nothing of what they take later.
        """
        progress, now = self._progress, situation.now
        if progress.ready is None and (situation.replicas_ready or 0) >= situation.plan.replicas:
            progress.ready = now
        if progress.caught_up or progress.ready is None:
            return progress.caught_up
        lag = None if answer is None or answer.epoch != situation.epoch else answer.lag_rows
        usual = 2 * progress.rate * progress.interval
        progress.caught_up = (lag is not None and lag <= usual) or now - progress.ready > self.settings.drain_seconds
        return progress.caught_up

    def _measure(self, decision: Decision, situation: Situation) -> None:
        """Record the batches of a new observation, once those are over that a change of plan makes slower."""
        seen, inputs, progress = self._scaler.calibration.newest, decision.inputs, self._progress
        if seen is None or inputs is None or seen.until == progress.measured:
            return
        progress.measured, progress.interval, progress.rate = seen.until, inputs.interval, inputs.arrival
        complete = seen.plan.executors == situation.plan.executors
        if complete and decision.reason not in _NOT_WEIGHED:
            progress.batches += seen.batches
            self._meters[situation.dedicated].add(seen, self._scaler.calibration.model())

    def _move(self, decision: Decision, situation: Situation) -> Decision | None:
        """Return the decision to move replicas; None if they stay where they are, or a change of shape comes first."""
        if situation.paused or self.settings.mode is not Mode.ACTIVE:
            return None
        trouble = self._trouble(situation) if situation.dedicated else None
        if trouble is not None:
            return self._leave(decision, situation, trouble, None)
        inputs = decision.inputs
        if decision.changed or inputs is None or decision.reason in _NOT_WEIGHED or not self._is_due(situation):
            return None
        if not inputs.arrival:  # a job at rest says nothing of what pays under load
            return None
        weighed = weigh(self._meters, self._bounds, inputs.arrival, inputs.interval, self.settings.target)
        if weighed is None:
            return None
        self._progress.weighed = situation.now
        if situation.dedicated:
            return self._judged(weighed, decision, situation)
        return self._tried(weighed, decision, situation, inputs)

    def _is_due(self, situation: Situation) -> bool:
        progress = self._progress
        enough = progress.batches >= self.settings.window
        since = math.inf if progress.weighed is None else situation.now - progress.weighed
        return enough and not 0 <= since < WEIGH_SECONDS

    def _tried(self, weighed: Weighed, decision: Decision, situation: Situation, inputs: Inputs) -> Decision | None:
        """Return the decision to try Dedicated, once several comparisons ask for it."""
        why = self._why_inline(weighed, situation, inputs)
        if not self._agreed(weighed, not why, why or "Dedicated is about to be tried"):
            return None
        plan = self._first_shape(weighed.dedicated, situation.plan)
        text = f"{observed_load(decision)}, and the route stage takes {weighed.route_share:.0%} of a batch; {weighed}"
        return _moved(decision, Reason.TO_DEDICATED, plan, text)

    def _why_inline(self, weighed: Weighed, situation: Situation, inputs: Inputs) -> str:
        """Return why Dedicated is not tried; empty if it is worth a try."""
        newest, given_up = self._scaler.calibration.newest, self._progress.given_up
        if newest is None or newest.route is None:
            return "no batch has a route stage"
        if weighed.route_share < ROUTE_SHARE:
            return f"the route stage takes {weighed.route_share:.0%} of a batch, less than {ROUTE_SHARE:.0%}"
        low = self._scaler.bounds.with_minimum(situation.minimum_now).executors.low
        if inputs.at_arrival <= self.settings.target and weighed.inline.executors <= low:
            return f"the minimum of executors, {low}, is enough Inline"
        worth = WORTH if given_up is None else WORTH_AGAIN
        if weighed.saving < worth:
            return f"Dedicated would save less than {worth:.0%} of the cores"
        if situation.scale_out_paused or situation.scale_in_paused:
            return "scaling is paused in one direction"
        if given_up is not None and given_up.holds(weighed.rate):
            return f"Dedicated was given up: {given_up.why}"
        return ""

    def _judged(self, weighed: Weighed, decision: Decision, situation: Situation) -> Decision | None:
        """Return the decision to go back to Inline, once several comparisons ask for it."""
        progress = self._progress
        if situation.now - progress.unchanged > UNCHANGED_SECONDS:
            weighed = weighed.at_least(situation.plan, self._bounds[True].cores(situation.plan))
        pays = weighed.saving >= KEPT
        held = situation.scale_out_paused or situation.scale_in_paused
        conclusion = f"Dedicated saves {weighed.saving:.0%} of the cores"
        if not pays:
            conclusion = f"Dedicated saves less than {KEPT:.0%} of the cores"
        agreed = self._agreed(weighed, not pays and not held, conclusion)
        progress.paying = progress.paying + 1 if pays else 0
        progress.paid = progress.paid or progress.paying >= AGREE
        if not agreed:
            return None
        saved = "no longer saved" if progress.paid else "did not save"
        why = f"it {saved} {KEPT:.0%} of the cores: {weighed}"
        return self._leave(decision, situation, why, weighed)

    def _agreed(self, weighed: Weighed, asks: bool, conclusion: str) -> bool:
        """Record a comparison; return whether ``AGREE`` in a row ask for a move."""
        progress = self._progress
        progress.agreeing = progress.agreeing + 1 if asks else 0
        progress.found = f"{weighed}; {conclusion}"
        return progress.agreeing >= AGREE

    def _trouble(self, situation: Situation) -> str | None:
        """Return why Dedicated does not work: the driver does not follow the plan, or pods are missing for long."""
        progress, now = self._progress, situation.now
        applied = situation.applied_epoch  # None of a driver that has just started, which says nothing
        progress.followed = progress.followed or (applied is not None and applied >= progress.epoch)
        patience = max(REFUSED_SECONDS, REFUSED_INTERVALS * progress.interval)
        if applied is not None and not progress.followed and now - progress.since > patience:
            return f"the driver has not followed the plan for {now - progress.since:.0f} s, and its log says why"
        ready, wanted = situation.replicas_ready, situation.plan.replicas
        if ready is None or ready >= wanted:
            progress.short_since = None
        elif progress.short_since is None or ready > progress.most_ready:
            progress.short_since, progress.most_ready = now, ready
        elif now - progress.short_since > SHORT_SECONDS:
            return f"{ready} of {wanted} replicas' pods are ready, for {now - progress.short_since:.0f} s"
        return None

    def _leave(self, decision: Decision, situation: Situation, why: str, weighed: Weighed | None) -> Decision:
        """Return the decision to go back to Inline; remember why Dedicated was given up."""
        progress = self._progress
        refused = weighed is None and not progress.followed
        self._give_up(why, always=refused)
        progress.leaving, progress.agreeing = True, 0
        plan = self._inline_shape(situation, None if weighed is None else weighed.inline)
        return _moved(decision, Reason.TO_INLINE, plan, why)

    def _give_up(self, why: str, *, always: bool = False) -> None:
        self._progress.given_up = GivenUp(None if always else self._progress.rate, why)
        self._progress.found = f"Dedicated was given up: {why}"

    def _first_shape(self, needed: Needed, present: Shape) -> Shape:
        """Return the first Dedicated shape: no fewer executors than now, since what batches take is not known yet."""
        executors = max(present.executors, int(needed.executors))
        return self._bounds[True].nearest(Shape(executors, present.parallelism, math.ceil(needed.pods * CATCH_UP)))

    def _inline_shape(self, situation: Situation, needed: Needed | None) -> Shape:
        """Return the shape to go back to: no fewer executors than now, nor than Inline needs or last had."""
        bounds, present, before = self._bounds[False], situation.plan, self._progress.inline
        executors = present.executors
        if needed is not None and not math.isinf(needed.executors):
            executors = max(executors, int(needed.executors))
        elif before is not None and not situation.scale_out_paused:
            executors = max(executors, before.executors)
        cores = executors * bounds.executor_cores
        tasks = present.parallelism if executors == present.executors else cores
        return bounds.nearest(Shape(executors, tasks, cores))

    def save(self) -> dict[str, Any]:
        """Return the whole state in JSON types."""
        progress = asdict(self._progress)
        if math.isinf(self._progress.measured):
            progress["measured"] = None
        meters = [meter.save() for meter in self._meters.values()]
        return {"scaler": self._scaler.save(), "kept": self._kept.save(), "meters": meters, "progress": progress}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Continue from what ``save`` returned; of another subject, only with what was learned about batches.

        Raises:
            LookupError, TypeError, ValueError: the state is not one of this class.
        """
        dedicated = bool(saved["scaler"]["dedicated"])
        self._scaler = Scaler(self.settings, self._bounds[dedicated], self._partitions)
        self._scaler.restore(saved["scaler"])
        self._kept = Calibration(self._bounds[not dedicated], self._partitions)
        self._kept.restore(saved["kept"])
        for meter, of_placement in zip(self._meters.values(), saved["meters"], strict=True):
            meter.restore(of_placement)
        if saved["progress"]["subject"] == self._progress.subject:
            self._progress = _restored(saved["progress"])


def _waiting(situation: Situation) -> Decision:
    """Return the decision to wait until replicas that have just started have caught up."""
    plan, detail = situation.plan, "replicas work off what came while their pods started"
    return Decision(
        situation.now, plan, plan, Guard.COOLDOWN, Guard.COOLDOWN, detail, sentence=f"{plan} stays, since {detail}."
    )


def _moved(decision: Decision, reason: Reason, plan: Shape, text: str) -> Decision:
    to_pods = reason is Reason.TO_DEDICATED
    where = "with replicas in pods of their own: " if to_pods else "with replicas in the job's tasks again, since "
    return replace(
        decision,
        plan=plan,
        reason=reason,
        guard=None,
        detail=text,
        chosen=None,
        ruled_out=(),
        dedicated=to_pods,
        sentence=f"{decision.before} -> {plan} {where}{text}.",
    )


def _restored(saved: Mapping[str, Any]) -> _PlacementState:
    given_up, inline = saved["given_up"], saved["inline"]
    measured = saved["measured"]
    return _PlacementState(
        **{
            **saved,
            "given_up": given_up and GivenUp(**given_up),
            "inline": inline and Shape(**inline),
            "measured": -math.inf if measured is None else measured,
        }
    )
