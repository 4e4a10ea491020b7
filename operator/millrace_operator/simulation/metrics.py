"""The way of metrics from the job to the policy: scraped now and then, late, with gaps, and sometimes wrong."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from heapq import heappop, heappush
from typing import Any

import numpy as np

from millrace_operator.scaling.observation import Answer

SERIES = tuple(field.name for field in fields(Answer) if field.name != "time")
"""Names of all series of an answer."""

COUNTERS = tuple(name for name in SERIES if name.endswith("_total"))
"""Those that only grow until the driver starts anew."""


class Fault(StrEnum):
    """What can be wrong with metrics for a while."""

    UNREACHABLE = "unreachable"
    """There is no answer at all."""
    GAP = "gap"
    """Nothing is scraped, and the last answer grows old."""
    ABSENT = "absent"
    """Answers come without values."""
    FROZEN = "frozen"
    """Answers come with a new time and old values."""
    DELAYED = "delayed"
    """Answers come five minutes late, with the time they were true."""
    NEGATIVE = "negative"
    """Numbers have the wrong sign."""
    NOT_A_NUMBER = "not-a-number"
    """Numbers are NaN."""
    COUNTER_RESET = "counter-reset"
    """The driver starts anew: counters count from 0."""
    FORMER_PLAN = "former-plan"
    """Answers are of the plan before this one and go on as it did."""


DELAY_SECONDS = 300.0
"""By how much delayed answers are late."""


@dataclass(frozen=True)
class FaultyTime:
    """A fault from ``since`` to ``until``, seconds, in the ``series`` named; in all of them if none is.

    Only for absent, negative and NaN numbers can series be named.
    """

    fault: Fault
    since: float
    until: float
    series: tuple[str, ...] = ()


@dataclass(frozen=True)
class MetricsProfile:
    """How metrics travel.

    Attributes:
        scrape_seconds: time from one scrape to the next.
        first_scrape: when the first is, seconds.
        delay_seconds: time from a scrape until its answer is there for policies.
        missing: chance of a scrape to fail.
        faults: times when metrics are wrong.
    """

    scrape_seconds: float = 5.0
    delay_seconds: float = 0.5
    missing: float = 0.0
    first_scrape: float = 0.0
    faults: tuple[FaultyTime, ...] = ()


class MetricsPath:
    """Answers on their way from the job to the policy."""

    def __init__(self, profile: MetricsProfile, rng: np.random.Generator) -> None:
        self._profile = profile
        self._rng = rng
        self._under_way: list[tuple[float, float, Answer]] = []
        self._newest: Answer | None = None
        self._passed: Answer | None = None
        self._resets: dict[FaultyTime, Answer] = {}
        self._plans: list[list[Answer]] = []

    def scrape(self, true: Answer) -> None:
        """Send ``true``, or what faults make of it, on its way."""
        self._remember(true)
        lost = self._rng.random() < self._profile.missing
        delay = self._profile.delay_seconds
        answer = true
        for faulty in self._profile.faults:
            if faulty.fault is Fault.COUNTER_RESET:
                answer = self._reset(faulty, answer)
            elif faulty.since <= true.time < faulty.until:
                if faulty.fault is Fault.GAP:
                    lost = True
                elif faulty.fault is Fault.DELAYED:
                    delay += DELAY_SECONDS
                else:
                    answer = self._wrong(faulty, answer)
        if not lost:
            if not self._at(Fault.FROZEN, true.time):
                self._passed = answer
            heappush(self._under_way, (true.time + delay, true.time, answer))

    def read(self, now: float) -> Answer | None:
        """The newest answer that has arrived; None if there is none, or nobody answers."""
        while self._under_way and self._under_way[0][0] <= now:
            _, time, answer = heappop(self._under_way)
            if self._newest is None or time >= self._newest.time:
                self._newest = answer
        return None if self._at(Fault.UNREACHABLE, now) else self._newest

    def _at(self, fault: Fault, now: float) -> bool:
        return any(faulty.fault is fault and faulty.since <= now < faulty.until for faulty in self._profile.faults)

    def _wrong(self, faulty: FaultyTime, answer: Answer) -> Answer:
        present = _present(answer, faulty.series or SERIES)
        match faulty.fault:
            case Fault.ABSENT:
                absent: dict[str, Any] = dict.fromkeys(present)
                return replace(answer, **absent)
            case Fault.NOT_A_NUMBER:
                return replace(answer, **dict.fromkeys(present, math.nan))
            case Fault.NEGATIVE:
                return replace(answer, **{name: -getattr(answer, name) for name in present})
            case Fault.FROZEN:
                self._passed = self._passed or answer
                return replace(self._passed, time=answer.time)
            case Fault.FORMER_PLAN:
                return self._former(answer)
        return answer

    def _reset(self, faulty: FaultyTime, answer: Answer) -> Answer:
        """Counters from the first scrape of the faulty time on; nothing sets them back when it ends."""
        if answer.time < faulty.since:
            return answer
        start = self._resets.setdefault(faulty, answer)
        counts = {name: getattr(answer, name) - (getattr(start, name) or 0.0) for name in _present(answer, COUNTERS)}
        return replace(answer, **counts)

    def _former(self, answer: Answer) -> Answer:
        """The last answer under the plan before, its counters going on at the pace they had."""
        if len(self._plans) < 2 or not self._plans[-2]:
            return answer
        first, last = self._plans[-2][0], self._plans[-2][-1]
        passed = (answer.time - last.time) / (last.time - first.time) if last.time > first.time else 0.0
        counts = {
            name: getattr(last, name) + passed * (getattr(last, name) - getattr(first, name))
            for name in _present(first, COUNTERS)
        }
        return replace(last, time=answer.time, **counts)

    def _remember(self, true: Answer) -> None:
        """Keep the last two answers under this plan and the one before."""
        if not self._plans or (self._plans[-1] and self._plans[-1][-1].epoch != true.epoch):
            self._plans = [*self._plans[-1:], []]
        self._plans[-1] = [*self._plans[-1][-1:], true]


def _present(answer: Answer, series: Iterable[str]) -> list[str]:
    return [name for name in series if getattr(answer, name) is not None]
