"""The steps that a case can call for: scaling out or in, making do, undoing the last step, or growing carefully.

A step searches candidates (``search``, with the model of ``batch_time``) within ``limits``; the decision goes back to
``scaler``, which begins to follow it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..batch_time.batch_model import BatchLoad
from ..shape import Bounds, Range, Shape, Vector
from ..zones import MARGIN, LoadDriver, Zone
from .changes import Change, ChangeOutcome
from .decision import Decision, Inputs, Reason, Situation
from .learned import Learned
from .limits import Limits, counted, quota_limit
from .release import Release, cost_of_return, spared
from .search import ALIKE, Mask, Need, Search, predicted
from .settings import Guard, Settings


@dataclass(frozen=True, eq=False)
class Case:
    """Everything that is known when a decision is made.

    Attributes:
        settings, bounds, situation: what the user allows, and what is known besides metrics.
        learned: what was learned of the job, this observation included.
        inputs: the numbers that the decision rests on.
        expected: records per second that are expected to arrive, growth included, and backlog not.
        target: W that plans are made for; below the setting if batches vary much.
        limits: limits on the plans to choose from.
        largest: the largest recent demand, records per second; None if it is not known for long enough.
        falling: whether demand still falls, so that the largest will soon be less.
    """

    settings: Settings
    bounds: Bounds
    situation: Situation
    learned: Learned
    inputs: Inputs
    expected: float
    target: float
    limits: Limits
    largest: float | None
    falling: bool

    @cached_property
    def zone(self) -> Zone:
        """The zone that W is in."""
        return self.learned.zones.zone

    @cached_property
    def drivers(self) -> frozenset[LoadDriver]:
        """What drives W into its zone, including the rate if demand exceeds arrivals without any lag."""
        rising = self.inputs.demand > self.inputs.arrival and not self.inputs.lag
        return self.learned.zones.drivers() | ({LoadDriver.RATE} if rising else frozenset())

    @cached_property
    def urgent(self) -> bool:
        """Whether the plan is certainly overloaded, and not just close to it for long."""
        return self.zone is Zone.OVERLOADED or self.learned.keeping_up.falling_behind

    @cached_property
    def tried(self) -> Range:
        """The fewest and the most executors that recent batches ran on; those of the plan before the first batch."""
        tried = self.learned.memory.tried(self.situation.now) or [self.situation.plan.executors]
        return Range(min(tried), max(tried))

    @cached_property
    def at_rest(self) -> bool:
        """Whether a batch has had less than one record for as long as cores are released after."""
        return self.largest is not None and self.largest * self.inputs.interval < 1

    @property
    def last_change(self) -> Change | None:
        """The last change of plan; None before the first."""
        return self.learned.memory.change

    @property
    def serial_exceeds(self) -> bool:
        """Whether the timed serial part of batches alone takes W above the target, whatever the number of executors.

        With what was not timed, it may be more. That rests on the plans that have run, and so keeps none from a trial.
        """
        serial = self.learned.serial.found
        return serial is not None and serial.certain

    @property
    def settled(self) -> bool:
        """Whether the last change is complete, and enough batches have shown its effect."""
        return self.learned.memory.settled(self.settings.grace + self.learned.judged)

    @property
    def added(self) -> bool:
        """Whether the last change added executors."""
        return self.last_change is not None and self.last_change.adds

    @property
    def outgrows_change(self) -> bool:
        """Whether clearly more is expected to arrive than the last change was planned for, and more than it can take.

        It is predicted to be more. Once the executors are there, W also has to show it.
        """
        shape, inputs, change = self.situation.plan, self.inputs, self.last_change
        if change is None or change.planned is None or self.expected <= change.planned * (1 + MARGIN):
            return False
        complete = self.situation.executors_ready >= shape.executors
        if complete and inputs.at_arrival * self.expected <= self.settings.target * inputs.arrival:
            return False
        model, rows = self.learned.calibration.model(), self.expected * inputs.interval
        return predicted(model, shape, rows, inputs.interval).utilization > self.settings.target

    @cached_property
    def rise_is_due(self) -> bool:
        """Whether a rise that repeats is about to come that the plan is not predicted to take."""
        inputs, calibration = self.inputs, self.learned.calibration
        if inputs.period is None or not calibration.ready:
            return False
        rows = inputs.demand * inputs.interval
        return predicted(calibration.model(), self.situation.plan, rows, inputs.interval).utilization > self.target

    @property
    def since_change(self) -> float:
        """Seconds since the last change; infinity before the first."""
        return math.inf if self.last_change is None else self.situation.now - self.last_change.time

    @cached_property
    def bias(self) -> float:
        """Ratio of batch times to those predicted for the present plan, at least 1.

        It is 1 while the number of ready executors differs from the plan, and while batches are slower than usual
        because of a change.
        """
        shape, inputs = self.situation.plan, self.inputs
        if self.situation.executors_ready != shape.executors or not self.settled:
            return 1.0
        usual = predicted(self.learned.calibration.model(), shape, inputs.arrival * inputs.interval, inputs.interval)
        return max(inputs.batches_at_arrival / usual.utilization, 1.0)

    def on(self, guard: Guard) -> bool:
        """Return whether a guard is switched on."""
        return guard in self.settings.guards

    def search(self, executors: Range, rate: float, margin: float, caution: float) -> Search:
        """Search candidates under ``rate`` records per second; those fit that stay ``margin`` under the target."""
        load = BatchLoad(rate * self.inputs.interval, self.inputs.interval)
        need = Need(load, self.target * (1 - ALIKE) - margin, self.settings.target - margin, caution)
        return Search(self.learned.calibration.model(), self.bounds, self.situation.plan, executors, need, self.bias)

    def stay(self, reason: Reason | Guard, detail: str = "") -> Decision:
        """Return a decision to change nothing."""
        return self.move(self.situation.plan, reason, detail)

    def move(self, shape: Shape, reason: Reason | Guard, detail: str = "") -> Decision:
        """Return a decision for ``shape``."""
        return Decision(
            time=self.situation.now,
            before=self.situation.plan,
            plan=shape,
            reason=reason,
            guard=reason if isinstance(reason, Guard) else None,
            detail=detail,
            zone=self.zone,
            drivers=frozenset() if self.zone is Zone.STABLE else self.drivers,
            inputs=self.inputs,
        )


CAUTION_OUT, CAUTION_FAR = 0.5, 1.0
"""Position in the prediction interval at which plans are judged: 0 is the prediction, 1 the upper end.

