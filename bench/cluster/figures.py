"""Figures of a change of load: how long it took to notice it, decide on a plan and carry it out, and how batches did.

``plot`` draws the query under the changing load.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from bench.cluster.recorder import ClusterSample, RecordedBatch
from millrace_research.docs_pages import STYLE

OVER = 1.0
"""W above which a batch took longer than its interval."""

_STEADY = 3
"""Number of consecutive batches within the interval that count as settled, or without backlog as caught up."""


@dataclass(frozen=True)
class LoadStep:
    """One change of the load. Times are in seconds, and None for what did not happen.

    Attributes:
        rate: records/s after the change.
        plans: new plans before the next change of the load.
        executors, replicas: executors and partitioner replicas of the last plan.
        breach: from the change of the load to the end of the first batch whose W calls for another plan.
        decision: from the breach to the first new plan.
        acknowledged: from the decision until the driver reported that a batch ran under it.
        executors_ready: from the decision until as many executors took tasks as it asked for.
        settled: from the change of the load until batches were within the interval, under the last plan.
        caught_up: from the change of the load until the backlog was gone, under the last plan.
        batches: batches after the query has settled.
        over: share of these batches that took longer than their interval.
        utilization: mean W of these batches.
    """

    rate: float
    plans: int
    executors: int
    replicas: int
    breach: float | None
    decision: float | None
    acknowledged: float | None
    executors_ready: float | None
    settled: float | None
    caught_up: float | None
    batches: int
    over: float | None
    utilization: float | None


def steps(
    samples: Sequence[ClusterSample], batches: Sequence[RecordedBatch], *, target: float, step: float, interval: float
) -> list[LoadStep]:
    """Return one step per rate, in order. ``target`` and ``step`` are the query's scaling settings."""
    changes = [
        (now.time, now.rate > before.rate) for before, now in itertools.pairwise(samples) if before.rate != now.rate
    ]
    begins = [(samples[0].time, True), *changes]
    ends = [*(time for time, _ in changes), samples[-1].time]
    return [
        _step(
            [sample for sample in samples if since <= sample.time < until],
            [batch for batch in batches if since <= batch.time < until],
            target=target,
            step=step,
            interval=interval,
            rising=rising,
        )
        for (since, rising), until in zip(begins, ends, strict=True)
    ]


def _step(
    samples: Sequence[ClusterSample],
    batches: Sequence[RecordedBatch],
    *,
    target: float,
    step: float,
    interval: float,
    rising: bool,
) -> LoadStep:
    began, last = samples[0], samples[-1]
    breach = next((b.time for b in batches if _is_outside(b.utilization, target, step, rising=rising)), None)
    decided = next((sample for sample in samples if sample.epoch > began.epoch), None)
    applied = ready = None
    if decided is not None:
        applied = next((s.time for s in samples if s.applied >= decided.epoch), None)
        ready = next((s.time for s in samples if s.time >= decided.time and s.ready == decided.executors), None)
    complete = next((s.time for s in samples if s.applied == last.epoch and s.ready == last.executors), None)
    under = [] if complete is None else [batch for batch in batches if batch.time >= complete]
    settled = _steady_since(under, lambda batch: batch.utilization <= OVER)
    few = 2 * interval * last.rate  # what arrives in two intervals is not a backlog
    rest = [] if settled is None else [batch for batch in batches if batch.time >= settled]
    return LoadStep(
        rate=began.rate,
        plans=last.epoch - began.epoch,
        executors=last.executors,
        replicas=last.replicas,
        breach=_elapsed(began.time, breach),
        decision=_elapsed(breach, None if decided is None else decided.time),
        acknowledged=_elapsed(None if decided is None else decided.time, applied),
        executors_ready=_elapsed(None if decided is None else decided.time, ready),
        settled=_elapsed(began.time, settled),
        caught_up=_elapsed(began.time, _steady_since(under, lambda batch: batch.lag <= few)),
        batches=len(rest),
        over=None if not rest else sum(batch.utilization > OVER for batch in rest) / len(rest),
        utilization=None if not rest else sum(batch.utilization for batch in rest) / len(rest),
    )


def _is_outside(utilization: float, target: float, step: float, *, rising: bool) -> bool:
    """Whether W calls for a larger plan after the load has risen, or for a smaller one after it has fallen."""
    return utilization > target if rising else utilization < target - step


def _steady_since(batches: Sequence[RecordedBatch], holds: Callable[[RecordedBatch], bool]) -> float | None:
    """Return the end of the first ``_STEADY`` batches in a row for which the condition holds."""
    calm = 0
    for batch in batches:
        calm = calm + 1 if holds(batch) else 0
        if calm == _STEADY:
            return batch.time
    return None


def _elapsed(since: float | None, until: float | None) -> float | None:
    return None if since is None or until is None else round(until - since, 1)


def plot(
    samples: Sequence[ClusterSample], batches: Sequence[RecordedBatch], path: Path, *, target: float, interval: float
) -> None:
    """Plot load, W and the plan over minutes, one below the other, in the format that the path ends in."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.5, 6.5), layout="constrained")
        load, utilization, plan = figure.subplots(3, 1, sharex=True, height_ratios=[1, 1.2, 1.2])
        began = samples[0].time
        at = [(sample.time - began) / 60 for sample in samples]
        ended = [(batch.time - began) / 60 for batch in batches]

        load.step(at, [sample.rate for sample in samples], where="post", label="load", color="#222222")
        per_second = [batch.rows / (interval * max(batch.utilization, 1.0)) for batch in batches]
        load.plot(ended, per_second, ".", markersize=4, label="processed", color="#1f77b4")
        load.set_ylabel("records/s")
        load.set_ylim(bottom=0)
        load.legend(loc="upper right", ncols=2)

        utilization.plot(ended, [batch.utilization for batch in batches], ".-", linewidth=0.8, color="#1f77b4")
        utilization.axhline(1.0, color="#d62728", linewidth=0.8)
        utilization.axhline(target, color="#d62728", linewidth=0.8, linestyle="--")
        utilization.set_ylabel("W (processing time / interval)")
        utilization.set_ylim(bottom=0)

        plan.step(at, [sample.executors for sample in samples], where="post", label="executors wanted", color="#222222")
        plan.step(at, [sample.ready for sample in samples], where="post", label="executors ready", color="#2ca02c")
        plan.plot(ended, [batch.workers for batch in batches], ":", label="workers n", color="#1f77b4")
        plan.plot(ended, [batch.replicas for batch in batches], ":", label="replicas m", color="#ff7f0e")
        if any(sample.placing for sample in samples):
            ready = [sample.placing for sample in samples]
            plan.step(at, ready, where="post", label="replicas' pods ready", color="#9467bd")
        plan.set_ylabel("number")
        plan.set_xlabel("minutes")
        plan.set_ylim(bottom=0)
        plan.legend(loc="upper right", ncols=2)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
