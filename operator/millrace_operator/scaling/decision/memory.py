"""Memory of past changes: how long they took, what they achieved, and which ones did not help."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ..observation import Observation
from ..plans import Shape
from .changes import Change, ChangeOutcome, Failure, Shortage, TooFew

STARTUP_SECONDS = 30.0
"""Seconds until requested executors are assumed to be ready, before any start has been observed."""

FORGET_SECONDS, MOST_DOUBLINGS = 900.0, 4
"""Seconds for which a step that did not help is not retried, and how often they may double if it fails again."""

TOO_FEW_SECONDS = 3600.0
"""Seconds for which executors are remembered as too few; they double each time the executors are too few again."""

TRIED_SECONDS = 86_400.0
"""Seconds for which a number of executors counts as tried after batches ran on it."""

_KEPT = 8


class ChangeMemory:
    """Memory of changes, each followed until its outcome is known; bounded, with times of the operator's clock."""

    def __init__(self) -> None:
        self.change: Change | None = None
        self.outcome: ChangeOutcome | None = None
        self.shortage: Shortage | None = None
        self.failures: deque[Failure] = deque(maxlen=_KEPT)
        self.too_few: deque[TooFew] = deque(maxlen=_KEPT)
        self._tried: dict[int, float] = {}
        self._startups: deque[float] = deque(maxlen=_KEPT)
        self._downtimes: deque[float] = deque(maxlen=_KEPT)
        self._short_since: float | None = None
        self._most_ready = 0
        self._complete = True
        self._batches = 0
        self._lost = 0.0
        self._after: list[tuple[float, float]] = []

    def begin(self, change: Change) -> None:
        """Record that a change is being made."""
        self.change = change
        self._short_since = None
        self._complete = False
        self._batches, self._lost, self._after = 0, 0.0, []

    def were_too_few(self, executors: int, rate: float, now: float) -> None:
        """Remember that ``executors`` were too few for ``rate`` records per second."""
        again = [one.times for one in self.too_few if one.executors >= executors and one.like(rate)]
        times = 1 + max(again, default=0)
        until = now + TOO_FEW_SECONDS * 2 ** min(times - 1, MOST_DOUBLINGS)
        self.too_few.append(TooFew(executors, rate, until, times))

    def follow(self, now: float, plan: Shape, ready: int, pending_since: float | None, patience: float) -> None:
        """Record how many executors are ready; those that should leave are waited for at most ``patience`` seconds."""
        if self.change is not None and plan != self.change.after:  # not carried out, or changed by someone else
            self.change, self._complete = None, True
            self._batches, self._lost, self._after = 0, 0.0, []
        if ready >= plan.executors:
            self._short_since = None
        elif self._short_since is None:
            self._short_since, self._most_ready = now if pending_since is None else min(now, pending_since), ready
        elif ready > self._most_ready or self._short_since > now:
            self._short_since, self._most_ready = now, max(ready, self._most_ready)
        if self._complete or self.change is None:
            return
        waited = now - self.change.time
        if ready == plan.executors and self.change.after.executors > self.change.before.executors:
            self._startups.append(waited)
        self._complete = ready == plan.executors or (ready > plan.executors and waited > patience)

    def short_for(self, now: float) -> float | None:
        """Return the seconds since the last executor arrived while others are missing; None if none is missing."""
        return None if self._short_since is None else now - self._short_since

    def observe(self, seen: Observation, now: float, grace: int, telling: int) -> ChangeOutcome | None:
        """Record batches; return the outcome of the last change once ``telling`` batches after its ``grace`` are over.

        The time that earlier batches take beyond what they should under either plan is the downtime of the change.
        """
        self._tried[seen.plan.executors] = now
        change = self.change
        if change is None or self._batches >= grace + telling:
            return None
        if self._batches < grace and change.expected is not None:
            slower = max(line.at(seen.rows) for line in change.expected)
            self._lost += max(seen.seconds - slower, 0.0) * seen.batches
        if not self._complete:
            return None
        self._batches += seen.batches
        if self._batches > grace:
            self._after.append((seen.rows, seen.seconds))
        if self._batches < grace + telling or change.expected is None:
            return None
        self._downtimes.append(self._lost)
        rows = statistics.median(rows for rows, _ in self._after)
        without, predicted = (line.at(rows) for line in change.expected)
        self.outcome = ChangeOutcome(
            change, without, predicted, statistics.median(seconds for _, seconds in self._after)
        )
        return self.outcome

    def settled(self, batches: int) -> bool:
        """Return whether the last change is complete and ``batches`` batches have passed since."""
        return self.change is None or (self._complete and self._batches >= batches)

    def tried(self, now: float) -> list[int]:
        """Return the numbers of executors that batches ran on within ``TRIED_SECONDS``."""
        self._tried = {executors: time for executors, time in self._tried.items() if now - time < TRIED_SECONDS}
        return list(self._tried)

    def too_few_for(self, rate: float, now: float) -> TooFew | None:
        """Return the most executors known to be too few for ``rate`` records per second; None if no number is."""
        known = [one for one in self.too_few if now < one.until and one.like(rate)]
        return max(known, key=lambda one: one.executors, default=None)

    @property
    def startup(self) -> float:
        """Seconds until requested executors are ready: the upper quartile of the last startups."""
        return statistics.quantiles(self._startups, n=4)[2] if len(self._startups) > 1 else STARTUP_SECONDS

    @property
    def downtime(self) -> float:
        """Seconds of processing that a change costs: the median of the last changes."""
        return statistics.median(self._downtimes) if self._downtimes else 0.0

    def failed(self, outcome: ChangeOutcome, now: float) -> None:
        """Remember that a step did not help."""
        change = outcome.change
        again = [one.times for one in self.failures if one.forbids(change.after) and one.like(change.rate)]
        times = 1 + max(again, default=0)
        until = now + FORGET_SECONDS * 2 ** min(times - 1, MOST_DOUBLINGS)
        self.failures.append(Failure(change.before, change.after, change.rate, until, times))

    def failures_like(self, rate: float, now: float) -> tuple[Failure, ...]:
        """Return the steps that are not to be retried yet at ``rate`` records per second."""
        return tuple(one for one in self.failures if now < one.until and one.like(rate))

    def ran_short(self, executors: int, now: float) -> None:
        """Remember that the cluster had room for no more than ``executors``."""
        again = self.shortage is not None and now < self.shortage.until + FORGET_SECONDS
        times = self.shortage.times + 1 if self.shortage is not None and again else 1
        self.shortage = Shortage(executors, now + FORGET_SECONDS * 2 ** min(times - 1, MOST_DOUBLINGS), times)

    def save(self) -> dict[str, Any]:
        """Return the whole state in JSON types."""
        return {
            "change": self.change and asdict(self.change),
            "outcome": self.outcome and asdict(self.outcome),
            "shortage": self.shortage and asdict(self.shortage),
            "failures": [asdict(one) for one in self.failures],
            "too_few": [asdict(one) for one in self.too_few],
            "tried": [list(pair) for pair in self._tried.items()],
            "startups": list(self._startups),
            "downtimes": list(self._downtimes),
            "short_since": self._short_since,
            "most_ready": self._most_ready,
            "complete": self._complete,
            "batches": self._batches,
            "lost": self._lost,
            "after": [list(pair) for pair in self._after],
        }

    @staticmethod
    def restore(saved: Mapping[str, Any]) -> ChangeMemory:
        """Return the memory that ``save`` wrote."""
        memory = ChangeMemory()
        memory.change = Change.from_json(saved["change"]) if saved["change"] else None
        memory.outcome = ChangeOutcome.from_json(saved["outcome"]) if saved["outcome"] else None
        memory.shortage = Shortage(**saved["shortage"]) if saved["shortage"] else None
        memory.failures.extend(map(Failure.from_json, saved["failures"]))
        memory.too_few.extend(TooFew(**one) for one in saved["too_few"])
        memory._tried = dict(saved["tried"])
        memory._startups.extend(saved["startups"])
        memory._downtimes.extend(saved["downtimes"])
        memory._short_since, memory._most_ready = saved["short_since"], saved["most_ready"]
        memory._complete, memory._batches, memory._lost = saved["complete"], saved["batches"], saved["lost"]
        memory._after = [(rows, seconds) for rows, seconds in saved["after"]]
        return memory
