"""Print and plot the errors of predictions of the recorded points; the plot is in docs/autoscaling.md.

python -m bench.scaling.report [--json FILE] [--points] [--plot FILE]
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.scaling.points import RECORDED, read_points
from bench.scaling.prediction import Predicted, predictions
from millrace_research.docs_pages import STYLE

PLOT = Path(__file__).parent.parent.parent / "docs" / "img" / "calibration.svg"

_MARKERS = "osD^v"


def mean_error(predicted: Sequence[Predicted]) -> float:
    """Return the mean absolute error as a share of the observed time."""
    return statistics.mean(abs(one.error) for one in predicted)


def show(predicted: Sequence[Predicted], console: Console) -> None:
    """Print errors and coverage by job, by what was new about a point, and overall."""
    table = Table(title=f"{len(predicted)} points that the calibration has not seen")
    for column in ("points", "number", "mean absolute error", "mean error", "largest", "in 90 % interval"):
        table.add_column(column, justify="left" if column == "points" else "right")
    by: tuple[tuple[str, Callable[[Predicted], str]], ...] = (
        ("", lambda one: one.setting.job),
        ("new: ", lambda one: one.unseen),
    )
    for prefix, kind in by:
        for name in sorted({kind(one) for one in predicted}):
            table.add_row(prefix + name, *_figures([one for one in predicted if kind(one) == name]))
        table.add_section()
    table.add_row("all", *_figures(predicted))
    console.print(table)


def _figures(some: Sequence[Predicted]) -> tuple[str, ...]:
    return (
        str(len(some)),
        f"{mean_error(some):.1%}",
        f"{statistics.mean(one.error for one in some):+.1%}",
        f"{max((one.error for one in some), key=abs):+.0%}",
        f"{statistics.mean(one.covered for one in some):.0%}",
    )


def show_points(predicted: Sequence[Predicted], console: Console) -> None:
    """Print the observed and the predicted seconds of each point."""
    table = Table()
    for column in ("job", "cores", "n", "m", "rows", "skew", "new", "observed", "predicted", "interval", "error"):
        table.add_column(column, justify="left" if column in ("job", "new") else "right")
    for one in predicted:
        at = one.setting
        plan = (str(value) for value in (at.cores, at.parallelism, at.replicas, f"{at.rows:,}", at.skew))
        seconds = f"{one.observed:.2f}", f"{one.seconds:.2f}", f"{one.low:.2f}-{one.high:.2f}", f"{one.error:+.0%}"
        table.add_row(at.job, *plan, one.unseen, *seconds)
    console.print(table)


def draw(predicted: Sequence[Predicted], path: Path) -> None:
    """Plot predicted over observed seconds, with intervals. The band is 10 % to either side."""
    import matplotlib
    from matplotlib import pyplot

    with matplotlib.rc_context(STYLE):
        figure, axes = pyplot.subplots(figsize=(5.6, 5.0))
        ends = [min(one.observed for one in predicted) * 0.8, max(one.observed for one in predicted) * 1.25]
        axes.fill_between(ends, [end * 0.9 for end in ends], [end * 1.1 for end in ends], color="#eeeeee", lw=0)
        axes.plot(ends, ends, color="#7f7f7f", lw=1)
        for job, marker in zip(dict.fromkeys(one.setting.job for one in predicted), _MARKERS, strict=False):
            some = [one for one in predicted if one.setting.job == job]
            seconds = [one.seconds for one in some]
            below, above = [one.seconds - one.low for one in some], [one.high - one.seconds for one in some]
            observed = [one.observed for one in some]
            axes.errorbar(
                observed, seconds, [below, above], fmt=marker, ms=4, lw=0.7, label=f"{job} ({mean_error(some):.0%})"
            )
        axes.set(
            xscale="log", yscale="log", xlabel="observed seconds of a batch", ylabel="predicted seconds", xlim=ends
        )
        axes.set_title(f"{len(predicted)} points not seen: mean absolute error {mean_error(predicted):.1%}", fontsize=9)
        axes.legend(title="query (mean absolute error)")
        ticks = [tick for tick in (0.5, 0.7, 1, 1.5, 2, 3, 4, 6, 8, 12) if ends[0] < tick < ends[1]]
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(matplotlib.ticker.FixedLocator(ticks))
            axis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
            axis.set_minor_locator(matplotlib.ticker.NullLocator())
        figure.tight_layout()
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)


def main() -> None:
    """Print the report from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=RECORDED, help="file of the recorded points")
    parser.add_argument("--points", action="store_true", help="print each point")
    parser.add_argument("--plot", type=Path, default=PLOT, help="SVG file for the plot")
    options = parser.parse_args()
    predicted = predictions(read_points(options.json))
    console = Console(width=130)
    if options.points:
        show_points(predicted, console)
    show(predicted, console)
    draw(predicted, options.plot)


if __name__ == "__main__":
    main()
