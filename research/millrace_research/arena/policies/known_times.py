"""``known-times``: a controller that knows how long batches take under every plan, and of the load only what has come.

It shows what not knowing the future costs by itself, without a model that has to be learned. Executors are added at
once if those that are requested are too few for the rate of the last seconds and for what waits. They are released if
fewer were enough for the largest such demand of a while; with ``doubling``, each reversal doubles that while.

With ``ahead``, it also knows the load of some seconds to come, and has executors for that before it comes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cache
from math import exp
from statistics import NormalDist

import numpy as np

from millrace_operator.scaling.decision.decision import Situation
from millrace_operator.scaling.observation import Answer
from millrace_operator.scaling.shape import Shape
from millrace_research.arena.known_job import known_job
from millrace_research.arena.simulation.keys import Keys
from millrace_research.arena.simulation.record import REVERSED_WITHIN
from millrace_research.arena.simulation.run import Scenario

_RATE_SECONDS = 10.0
"""Seconds over which the present rate is measured."""
_DRAIN_SECONDS = 60.0
"""Seconds in which a backlog is to be worked off."""
_WAITING_INTERVALS = 1.2
"""Intervals of records that wait although there is no backlog."""
_CALM_SECONDS, _LONGEST = 7200.0, 16.0
"""Seconds without a reversal after which the wait is halved, and the longest wait, as a multiple of ``hold``."""
_ROOM = 0.95
"""Share of the capacity of fewer executors that the largest demand may take for a release."""


@dataclass(frozen=True)
class KnownTimesSetting:
    """How long demand must have been lower before a release, whether reversals double that, and how safe a plan is.

    ``confidence`` is the share of ordinary batches that a plan keeps within the interval, and ``ahead`` are the seconds
    of the load to come that are known.
    """

    hold: float = 600.0
    doubling: bool = True
    confidence: float = 0.99
    ahead: float = 0.0


class KnownTimesPolicy:
    """A policy with the true times of batches, which knows at most ``ahead`` seconds of the load to come."""

    name = "known-times"
    period = 5.0

    def __init__(self, scenario: Scenario, setting: KnownTimesSetting) -> None:
        self._setting = setting
        self._job, self._keys = known_job(scenario.job, scenario.bounds), scenario.keys
        self._arrived, self._end = scenario.trace.arrived, scenario.trace.duration
        self._interval = scenario.job.interval
        self._seconds = self._interval * exp(-NormalDist().inv_cdf(setting.confidence) * scenario.job.noise.batch)
        self._sizes = scenario.bounds.executors
        self._capacities = cache(self._known)
        self._demands: deque[tuple[float, float]] = deque()  # those that no later one exceeds
        self._wait = 1.0
        self._added: bool | None = None
        self._changed = self._calm = 0.0

    def step(self, answer: Answer | None, situation: Situation) -> Shape | None:
        """Return the plan with the fewest executors that are enough, given how long they are kept."""
        now, executors = situation.now, situation.plan.executors
        if now > 0:
            demand = self._demand(answer, now)
            while self._demands and self._demands[-1][1] <= demand:
                self._demands.pop()
            self._demands.append((now, demand))
            while self._demands[0][0] < now - self._setting.hold * _LONGEST:
                self._demands.popleft()
            if self._wait > 1 and now - self._calm > _CALM_SECONDS:
                self._wait, self._calm = self._wait / 2, now
            wanted = max(self._enough(demand, 1.0, now), self._kept(now, executors))
            if wanted != executors:
                self._change(wanted > executors, now)
            executors = wanted
        return self._job.shape(executors, self._keys.at(now))

    def _demand(self, answer: Answer | None, now: float) -> float:
        since = max(now - _RATE_SECONDS, 0.0)
        rate = (self._arrived(now) - self._arrived(since)) / (now - since)
        waiting = 0.0 if answer is None or answer.lag_rows is None else answer.lag_rows
        present = rate + max(waiting - _WAITING_INTERVALS * rate * self._interval, 0.0) / _DRAIN_SECONDS
        return max(present, self._coming(now))

    def _coming(self, now: float) -> float:
        """Return the largest rate in the time ahead; 0 if none of it is known."""
        arrived = [
            self._arrived(time) for time in np.arange(now, min(now + self._setting.ahead, self._end), _RATE_SECONDS)
        ]
        return max(np.diff(arrived), default=0.0) / _RATE_SECONDS

    def _kept(self, now: float, executors: int) -> int:
        """Return how many of the executors are not released yet."""
        since = now - self._setting.hold * self._wait
        if since < 0:
            return executors
        largest = next(demand for time, demand in self._demands if time >= since)
        return min(self._enough(largest, _ROOM, now), executors)

    def _enough(self, rate: float, room: float, now: float) -> int:
        """Return the fewest executors that a share ``room`` of the capacity of is enough for ``rate``."""
        capacities = self._capacities(self._keys.at(now))
        return next((size for size, most in capacities if most * room >= rate), self._sizes.high)

    def _known(self, keys: Keys) -> list[tuple[int, float]]:
        """Return the numbers of executors with their capacities, in records per second."""
        sizes = range(self._sizes.low, self._sizes.high + 1)
        shapes = ((size, self._job.shape(size, keys)) for size in sizes)
        return [(size, self._job.most_rows(shape, self._seconds, keys) / self._interval) for size, shape in shapes]

    def _change(self, adds: bool, now: float) -> None:
        if self._setting.doubling and self._added is (not adds) and now - self._changed <= REVERSED_WITHIN:
            self._wait, self._calm = min(self._wait * 2, _LONGEST), now
        self._added, self._changed = adds, now
