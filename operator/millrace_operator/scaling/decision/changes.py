"""Changes of plan: what was expected of them, how they turned out, and what not to retry too soon."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..observation import Observation
from ..shape import Shape

HELPFUL = 0.2
"""Share of the predicted gain below which a step counts as not having helped."""

HARM = 1.03
"""Factor by which batches may become longer with other tasks before that counts as harm."""

LEAST_JUDGED_GAIN = 0.1
"""Predicted gain, as a share of the batch time, below which a step is not judged, because noise would decide."""

SIMILAR, LOWER = 1.25, 0.97
"""Ratios of a load's rate to an earlier one up to which it is no larger, and below which it is lower."""

_LATE_SECONDS = 6.0
"""Seconds of late batches until added executors are there, before any were counted."""


@dataclass(frozen=True)
class Line:
    """Predicted seconds of a batch under one plan: ``fixed``, plus ``per_row`` for each record."""

    fixed: float
    per_row: float

    @staticmethod
    def through(first: tuple[float, float], second: tuple[float, float]) -> Line:
        """Return the line through two points (rows, seconds)."""
        per_row = (second[1] - first[1]) / (second[0] - first[0])
        return Line(first[1] - per_row * first[0], per_row)

    def times(self, factor: float) -> Line:
        """Return the line for batches that take ``factor`` times as long."""
        return Line(self.fixed * factor, self.per_row * factor)

    def at(self, rows: float) -> float:
        """Return the seconds of a batch of ``rows`` records."""
        return self.fixed + self.per_row * rows


@dataclass(frozen=True)
class Change:
    """A change of plan at ``time``, when ``rate`` records per second arrived.

    ``expected`` holds the predictions for both plans; None if nothing was predicted. ``undoes`` marks a change that
    takes back a step that did not help. The plan was made for ``planned`` records per second; None if for no rate.
    ``foreseen`` marks a change for a rise that had not begun.
    """

    time: float
    before: Shape
    after: Shape
    rate: float
    expected: tuple[Line, Line] | None
    undoes: bool = False
    planned: float | None = None
    foreseen: bool = False

    @property
    def load(self) -> float:
        """The records per second that the change is about: what arrived, or what was foreseen."""
        return self.planned if self.foreseen and self.planned is not None else self.rate

    @property
    def adds(self) -> bool:
        """Whether the change adds executors, and does not just undo a step."""
        return not self.undoes and self.after.executors > self.before.executors

    @staticmethod
    def from_json(saved: Mapping[str, Any]) -> Change:
        """Return the change that ``asdict`` turned into a mapping."""
        shapes = {name: Shape(**saved[name]) for name in ("before", "after")}
        before, after = saved["expected"] or (None, None)
        expected = (Line(**before), Line(**after)) if before and after else None
        return Change(**{**saved, **shapes, "expected": expected})


@dataclass(frozen=True)
class ChangeOutcome:
    """The outcome of a change: batch seconds predicted ``without`` it, ``predicted`` with it, and ``observed``.

    ``rate`` is how many records per second arrived by then; None if it is unknown.
    """

    change: Change
    without: float
    predicted: float
    observed: float
    rate: float | None = None

    @staticmethod
    def from_json(saved: Mapping[str, Any]) -> ChangeOutcome:
        """Return the outcome that ``asdict`` turned into a mapping."""
        return ChangeOutcome(**{**saved, "change": Change.from_json(saved["change"])})

    @property
    def error(self) -> float:
        """Predicted minus observed batch time, as a share of the observed."""
        return self.predicted / self.observed - 1

    @property
    def helped(self) -> bool:
        """Whether batches gained a good part of what was predicted; true if there was little to gain.

        Other tasks on as many executors cost nothing, so they helped if they did no harm. Once the load has grown, harm
        looks like what more records take, and a return to the tasks before would cost time in which the load grows
        further.
        """
        change, gain = self.change, self.without - self.predicted
        if change.undoes or change.after.executors < change.before.executors or gain < LEAST_JUDGED_GAIN * self.without:
            return True
        if change.after.executors == change.before.executors:
            grown = self.rate is not None and self.rate > change.rate * SIMILAR
            return grown or self.observed <= self.without * HARM
        return self.without - self.observed >= HELPFUL * gain


