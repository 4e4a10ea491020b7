"""Plot of a comparison: the load and the reaction of each policy over time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from millrace_research.arena.comparison import NAMES, Comparison
from millrace_research.arena.simulation.record import SimulatedRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_POINTS = 160
"""Time spans of a plot; the largest value in each span is drawn."""
_SECONDS_PER_HOUR = 3600.0


def write_plot(comparison: Comparison, file: Path) -> None:
    """Draw load, W, executors, n, m and backlog over time as an SVG picture.

    Raises:
        ImportError: without matplotlib.
        OSError: if the file cannot be written.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    scenario = comparison.scenario
    with mpl.rc_context(
        {"svg.hashsalt": "millrace", "svg.fonttype": "none", "font.size": 9, "font.sans-serif": ["DejaVu Sans"]}
    ):
        figure = Figure(figsize=(11, 11), layout="constrained")
        load, utilization, executors, parallelism, replicas, backlog = figure.subplots(
            6, 1, sharex=True, height_ratios=(1, 2, 2, 1, 1, 2)
        )
        times = np.linspace(0.0, scenario.trace.duration, _POINTS * 4)
        rates = [scenario.trace.rate(time) for time in times.tolist()]
        load.plot(times / _SECONDS_PER_HOUR, np.array(rates) / 1e6, color="black", linewidth=1.0)
        for run in comparison.runs:
            style = _style(run.policy)
            _draw_largest(utilization, run, run.utilization, style)
            _draw_steps(executors, run, run.executors, style)
            _draw_steps(parallelism, run, np.array([float(batch.plan.parallelism) for batch in run.batches]), style)
            _draw_steps(replicas, run, np.array([float(batch.plan.replicas) for batch in run.batches]), style)
            _draw_largest(backlog, run, run.backlog, style)
        utilization.axhline(1.0, color="gray", linewidth=0.8)
        utilization.set_ylim(0, 3)
        backlog.set_yscale("symlog", linthresh=max(scenario.trace.peak * scenario.job.interval, 1.0))
        _label(load, "arriving records per second, millions")
        _label(utilization, "W of the longest batch: processing time over batch interval (cut off at 3)")
        _label(executors, "executors ready")
        _label(parallelism, "parallelism n")
        _label(replicas, "replicas m")
        _label(backlog, "records waiting when a batch ended")
        backlog.set_xlabel("hours")
        backlog.set_xlim(0, scenario.trace.duration / _SECONDS_PER_HOUR)
        handles, labels = utilization.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(6, len(labels)), frameon=False)
        figure.suptitle(scenario.name)
        figure.savefig(file, format="svg", metadata={"Date": None})


def _style(policy: str) -> dict[str, Any]:
    """Return the line style of a policy, the same in every picture; the oracle is black and dotted."""
    if policy == "oracle":
        return {"color": "black", "linestyle": ":"}
    return {"color": f"C{NAMES.index(policy) % 10}"}


def _draw_largest(axes: Axes, run: SimulatedRun, values: NDArray[np.float64], style: dict[str, Any]) -> None:
    """Draw the largest value of each span; a span in which no batch began repeats the span before."""
    spans = np.minimum((run.start / run.duration * _POINTS).astype(int), _POINTS - 1)
    largest = np.full(_POINTS, -np.inf)
    np.maximum.at(largest, spans, np.minimum(values, 1e12))
    filled = largest[np.maximum.accumulate(np.where(np.isfinite(largest), np.arange(_POINTS), 0))]
    hours = (np.arange(_POINTS) + 0.5) * run.duration / _POINTS / _SECONDS_PER_HOUR
    axes.plot(hours, filled, label=run.policy, linewidth=1.2, **style)


def _draw_steps(axes: Axes, run: SimulatedRun, values: NDArray[np.float64], style: dict[str, Any]) -> None:
    """Draw only the points at which values change, because a day has more batches than a picture can show."""
    changed = np.flatnonzero(np.diff(values, prepend=np.nan))
    hours = np.append(run.start[changed], run.duration) / _SECONDS_PER_HOUR
    axes.step(hours, np.append(values[changed], values[-1]), where="post", linewidth=1.2, **style)


def _label(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left")
    axes.grid(alpha=0.3)
    axes.set_ylim(bottom=0)
