"""Metrics of the simulated job: counted by its driver, and scraped late, with gaps and sometimes wrong."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from heapq import heappop, heappush
from typing import Any

import numpy as np

from millrace_operator.scaling.observation import Answer
from millrace_operator.scaling.shape import Shape
from millrace_research.arena.simulation.record import SimulatedBatch

SERIES = tuple(field.name for field in fields(Answer) if field.name != "time")
"""Names of all series of an answer."""

COUNTERS = tuple(name for name in SERIES if name.endswith("_total"))
"""Names of the series that only grow until the driver restarts."""


class SimulatedCounters:
    """Metrics that the driver reports: counters since its start, and gauges of its last batch or idle trigger."""

    def __init__(self, interval: float, dedicated: bool) -> None:
        """Count for a batch interval in seconds; ``dedicated`` says whether partitioners run in pods of their own."""
        self._interval = interval
        self.dedicated = dedicated
        self._batches = 0
        self._rows = 0
        self._processing = 0.0
        self._busy = 0.0
        self._tasks = {"route": 0, "combine": 0, "merge": 0}
        self._seconds = {"route": 0.0, "combine": 0.0, "merge": 0.0}
        self._partials = 0
        self._updates = 0
        self._lag: int | None = None
        self._imbalance: float | None = None
        self._last: SimulatedBatch | None = None
        self._progress: float | None = None
        self._pinned: tuple[int, Shape] | None = None
        self._running: dict[str, list[float]] = {}

    def ran(self, stage: str, tasks: list[float]) -> None:
        """Record the core seconds of the tasks of a stage of the running batch.

        If a stage runs twice, the last run counts, but both add to the busy time of the executors.
        """
        self._running[stage] = tasks
        self._busy += sum(tasks)

    def finished(
        self, batch: SimulatedBatch, waiting: int, partials: int, results: int, imbalance: float | None
    ) -> None:
        """Record the end of the running batch.

        Args:
            batch: the finished batch.
            waiting: records left at the source when the batch was planned.
            partials: number of its partial results.
            results: number of its results.
            imbalance: largest load of a combine task over the mean, less 1; None if no combine tasks ran.
        """
        for stage, tasks in self._running.items():
            self._tasks[stage] += len(tasks)
            self._seconds[stage] += sum(tasks)
        self._running = {}
        self._batches += 1
        self._rows += batch.rows
        self._processing += batch.seconds
        self._partials += partials
        self._updates += results
        self._lag, self._imbalance, self._last = waiting, imbalance, batch
        self._progress, self._pinned = batch.planned + batch.seconds, (batch.epoch, batch.plan)

    def idle(self, now: float, waiting: int, epoch: int, plan: Shape) -> None:
        """Record a trigger at ``now`` that finds nothing to do, for a next batch under this plan.

        Records that are ``waiting`` still wait in front of dedicated partitioners.
        """
        self._lag, self._progress, self._pinned = waiting, now, (epoch, plan)

    def answer(self, now: float, executors: int, dedicated_busy: float, dedicated_lag: float) -> Answer:
        """Return the metrics at ``now``, seconds, with ``executors`` executors ready.

        ``dedicated_busy`` is the CPU time of dedicated partitioners so far, seconds, and ``dedicated_lag`` the records
        that wait in front of them.
        """
        routed, last = not self.dedicated, self._last
        epoch, plan = self._pinned or (None, None)
        return Answer(
            time=now,
            batches_total=self._batches,
            rows_total=self._rows,
            processing_seconds_total=self._processing,
            route_tasks_total=self._tasks["route"] if routed else None,
            route_seconds_total=self._seconds["route"] if routed else None,
            combine_tasks_total=self._tasks["combine"],
            combine_seconds_total=self._seconds["combine"],
            merge_seconds_total=self._seconds["merge"],
            partials_total=self._partials,
            updates_total=self._updates,
            busy_core_seconds_total=self._busy,
            dedicated_busy_seconds_total=dedicated_busy if self.dedicated else None,
            dedicated_lag_rows=dedicated_lag if self.dedicated else None,
            interval_seconds=self._interval,
            lag_rows=self._lag,
            keys=last.distinct if last else None,
            imbalance=self._imbalance,
            epoch=epoch,
            parallelism=plan.parallelism if plan else None,
            replicas=plan.replicas if plan else None,
            executors=executors,
            progress_time=self._progress,
        )


class Fault(StrEnum):
    """Ways in which metrics can be wrong for a while."""

    UNREACHABLE = "unreachable"
    """No answer at all."""
    GAP = "gap"
    """Nothing is scraped, so the last answer ages."""
    ABSENT = "absent"
    """Answers come without values."""
    FROZEN = "frozen"
    """Answers come with a new time and old values."""
    DELAYED = "delayed"
    """Answers come five minutes late, with their original time."""
    NEGATIVE = "negative"
    """Numbers have the wrong sign."""
    NOT_A_NUMBER = "not-a-number"
    """Numbers are NaN."""
    COUNTER_RESET = "counter-reset"
    """The driver restarts, so counters count from 0."""
    FORMER_PLAN = "former-plan"
    """Answers describe the previous plan and continue at its pace."""


DELAY_SECONDS = 300.0
"""Delay of late answers, seconds."""


@dataclass(frozen=True)
class FaultyTime:
    """A fault from ``since`` to ``until``, seconds, in the given ``series``, or in all if none is given.

    Only absent, negative and NaN faults can be limited to some series.
    """

    fault: Fault
    since: float
    until: float
    series: tuple[str, ...] = ()


@dataclass(frozen=True)
class MetricsProfile:
    """Scrape interval, delay, loss and faults of metrics.

    Attributes:
        scrape_seconds: time from one scrape to the next.
        first_scrape: time of the first scrape, seconds.
        delay_seconds: time from a scrape until policies can read its answer.
        missing: probability that a scrape fails.
        faults: periods in which metrics are wrong.
    """

    scrape_seconds: float = 5.0
    delay_seconds: float = 0.5
    missing: float = 0.0
    first_scrape: float = 0.0
    faults: tuple[FaultyTime, ...] = ()


class MetricsPath:
    """The delayed, lossy channel that carries answers from the job to the policy."""

    def __init__(self, profile: MetricsProfile, rng: np.random.Generator) -> None:
        self._profile = profile
        self._rng = rng
        self._under_way: list[tuple[float, float, Answer]] = []
        self._newest: Answer | None = None
        self._passed: Answer | None = None
        self._resets: dict[FaultyTime, Answer] = {}
        self._plans: list[list[Answer]] = []

    def scrape(self, true: Answer) -> None:
        """Send the true answer, with faults applied, to the policy."""
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
        """Return the newest answer that has arrived; None before the first one or while metrics are unreachable."""
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
        """Count from the first scrape of the faulty period; counters stay reset after the period ends."""
        if answer.time < faulty.since:
            return answer
        start = self._resets.setdefault(faulty, answer)
        counts = {name: getattr(answer, name) - (getattr(start, name) or 0.0) for name in _present(answer, COUNTERS)}
        return replace(answer, **counts)

    def _former(self, answer: Answer) -> Answer:
        """Return the last answer under the previous plan, with its counters extrapolated at their pace."""
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
        """Keep the last two answers under the current plan and under the previous one."""
        if not self._plans or (self._plans[-1] and self._plans[-1][-1].epoch != true.epoch):
            self._plans = [*self._plans[-1:], []]
        self._plans[-1] = [*self._plans[-1][-1:], true]


def _present(answer: Answer, series: Iterable[str]) -> list[str]:
    return [name for name in series if getattr(answer, name) is not None]


def increase(earlier: Answer | None, later: Answer | None, counter: str) -> float | None:
    """Return the increase of a counter between two answers; None if a value is missing or the counter was reset.

    There are no further checks, because the systems that are simulated here make none.
    """
    if earlier is None or later is None:
        return None
    before, after = getattr(earlier, counter), getattr(later, counter)
    if before is None or after is None or not math.isfinite(after - before) or after < before:
        return None
    return float(after - before)


def ratio(above: float | None, below: float | None) -> float | None:
    """Return ``above / below``; None if either is unknown or ``below`` is not positive."""
    return None if above is None or not below or below < 0 else above / below
