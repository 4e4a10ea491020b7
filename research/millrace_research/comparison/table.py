"""A comparison as tables for the terminal."""

from __future__ import annotations

import math

from rich import box
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from millrace_research.comparison.report import CLOCK_TICK, ComparisonReport, Result

_WIDEST = 250
"""Width of a table in characters: no figure is truncated, and on a narrow terminal lines wrap."""


def print_tables(report: ComparisonReport, console: Console) -> None:
    """Print what was compared, the tables, and which figures are exact and which are measured."""
    console.width = _WIDEST
    for line in _introduction(report):
        console.print(line, markup=False, highlight=False)
    for table in (_windows(report), _total(report), _work(report)):
        console.print()
        console.print(table)
    console.print(
        "\nPlacement metrics are exact. Speeds are measured: processor time of one thread, without compiling kernels."
    )


def _introduction(report: ComparisonReport) -> list[str]:
    given, setting, spans = report.input, report.setting, report.spans
    unit = "s" if spans.timed else " records"
    scale = 1_000_000 if spans.timed else 1
    hashed = given.rows / max(given.hashing_seconds, CLOCK_TICK)
    lines = [
        f"{given.file}: {_count(given.rows)} records with {_count(given.distinct_keys)} different values "
        f"of {', '.join(given.keys)}, hashed at {_speed(hashed)} records/s",
        f"{setting.workers} workers, {setting.replicas} replicas; {len(report.results[0].windows)} windows of "
        f"{spans.window / scale:g}{unit} by {spans.slide / scale:g}{unit}",
    ]
    if given.late or given.without_time:
        lines.append(
            f"{_count(given.late)} records are older than the slide that was current, "
            f"{_count(given.without_time)} have no time; they are counted in that slide"
        )
    return lines


def _windows(report: ComparisonReport) -> Table:
    resize = report.setting.resize
    means = report.results[0].means()
    least, most = (_figure(means[f"aggregation_cost_{bound}"]) for bound in ("least", "most"))
    table = _table(
        f"Placement, mean of windows; {least} ≤ Γ ≤ {most}",
        "imbalance\n= BSI",
        "of mean\nload",
        "at worst",
        "cardinality\n= BCI",
        "of mean\nkeys",
        "Γ",
        "replication\n= KSR",
        "MPI",
        "relative\nMPI",
        "keys\nmoved",
        *([] if resize is None else [f"moved by resize\nto {_count(resize)} workers"]),
    )
    for result in report.results:
        mean, worst = result.means(), result.worst()
        table.add_row(
            result.contender.label,
            _figure(mean["load_imbalance"]),
            _percent(mean["load_imbalance_ratio"]),
            _percent(worst["load_imbalance_ratio"]),
            _figure(mean["cardinality_imbalance"]),
            _percent(mean["cardinality_imbalance_ratio"]),
            _figure(mean["aggregation_cost"]),
            f"{mean['replication_factor']:.3f}",
            _figure(mean["mpi"]),
            _relative(report, result),
            _percent(result.moved.share) if len(result.windows) > 1 else "-",
            *([] if result.moved_on_resize is None else [_percent(result.moved_on_resize.share)]),
        )
    table.caption = (
        "relative MPI: the mean of BSI over hashing's, BCI and KSR over shuffle's (paper 004, Figure 10, and KSR)"
    )
    if resize is not None:
        table.caption += (
            "\nmoved by resize: share of the last window's keys that are placed differently after a final resize"
        )
    return table


def _total(report: ComparisonReport) -> Table:
    first = report.results[0].total
    least, most = first.aggregation_cost_bounds or (0, 0)
    table = _table(
        f"Placement, the whole input as one window; {_count(least)} ≤ Γ ≤ {_count(most)}",
        "imbalance",
        "of mean\nload",
        "cardinality\nimbalance",
        "of mean\nkeys",
        "Γ",
        "replication",
    )
    for result in report.results:
        cost = result.total
        table.add_row(
            result.contender.label,
            _figure(cost.load_imbalance),
            _percent(cost.load_imbalance_ratio),
            _figure(cost.cardinality_imbalance),
            _percent(cost.cardinality_imbalance_ratio),
            _count(cost.aggregation_cost),
            f"{cost.replication_factor:.3f}",
        )
    return table


def _work(report: ComparisonReport) -> Table:
    table = _table(
        "Speed and memory",
        "records/s",
        "ms at the end\nof a slide",
        "peak state\nof a replica",
        "state after\na slide",
    )
    for result in report.results:
        ending = sum(slide.advance_seconds for slide in result.slides) / len(result.slides)
        table.add_row(
            result.contender.label,
            _speed(result.records_per_second),
            f"{1000 * ending:.3f}",
            decimal(result.peak_state_bytes),
            decimal(result.state_bytes),
        )
    table.caption = (
        "state after a slide: the largest state of a replica once it has discarded the windows that are over"
    )
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", caption_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("algorithm", vertical="bottom")
    for column in columns:
        table.add_column(column, justify="right", vertical="bottom")
    return table


def _relative(report: ComparisonReport, result: Result) -> str:
    mpi = report.relative(result).mpi
    return "-" if math.isnan(mpi) else f"{mpi:.3f}"


def _count(number: int) -> str:
    return f"{number:,}"


def _figure(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.1f}"


def _percent(share: float) -> str:
    return f"{share:.1%}"


def _speed(per_second: float) -> str:
    return f"{per_second / 1e6:.1f} M" if per_second >= 1e6 else f"{per_second / 1e3:.0f} k"