``CAUTION_FAR`` is for scaling in, and for a load that has jumped away from all that recent batches ran under.
"""

SOON = 2
"""Multiple of ``scale_in_delay`` within which a second scale-out means that the first one was too small."""

RELEASES = 8
"""Most releases that are weighed."""

SMALL = 0.3
"""Share of the cores that is not worth a change while demand falls."""


def scale_out(case: Case) -> Decision:
    """Decide on the cheapest plan that meets the demand; if none certainly does, on the one that comes nearest.

    No model knows what batches take on more executors than they ever ran on. If no plan is certain to be enough, the
    trial is as large as the usual effect of cores requires. A step that does not help is undone.
    """
    present, most = case.situation.plan.executors, 2 * case.bounds.executors.high
    search = _more(case, Range(present, max(present, most)))
    not_fewer = search.cores >= search.cores[0]
    allowed = not_fewer & case.limits.allowed(search.shapes)
    allowed[0] = True
    reason, best = _best(case, search, allowed)
    _, wanted = _best(case, search, not_fewer)
    if wanted != best and not search.fits[best]:
        reason = Reason.AT_CAPACITY
    return _explained(case.move(search.shapes[best], reason), case, search, best, wanted)


def _best(case: Case, search: Search, allowed: Mask) -> tuple[Reason, int]:
    """Return the best candidate and the reason for it; other tasks on as many cores have to promise some room."""
    roomy = (search.cores > search.cores[0]) | (search.cautious <= search.need.limit - case.settings.step / 2)
    likely = allowed & search.likely & roomy
    untried = allowed & (search.executors > case.tried.high)
    if case.serial_exceeds:  # neither a trial nor a model that hopes for the best can change that
        return Reason.AT_CAPACITY, search.nearest(allowed)
    reshaped = _reshaped(case, search, allowed)
    if reshaped is not None:
        return Reason.RESHAPE, reshaped
    certain = search.cheapest(likely & search.fits, case.drivers)
    pressing = case.urgent or case.learned.keeping_up.outgrown
    if certain is None and untried.any() and (pressing or likely.any()):
        return Reason.TRIAL, search.proportional(untried)
    best = _likeliest(case, search, likely) if certain is None else certain
    if best is None:
        return Reason.AT_CAPACITY, search.nearest(allowed)
    if best == 0:
        return Reason.STABLE, best
    return Reason.SCALE_OUT if search.cores[best] > search.cores[0] else Reason.RESHAPE, best


def _reshaped(case: Case, search: Search, allowed: Mask) -> int | None:
    """Return the best tasks for the present executors if they are predicted to be enough, with room to spare.

    They need not be certain to be enough: while batches are in time, it costs no executor to try them.
    """
    if search.fits[0] or case.inputs.at_arrival > 1 or case.learned.keeping_up.falling_behind:
        return None
    same: Mask = (search.cores == search.cores[0]) & (search.executors == search.executors[0])
    return search.surest(allowed & same & (search.middle <= search.need.mean - case.settings.step / 2))


def _likeliest(case: Case, search: Search, likely: Mask) -> int | None:
    """Return the cheapest plan that may be enough, with room to spare if the load has jumped."""
    roomier = likely & (search.middle <= search.need.mean - case.settings.step / 2)
    if case.urgent and not roomier.any():
        return search.surest(likely)
    return search.cheapest(roomier if case.urgent else likely, case.drivers)


def scale_in(case: Case) -> Decision:
    """Decide on the cheapest plan that would have been enough for the largest recent demand, with a margin.

    The margin keeps the smaller plan from being too small at once. Of such plans, the one is chosen whose release saves
    most, and none if taking the executors back would cost more (``release``).

    While demand still falls, only a release that saves much is made, so that there is not one step after another. If it
    has fallen to less than half within that time, the fall is soon over, and one step is enough.

    A job at rest goes to its minimum in one step: nothing waits for it, so that a prediction need not be certain.
    """
    if case.largest is None:
        return case.stay(Guard.SCALE_IN_DELAYED)
    search = case.search(Range(1, case.situation.plan.executors), case.largest, case.settings.step / 2, CAUTION_FAR)
    certain = _certain(case, search)
    wanted = search.cheapest(certain, case.drivers)
    if wanted is None:
        unsure = (search.likely & (search.cores < search.cores[0])).any()
        return _explained(case.stay(Guard.UNCERTAIN if unsure else Reason.STABLE), case, search, 0)
    allowed: Mask = certain & case.limits.allowed(search.shapes)
    best = search.cheapest(allowed, case.drivers)
    if best is None:
        limit = case.limits.broken(search.shapes[wanted])
        return _explained(case.stay(limit.guard if limit else Reason.STABLE), case, search, 0, wanted)
    guard, detail = None, ""
    if case.on(Guard.FLAPPING) and not case.at_rest:
        release = _best_release(case, search, allowed)
        if release is None or release.gain <= 0:
            return _explained(case.stay(Guard.FLAPPING, str(release or "")), case, search, 0)
        if release.candidate != best:
            guard, detail = Guard.FLAPPING, "fewer would be needed again too soon"
        best = release.candidate
    saved = 1 - search.cores[best] / search.cores[0]
    sudden = case.inputs.arrival < case.largest / 2
    if case.falling and (saved < SMALL or sudden) and not case.at_rest:
        return _explained(case.stay(Guard.SCALE_IN_DELAYED), case, search, best)
    decision = replace(case.move(search.shapes[best], Reason.SCALE_IN, detail), guard=guard)
    return _explained(decision, case, search, best, wanted)


def _best_release(case: Case, search: Search, allowed: Mask) -> Release | None:
    """Return the release that saves most in the long run, of the best plans with each number of cores.

    None if all of them are known to be too small.
    """
    memory, now, lately = case.learned.memory, case.situation.now, case.learned.seasons.lately
    rates = lately.closed
    highest = float(np.nanmax(rates, initial=search.need.rate))
    cost = cost_of_return(case.settings.costs, memory.late_seconds)
    delay = case.settings.scale_in_delay
    quiet = case.learned.demand.underused_for(now) - delay
    releases = []
    for cores in _some(np.unique(search.cores[allowed])):
        plan = search.cheapest(allowed & (search.cores == cores), case.drivers)
        if plan is None:
            continue
        capacity = search.capacity(plan, case.settings.target, highest)
        capacity = min(capacity, memory.capacity(search.shapes[plan], case.situation.plan, now))
        if capacity < search.need.rate:
            continue
        found = spared(rates, lately.width, capacity, delay).at_least(quiet)
        executors = float(search.cores[0] - cores) / case.bounds.executor_cores
        releases.append(Release(plan, executors, found, cost))
    return max(releases, key=lambda release: release.gain, default=None)


def _some(cores: Vector) -> Vector:
    """Return at most ``RELEASES`` of the numbers of cores, at about equal ratios: each takes a prediction."""
    if len(cores) <= RELEASES:
        return cores
    some: Vector = cores[np.unique(np.geomspace(1, len(cores), RELEASES).round().astype(int)) - 1]
    return some


def _certain(case: Case, search: Search) -> Mask:
    """Return the candidates with fewer cores that certainly meet the need; at rest, all of them, as no batch runs.

    If batches never ran on so few executors, W must also be at most the target when cores have their usual effect.
    """
    fewer: Mask = search.cores < search.cores[0]
    if case.at_rest:
        return fewer
    if not case.on(Guard.UNCERTAIN):
        return fewer & search.likely
    known: Mask = (search.executors >= case.tried.low) | (search.usual <= case.settings.target)
    return fewer & search.fits & ~search.wide & known


def make_do(case: Case) -> Decision:
    """Decide on the best plan for the executors that are ready, after the missing ones have not come for too long."""
    ready = max(case.situation.executors_ready, case.bounds.executors.low)
    search = _more(case, Range(ready, ready))
    best = search.proportional(search.executors == ready)
    if case.situation.exceeds_quota and case.on(Guard.QUOTA):
        return _explained(case.move(search.shapes[best], Guard.QUOTA, quota_limit(case.situation)), case, search, best)
    missing = case.situation.plan.executors - case.situation.executors_ready
    are = "is" if missing == 1 else "are"
    detail = f"{counted(missing)} {are} still not ready after {case.settings.patience:.0f} s"
    return _explained(case.move(search.shapes[best], Guard.CLUSTER, detail), case, search, best)


def undo(case: Case, outcome: ChangeOutcome) -> Decision:
    """Decide to return to the plan before a step that did not help."""
    before = case.bounds.nearest(outcome.change.before)
    fewer = before.executors < case.situation.plan.executors
    if fewer and case.situation.scale_in_paused and case.on(Guard.SCALE_IN_PAUSED):
        return case.stay(Guard.SCALE_IN_PAUSED)
    return case.move(before, Reason.UNDONE)


def careful(case: Case) -> Decision:
    """Decide on a plan in proportion to W over the target, at most twice as large, before anything can be predicted."""
    present, bounds = case.situation.plan, case.bounds
    ratio = min(max(case.inputs.utilization / case.settings.target, 1.0), 2.0)
    more = Shape(*(math.ceil(value * ratio) for value in (present.executors, present.parallelism, present.replicas)))
    most = min((limit.executors for limit in case.limits.most), default=more.executors)
    shape = bounds.nearest(replace(more, executors=min(more.executors, most)))
    return case.move(shape, Guard.CALIBRATING)


def _more(case: Case, executors: Range) -> Search:
    """Search plans for the present demand, with a margin if the last step was too small, to avoid a third one."""
    again = case.added and case.since_change < SOON * case.settings.scale_in_delay
    margin = case.settings.step / 2 if again else 0.0
    caution = CAUTION_FAR if case.urgent else CAUTION_OUT
    return case.search(executors, case.inputs.demand, margin, caution)


def _explained(decision: Decision, case: Case, search: Search, chosen: int, wanted: int | None = None) -> Decision:
    """Return the decision with the forecasts for its plans, and with the plans that were ruled out."""
    limit = case.limits.broken(search.shapes[wanted]) if wanted is not None else None
    ruled_out = dict[Shape, str]()
    if limit is not None and wanted is not None:
        ruled_out[search.shapes[wanted]] = limit.why
    cheaper = search.next_cheaper(chosen)
    for index in (0, cheaper):
        if index is not None and index != chosen and not search.fits[index]:
            ruled_out[search.shapes[index]] = search.why_unfit(index)
    return replace(
        decision,
        drivers=case.drivers,
        guard=decision.guard or (limit.guard if limit is not None else None),
        detail=decision.detail or (limit.why if limit is not None else ""),
        present=search.forecast(0),
        chosen=search.forecast(chosen),
        ruled_out=tuple(ruled_out.items()),
    )