@dataclass(frozen=True)
class Failure:
    """A step that did not help at ``rate`` records per second, and the time ``until`` which it is not retried."""

    before: Shape
    after: Shape
    rate: float
    until: float
    times: int

    @staticmethod
    def from_json(saved: Mapping[str, Any]) -> Failure:
        """Return the failure that ``asdict`` turned into a mapping."""
        return Failure(**{**saved, "before": Shape(**saved["before"]), "after": Shape(**saved["after"])})

    def like(self, rate: float) -> bool:
        """Return whether ``rate`` records per second are a load at which the step would not help either."""
        return rate <= self.rate * SIMILAR

    def forbids(self, shape: Shape) -> bool:
        """Return whether ``shape`` is a step in the same direction.

        If the step changed the number of executors, that is any plan with more executors than before it. Otherwise it
        is any plan with other tasks on as many executors.
        """
        if self.after.executors != self.before.executors:
            return shape.executors > self.before.executors
        return shape.executors == self.before.executors and shape != self.before


@dataclass(frozen=True)
class TooFew:
    """A ``count`` of executors, or of replicas in pods of their own, that was too few for ``rate`` records per second.

    It is remembered until ``until``.
    """

    count: int
    rate: float
    until: float
    times: int

    @staticmethod
    def from_json(saved: Mapping[str, Any]) -> TooFew:
        """Return what ``asdict`` turned into a mapping; earlier versions had a count of executors alone."""
        others = {name: value for name, value in saved.items() if name != "executors"}
        return TooFew(**({"count": saved["executors"]} | others if "executors" in saved else others))

    def like(self, rate: float) -> bool:
        """Return whether they are too few for ``rate`` too, because it is not lower."""
        return rate > self.rate * LOWER


@dataclass(frozen=True)
class Shortage:
    """A cluster that had room for no more than ``executors``; more are requested after ``until``."""

    executors: int
    until: float
    times: int


STARTUP_SECONDS = 30.0
"""Seconds until requested executors are assumed to be ready, before two startups have been observed."""

FORGET_SECONDS, MOST_DOUBLINGS = 900.0, 4
"""Seconds for which a step that did not help is not retried, and how often they may double if it fails again."""

TOO_FEW_SECONDS = 3600.0
"""Seconds for which executors are remembered as too few; they double each time the executors are too few again."""

TRIED_SECONDS = 86_400.0
"""Seconds for which a number of executors counts as tried after batches ran on it."""

_MOST_REMEMBERED = 8


