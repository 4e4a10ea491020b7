"""Figures of a policy's run, each with one definition for all policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from millrace_operator.scaling.shape import Bounds
from millrace_research.arena.simulation.record import LATE_INTERVALS, REVERSED_WITHIN, Rescale, SimulatedRun
from millrace_research.arena.simulation.traces import Trace

_CALM_BATCHES = 10
"""Consecutive batches in time after which a job has settled."""
_ROUNDING = 1e-6
"""Tolerance for rounding errors, seconds."""
_FLAT, _JUMP = 0.02, 0.2
"""Limits of a step change, as shares of the rate: its largest range on either side, and its smallest jump."""
_FLAT_SECONDS = 600.0
"""Seconds for which the rate is flat on both sides of a step change."""
_UNDONE_WITHIN = 600.0
"""Seconds within which a reverted rescale may be an oscillation."""
_EXPLAINED = 0.1
"""Smallest change of demand, as a share, that explains a rescale."""
_DEMAND_SECONDS = 60.0
"""Seconds over which demand is measured."""


@dataclass(frozen=True)
class Settling:
    """The reaction to a step change of the load, until the next change or the end of the run.

    Attributes:
        time: time of the change, seconds.
        rescales: number of rescales.
        seconds: time from the change until the first of ten consecutive batches in time after the last rescale; None
            if there are no such ten.
    """

    time: float
    rescales: int
    seconds: float | None


@dataclass(frozen=True)
class RunFigures:
    """Figures of one run.

    Attributes:
        policy: name of the policy.
        over_interval: share of the batches that took longer than the interval.
        violations: share of the batches that were not in time (``in_time``). Unlike ``over_interval``, this includes
            batches that are short only because admission control limits them while the backlog grows.
        latency_p50, latency_p95, latency_p99: seconds from the arrival of a record to the end of its batch.
        late: share of the records with a latency over two intervals: one to wait for the batch, one to be in it.
        core_hours: core hours of executors and dedicated partitioner pods, from the request for each until it is gone.
        over_oracle: core hours over those of the oracle in the same scenario; None if the oracle did not run.
        rescales: number of changes of the plan.
        settling: reaction to each step change of the load.
        oscillations: rescales that were reverted within ten minutes without a change of demand to explain it.
        largest_backlog: most records that waited at the source.
        reversals: rescales that released cores and were followed by one that added some within 15 minutes, or the
            opposite, whatever the reason.
    """

    policy: str
    over_interval: float
    violations: float
    latency_p50: float
    latency_p95: float
    latency_p99: float
    late: float
    core_hours: float
    over_oracle: float | None
    rescales: int
    settling: tuple[Settling, ...]
    oscillations: int
    largest_backlog: int
    reversals: int


def figures(run: SimulatedRun, trace: Trace, bounds: Bounds, oracle_core_hours: float | None = None) -> RunFigures:
    """Return the figures of a run on ``trace``; ``bounds`` gives the cores of each plan."""
    p50, p95, p99 = run.latencies.quantiles((0.5, 0.95, 0.99)).tolist()
    return RunFigures(
        policy=run.policy,
        over_interval=float((run.seconds > run.interval).mean()),
        violations=float(1 - in_time(run).mean()),
        latency_p50=p50,
        latency_p95=p95,
        latency_p99=p99,
        late=run.late_rows / max(run.arrived, 1),
        core_hours=run.core_hours,
        over_oracle=run.core_hours / oracle_core_hours if oracle_core_hours else None,
        rescales=len(run.rescales),
        settling=settling(run, step_changes(trace)),
        oscillations=oscillations(run, trace, bounds),
        largest_backlog=run.largest_backlog,
        reversals=reversals(run, bounds),
    )


def in_time(run: SimulatedRun) -> NDArray[np.bool_]:
    """Return which batches took at most the interval and had no late record; shape (batches,).

    A record is late if its latency is over ``LATE_INTERVALS`` intervals. If each batch starts on time and takes all
    records since the one before, the two conditions are the same.
    """
    oldest = np.array([batch.oldest for batch in run.batches])
    latest = np.where(run.rows > 0, run.end - oldest, 0.0)
    return (run.seconds <= run.interval) & (latest <= LATE_INTERVALS * run.interval + _ROUNDING)


def step_changes(trace: Trace) -> list[float]:
    """Return the seconds at which a trace jumps by more than a fifth and is flat for ten minutes on both sides."""
    jumps = trace.times[1:][np.diff(trace.times) == 0]
    return [float(time) for time in jumps if _is_step(trace, float(time))]


def _is_step(trace: Trace, time: float) -> bool:
    if time < _FLAT_SECONDS or time > trace.duration - _FLAT_SECONDS:
        return False
    before = trace.between(time - _FLAT_SECONDS, time).rates[:-1]
    after = trace.between(time, time + _FLAT_SECONDS).rates
    flat = all(np.ptp(rates) <= _FLAT * rates.max() for rates in (before, after))
    return flat and abs(after[0] - before[0]) > _JUMP * before[0]


def settling(run: SimulatedRun, changes: Sequence[float]) -> tuple[Settling, ...]:
    """Return the reaction to each of the step changes at ``changes``, seconds."""
    return tuple(_settling(run, change, end) for change, end in pairwise([*changes, run.duration]))


def _settling(run: SimulatedRun, change: float, end: float) -> Settling:
    rescales = [rescale.time for rescale in run.rescales if change <= rescale.time < end]
    considered = (run.start >= max(rescales, default=change)) & (run.start < end)
    good, starts = in_time(run)[considered], run.start[considered]
    if len(good) < _CALM_BATCHES:
        return Settling(change, len(rescales), None)
    calm = np.flatnonzero(np.convolve(good, np.ones(_CALM_BATCHES), "valid") == _CALM_BATCHES)
    return Settling(change, len(rescales), float(starts[calm[0]]) - change if len(calm) else None)


def oscillations(run: SimulatedRun, trace: Trace, bounds: Bounds) -> int:
    """Count the rescales whose cores the next rescale reverts within ten minutes without an explanation by demand.

    Demand is the records that arrived in the minute before plus those waiting, in records per second over that minute.
    It explains a rescale if it moved by a tenth or more in the same direction since the previous rescale.
    """
    return sum(not _explained(*pair, run, trace, bounds) for pair in _opposite(run, bounds, _UNDONE_WITHIN))


def reversals(run: SimulatedRun, bounds: Bounds) -> int:
    """Count the rescales whose cores the next one takes back, in part or whole, within 15 minutes, for any reason."""
    return len(_opposite(run, bounds, REVERSED_WITHIN))


def _opposite(run: SimulatedRun, bounds: Bounds, within: float) -> list[tuple[Rescale, Rescale]]:
    """Return the pairs of consecutive changes of the cores in opposite directions, so many seconds apart at most."""
    sized = [rescale for rescale in run.rescales if _direction(rescale, bounds)]
    return [
        (first, second)
        for first, second in pairwise(sized)
        if _direction(first, bounds) == -_direction(second, bounds) and second.time - first.time <= within
    ]


def _direction(rescale: Rescale, bounds: Bounds) -> int:
    return int(np.sign(bounds.cores(rescale.after) - bounds.cores(rescale.before)))


def _explained(first: Rescale, second: Rescale, run: SimulatedRun, trace: Trace, bounds: Bounds) -> bool:
    before, after = (_demand(rescale.time, run, trace) for rescale in (first, second))
    return (after - before) * _direction(second, bounds) >= _EXPLAINED * before


def _demand(time: float, run: SimulatedRun, trace: Trace) -> float:
    since = max(time - _DEMAND_SECONDS, 0.0)
    batch = int(np.searchsorted(run.end, time, side="right")) - 1
    waiting = run.backlog[batch] if batch >= 0 else 0.0
    return float((trace.arrived(time) - trace.arrived(since)) / (time - since) + waiting / _DEMAND_SECONDS)
