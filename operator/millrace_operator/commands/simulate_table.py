"""Output of ``millrace simulate``: two tables with one line per policy."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from millrace_operator.arena.figures import Figures
from millrace_operator.arena.run import Comparison

_SERVICE = ("policy", "over\ninterval", "violations", "p50", "p95", "p99", "late", "back-\nlog")
_COST = ("policy", "core\nhours", "of the\noracle's", "rescales", "to\nsettle", "within\nseconds", "oscillations")


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print the scenario in a line and the figures as two tables, with their meanings."""
    scenario = comparison.scenario
    trace, bounds = scenario.trace, scenario.bounds
    _say(
        console,
        f"{scenario.name}: {trace.duration / 3600:.1f} h, {trace.records:.3g} records, mean {trace.mean:,.0f}/s, "
        f"peak {trace.peak:,.0f}/s; batches of {scenario.job.interval:g} s, "
        f"{bounds.executors.low} to {bounds.executors.high} executors of {bounds.executor_cores} cores",
    )
    console.print(_table("Service", _SERVICE, [_service(found) for found in comparison.figures]))
    _say(
        console,
        "over interval: batches that took longer; violations: these, and batches with late records; p50 to p99: "
        "seconds from when a record came until its batch was done; late: share of the records for which that was over "
        "two intervals; backlog: the most records that waited",
    )
    console.print(_table("Cost and steadiness", _COST, [_cost(found) for found in comparison.figures]))
    _say(
        console,
        "to settle: rescales after a step change of the load, at most, and within how many seconds all was calm; "
        "oscillations: rescales taken back within ten minutes though the load was the same",
    )


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False)


def _table(title: str, columns: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for name in columns:
        table.add_column(name, justify="left" if name == "policy" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _service(found: Figures) -> tuple[str, ...]:
    return (
        found.policy,
        f"{found.over_interval:.2%}",
        f"{found.violations:.2%}",
        *(_seconds(value) for value in (found.latency_p50, found.latency_p95, found.latency_p99)),
        f"{found.late:.2%}",
        f"{found.largest_backlog / 1e6:.1f} M",
    )


def _cost(found: Figures) -> tuple[str, ...]:
    settled = [step.seconds for step in found.settling]
    slowest = "never" if None in settled else f"{max((each for each in settled if each is not None), default=0.0):.0f}"
    return (
        found.policy,
        f"{found.core_hours:.2f}",
        "-" if found.over_oracle is None else f"{found.over_oracle:.2f}",
        str(found.rescales),
        str(max(step.rescales for step in found.settling)) if settled else "-",
        slowest if settled else "-",
        str(found.oscillations),
    )


def _seconds(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}" if value < 100 else f"{value:.0f}"