class ChangeMemory:
    """Memory of changes, each followed until its outcome is known; bounded, with times of the operator's clock."""

    def __init__(self) -> None:
        self.change: Change | None = None
        self.outcome: ChangeOutcome | None = None
        self.shortage: Shortage | None = None
        self.failures: deque[Failure] = deque(maxlen=_MOST_REMEMBERED)
        self.too_few: deque[TooFew] = deque(maxlen=_MOST_REMEMBERED)
        self.too_few_replicas: deque[TooFew] = deque(maxlen=_MOST_REMEMBERED)
        self._tried: dict[int, float] = {}
        self._startups: deque[float] = deque(maxlen=_MOST_REMEMBERED)
        self._late: deque[float] = deque(maxlen=_MOST_REMEMBERED)
        self._short_since: float | None = None
        self._whole = math.inf  # batches since executors that were missing are there
        self._most_ready = 0
        self._complete = True
        self._batches = 0
        self._late_now = 0.0
        self._after: list[tuple[float, float]] = []

    def begin(self, change: Change) -> None:
        """Record that a change is being made."""
        again = self.change is not None and self.change.adds and change.adds and not self._after
        self._late_now = self._late_now if again else 0.0  # for a second step before the first has shown its effect
        self.change = change
        self._short_since = None
        self._complete = False
        self._batches, self._after = 0, []

    def were_too_few(self, executors: int, rate: float, now: float) -> None:
        """Remember that ``executors`` were too few for ``rate`` records per second."""
        _remember(self.too_few, executors, rate, now)

    def were_too_few_replicas(self, replicas: int, rate: float, now: float) -> None:
        """Remember that ``replicas`` in pods of their own were too few for ``rate`` records per second."""
        _remember(self.too_few_replicas, replicas, rate, now)

    def follow(self, now: float, shape: Shape, ready: int, pending_since: float | None, patience: float) -> None:
        """Record how many executors are ready; those that should leave are waited for at most ``patience`` seconds."""
        if self.change is not None and shape != self.change.after:  # not carried out, or changed by someone else
            self.change, self._complete = None, True
            self._batches, self._late_now, self._after = 0, 0.0, []
        if ready >= shape.executors:
            self._whole = self._whole if self._short_since is None else 0
            self._short_since = None
        elif self._short_since is None:
            self._short_since, self._most_ready = now if pending_since is None else min(now, pending_since), ready
        elif ready > self._most_ready or self._short_since > now:
            self._short_since, self._most_ready = now, max(ready, self._most_ready)
        if self._complete or self.change is None:
            return
        waited = now - self.change.time
        if ready == shape.executors and self.change.after.executors > self.change.before.executors:
            self._startups.append(waited)
        self._complete = ready == shape.executors or (ready > shape.executors and waited > patience)

    def short_for(self, now: float) -> float | None:
        """Return the seconds since the last executor arrived while others are missing; None if none is missing."""
        return None if self._short_since is None else now - self._short_since

    def observe(
        self, seen: Observation, now: float, grace: int, judged: int, arrival: float | None = None
    ) -> ChangeOutcome | None:
        """Record batches; return the outcome of the last change once ``judged`` batches after its ``grace`` are over.

        The time of late batches until then is counted.
        """
        if seen.idle:  # nothing can be learned of a change without batches, and nothing is gained by waiting for them
            self._batches = grace + judged if self._complete else self._batches
            self._whole = math.inf if self._complete else self._whole
            return None
        self._whole += seen.batches
        self._tried[seen.plan.executors] = now
        change = self.change
        if change is None or self._batches >= grace + judged:
            return None
        self._late_now += seen.batches * seen.seconds if seen.seconds > seen.interval else 0.0
        if not self._complete:
            return None
        self._batches += seen.batches
        if self._batches > grace:
            self._after.append((seen.rows, seen.seconds))
        if self._batches < grace + judged:
            return None
        if change.adds and change.planned is not None and change.before.executors:  # it was for a load that rose
            self._late.append(self._late_now)
        if change.expected is None:
            return None
        rows = statistics.median(rows for rows, _ in self._after)
        without, predicted = (line.at(rows) for line in change.expected)
        observed = statistics.median(seconds for _, seconds in self._after)
        self.outcome = ChangeOutcome(change, without, predicted, observed, arrival)
        return self.outcome

    def settled(self, batches: int) -> bool:
        """Return whether the last change is complete and ``batches`` batches have passed, all executors being there.

        After some were lost and others have come, batches are long for a while, which says nothing of the plan.
        """
        changed = self.change is None or (self._complete and self._batches >= batches)
        return changed and self._whole >= batches

    def tried(self, now: float) -> list[int]:
        """Return the numbers of executors that batches ran on within ``TRIED_SECONDS``."""
        self._tried = {executors: time for executors, time in self._tried.items() if now - time < TRIED_SECONDS}
        return list(self._tried)

    def too_few_for(self, rate: float, now: float) -> TooFew | None:
        """Return the most executors known to be too few for ``rate`` records per second; None if no number is."""
        known = [one for one in self.too_few if now < one.until and one.like(rate)]
        return max(known, key=lambda one: one.count, default=None)

    def capacity(self, shape: Shape, present: Shape, now: float) -> float:
        """Return the records per second from which on a plan is known to have too few of something, or infinity.

        Only what it has less of than the ``present`` plan counts.
        """
        fewer: list[tuple[TooFew, int]] = []
        if shape.executors < present.executors:
            fewer += [(one, shape.executors) for one in self.too_few]
        if shape.replicas < present.replicas:
            fewer += [(one, shape.replicas) for one in self.too_few_replicas]
        return min((one.rate * LOWER for one, few in fewer if now < one.until and one.count >= few), default=math.inf)

    @property
    def startup(self) -> float:
        """Seconds until requested executors are ready: the upper quartile of the last startups."""
        return statistics.quantiles(self._startups, n=4)[2] if len(self._startups) > 1 else STARTUP_SECONDS

    @property
    def late_seconds(self) -> float:
        """Seconds of late batches until added executors are there: the mean of the last times, and one before them."""
        return statistics.fmean([_LATE_SECONDS, *self._late])

    def failed(self, outcome: ChangeOutcome, now: float) -> None:
        """Remember that a step did not help."""
        change = outcome.change
        again = [one.times for one in self.failures if one.forbids(change.after) and one.like(change.load)]
        times = 1 + max(again, default=0)
        until = _until(now, FORGET_SECONDS, times)
        self.failures.append(Failure(change.before, change.after, change.load, until, times))

    def failures_like(self, rate: float, now: float) -> tuple[Failure, ...]:
        """Return the steps that are not to be retried yet at ``rate`` records per second."""
        return tuple(one for one in self.failures if now < one.until and one.like(rate))

    def ran_short(self, executors: int, now: float) -> None:
        """Remember that the cluster had room for no more than ``executors``."""
        again = self.shortage is not None and now < self.shortage.until + FORGET_SECONDS
        times = self.shortage.times + 1 if self.shortage is not None and again else 1
        self.shortage = Shortage(executors, _until(now, FORGET_SECONDS, times), times)

    def save(self) -> dict[str, Any]:
        """Return the whole state in JSON types."""
        return {
            "change": self.change and asdict(self.change),
            "outcome": self.outcome and asdict(self.outcome),
            "shortage": self.shortage and asdict(self.shortage),
            "failures": [asdict(one) for one in self.failures],
            "too_few": [asdict(one) for one in self.too_few],
            "too_few_replicas": [asdict(one) for one in self.too_few_replicas],
            "tried": [list(pair) for pair in self._tried.items()],
            "startups": list(self._startups),
            "late": list(self._late),
            "short_since": self._short_since,
            "whole": None if math.isinf(self._whole) else self._whole,
            "most_ready": self._most_ready,
            "complete": self._complete,
            "batches": self._batches,
            "late_now": self._late_now,
            "after": [list(pair) for pair in self._after],
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Continue from what ``save`` returned."""
        self.change = Change.from_json(saved["change"]) if saved["change"] else None
        self.outcome = ChangeOutcome.from_json(saved["outcome"]) if saved["outcome"] else None
        self.shortage = Shortage(**saved["shortage"]) if saved["shortage"] else None
        self.failures.extend(map(Failure.from_json, saved["failures"]))
        self.too_few.extend(map(TooFew.from_json, saved["too_few"]))
        self.too_few_replicas.extend(map(TooFew.from_json, saved.get("too_few_replicas", ())))
        self._tried = dict(saved["tried"])
        self._startups.extend(saved["startups"])
        self._late.extend(map(float, saved.get("late", ())))  # which earlier versions have not saved
        self._short_since, self._most_ready = saved["short_since"], saved["most_ready"]
        whole = saved.get("whole")  # which earlier versions have not saved
        self._whole = math.inf if whole is None else float(whole)
        self._complete, self._batches, self._late_now = saved["complete"], saved["batches"], saved.get("late_now", 0.0)
        self._after = [(rows, seconds) for rows, seconds in saved["after"]]


def _remember(known: deque[TooFew], count: int, rate: float, now: float) -> None:
    times = 1 + max((one.times for one in known if one.count >= count and one.like(rate)), default=0)
    known.append(TooFew(count, rate, _until(now, TOO_FEW_SECONDS, times), times))


def _until(now: float, seconds: float, times: int) -> float:
    """Return until when something is remembered that has happened ``times`` times."""
    return now + seconds * 2.0 ** min(times - 1, MOST_DOUBLINGS)
