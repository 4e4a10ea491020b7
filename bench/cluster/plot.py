"""A plot of a query under a changing load."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from bench.cluster.recorder import RecordedBatch, Sample
from bench.plot_style import STYLE


def plot(
    samples: Sequence[Sample], batches: Sequence[RecordedBatch], path: Path, *, target: float, interval: float
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
        plan.step(at, [sample.ready for sample in samples], where="post", label="that take tasks", color="#2ca02c")
        plan.plot(ended, [batch.workers for batch in batches], ":", label="workers n", color="#1f77b4")
        plan.plot(ended, [batch.replicas for batch in batches], ":", label="replicas m", color="#ff7f0e")
        plan.set_ylabel("number")
        plan.set_xlabel("minutes")
        plan.set_ylim(bottom=0)
        plan.legend(loc="upper right", ncols=2)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
