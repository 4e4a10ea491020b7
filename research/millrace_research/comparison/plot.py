"""A comparison as a picture: the placement of each algorithm over time, the trade-off, and the speed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.filesize import decimal

from millrace_research.comparison.report import ComparisonReport, StreamWindow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DASHES = ("-", "--", ":")
_MOST_MARKED = 60
"""Largest number of windows for which each window is marked by a dot."""

_OVER_TIME: Sequence[tuple[str, Callable[[StreamWindow], float | None]]] = (
    ("load imbalance, of the mean load", lambda window: window.cost.load_imbalance_ratio),
    ("cardinality imbalance, of the mean keys", lambda window: window.cost.cardinality_imbalance_ratio),
    ("replication factor Γ/‖S‖ = KSR", lambda window: window.cost.replication_factor),
    ("keys moved since the previous window", lambda window: None if window.moved is None else window.moved.share),
)
_PERCENT = {0, 1, 3}


def write_plot(report: ComparisonReport, file: Path) -> None:
    """Draw the report as an SVG picture: four metrics over time, the trade-off, and the speed."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(
        {"svg.hashsalt": "millrace", "svg.fonttype": "none", "font.size": 9, "date.converter": "concise"}
    ):
        figure = Figure(figsize=(14, 8), layout="constrained")
        axes = figure.subplots(2, 3)
        for index, (title, value) in enumerate(_OVER_TIME):
            _draw_over_time(axes.flat[index], report, title, value, percent=index in _PERCENT)
        _draw_trade_off(axes.flat[4], report)
        _draw_speed(axes.flat[5], report)
        handles, labels = axes.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(6, len(labels)), frameon=False)
        figure.suptitle(
            f"{Path(report.input.file).name} by {', '.join(report.input.keys)}: "
            f"{report.setting.workers} workers, {report.setting.replicas} replicas"
        )
        figure.savefig(file, format="svg", metadata={"Date": None})


def _style(index: int) -> dict[str, Any]:
    """Return the line style of the algorithm at ``index``: ten colors, then the same colors dashed, then dotted."""
    return {"color": f"C{index % 10}", "linestyle": _DASHES[index // 10 % len(_DASHES)]}


def _draw_over_time(
    axes: Axes, report: ComparisonReport, title: str, value: Callable[[StreamWindow], float | None], *, percent: bool
) -> None:
    for index, result in enumerate(report.results):
        drawn = [(window, figure) for window in result.windows if (figure := value(window)) is not None]
        ends: list[Any] = [report.end_of(window.number) for window, _ in drawn]
        if report.spans.timed:
            ends = [datetime.fromtimestamp(end, UTC) for end in ends]
        style = _style(index) | {"linewidth": 1.2, "marker": "." if len(drawn) <= _MOST_MARKED else ""}
        axes.plot(ends, [figure for _, figure in drawn], label=result.contender.label, **style)
    axes.set_title(title, loc="left")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    if percent:
        axes.yaxis.set_major_formatter("{x:.0%}")
    if not report.spans.timed:
        axes.set_xlabel("records")


def _draw_trade_off(axes: Axes, report: ComparisonReport) -> None:
    """Draw balance against aggregation, as in Figure 4 of paper 000: nearer to the corner is better at both."""
    for index, result in enumerate(report.results):
        means = result.means()
        point = means["load_imbalance_ratio"], means["replication_factor"]
        axes.plot(*point, "o", color=_style(index)["color"])
        axes.annotate(result.contender.label, point, xytext=(5, 3), textcoords="offset points")
    axes.set_title("balance against aggregation, means", loc="left")
    axes.set_xlabel("load imbalance, of the mean load")
    axes.set_ylabel("replication factor")
    axes.xaxis.set_major_formatter("{x:.0%}")
    axes.margins(0.15)
    axes.grid(alpha=0.3)


def _draw_speed(axes: Axes, report: ComparisonReport) -> None:
    labels = [result.contender.label for result in report.results]
    speeds = [result.records_per_second / 1e6 for result in report.results]
    bars = axes.barh(labels, speeds, color=[_style(index)["color"] for index in range(len(labels))])
    states = [decimal(result.peak_state_bytes) for result in report.results]
    axes.bar_label(bars, [f"{speed:.1f}, {state}" for speed, state in zip(speeds, states, strict=True)], padding=3)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(min(speeds) / 3, max(speeds) * 30)  # room for the labels
    axes.set_title("million records/s on one core; largest state", loc="left")
    axes.grid(axis="x", alpha=0.3)
