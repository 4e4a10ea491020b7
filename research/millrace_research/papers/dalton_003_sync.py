"""Paper 003, Figure 14b: DSYNC as the partitioners and the QtableReducer adapt it, in simulated time.

The protocol's own state machines run. How long a reducer is busy with its Q-tables, the paper does not say. The times
here are chosen so that the interval of the first phase, 10 s, is stable, which it is with any from 5 to 10 s. So the
first phase shows nothing; the others follow from it. From 5,000 s on the reducer needs twice as long, from 10,000 s on
four times, and from 15,000 s on as at first.
"""

from __future__ import annotations

import heapq

import numpy as np

from millrace_jobs.partitioners.dalton.cooperative import GlobalPolicy, QtableReducer, SyncMessage, SyncTimer
from millrace_research.papers.figures import REPLICAS, PaperFigures, Run

BUSY = (5.5, 6.0, 7.0, 8.0, 9.0, 9.5)
"""Seconds that the reducer needs at first."""
PHASES = ((0.0, 1.0), (5_000.0, 2.0), (10_000.0, 4.0), (15_000.0, 1.0))
"""When the reducer becomes slower or faster, and how many times as long it needs from then on."""
FIRST, SHORTEST, END, TICK = 20.0, 1.0, 20_000.0, 0.5


def run(figures: PaperFigures) -> None:
    """Run the protocol with two and more partitioners."""
    for replicas in REPLICAS[1:]:
        for busy in BUSY:
            intervals = _intervals(replicas, busy)
            ends = [begin for begin, _ in PHASES[1:]] + [END]
            for number, ((begin, _), end) in enumerate(zip(PHASES, ends, strict=True), start=1):
                inside = [interval for at, interval in intervals if begin <= at < end]
                figures.add(
                    Run("dsync, adaptive", phase(number, busy), "Dalton", 0, replicas),
                    interval=inside[-1],
                    syncs=sum(interval != inside[-1] for interval in inside),
                )


def phase(number: int, busy: float) -> str:
    """Return the name of a phase, counted from 1, of the run with a reducer that is busy for ``busy`` seconds."""
    return f"phase {number}, {busy:g} s"


def _intervals(replicas: int, busy: float) -> list[tuple[float, float]]:
    """Return when each global policy was sent, and its DSYNC."""
    reducer = QtableReducer(replicas=replicas, interval=FIRST, shortest=SHORTEST, now=0.0)
    timers = [SyncTimer(interval=FIRST, now=0.0) for _ in range(replicas)]
    replies: list[tuple[float, int]] = []
    policies: list[GlobalPolicy] = []
    found = []
    for now in np.arange(0.0, END, TICK).tolist():
        while replies and replies[0][0] <= now:
            at, number = heapq.heappop(replies)
            reducer.sent(at)
            for timer in timers:
                timer.received(policies[number])
            found.append((at, reducer.interval))
        for replica, timer in enumerate(timers):
            if timer.due(now):
                complete = reducer.receive(_message(replica, timer.slower))
                timer.sent(now)
                if complete:
                    policies.append(reducer.reduce(now))
                    heapq.heappush(replies, (now + busy * _slowness(now), len(policies) - 1))
    return found


def _slowness(now: float) -> float:
    return next(factor for begin, factor in PHASES[::-1] if begin <= now)


def _message(replica: int, slower: bool) -> SyncMessage:
    """Return a SYNC message without keys: only its arrival counts."""
    nothing = np.empty(0, np.int64)
    flags = nothing.astype(np.bool_)
    return SyncMessage(replica, 1, 0, nothing.astype(np.uint64), nothing, flags, flags, np.empty((0, 1)), 0, slower)
