"""``millrace simulate``: scaling policies on a trace of request rates.

What the command needs is imported when it runs, because every start of ``millrace`` loads this module.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

_SYNTHETIC = "constant, noise, step, step-down, steps, ramp, spike, sawtooth, diurnal, skew-shift, key-growth"
_TRACE = (
    f"CSV file of times, in seconds or ISO 8601, and rates, in records a second; or a synthetic load: {_SYNTHETIC}."
)
_POLICIES = "millrace, prompt, spark-ratio, ds2, flink, lag, cpu, fixed-mean, fixed-peak, oracle"


class SimulationFormat(StrEnum):
    """Output format of ``millrace simulate``."""

    TABLE = "table"
    JSON = "json"


def simulate(
    trace: Annotated[str, typer.Option(help=_TRACE)],
    policy: Annotated[str, typer.Option(help=f"Comma-separated policies, or all: {_POLICIES}.")] = "all",
    format: Annotated[SimulationFormat, typer.Option(help="table, or json.")] = SimulationFormat.TABLE,
    plot: Annotated[Path | None, typer.Option(help="SVG picture to draw (needs the extra 'plots').")] = None,
    interval: Annotated[float, typer.Option(help="Batch interval, seconds.")] = 2.0,
    max_executors: Annotated[int, typer.Option(help="Maximum number of executors, of two cores each.")] = 8,
    peak: Annotated[
        float | None,
        typer.Option(
            help="Rate to scale the highest of the trace to, records/s; by default 80 % of what all executors can do."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
) -> None:
    """Run scaling policies on a trace of request rates, against a simulated job.

    All policies get the same records, the same noise and the same cluster, whose executors take about 20 seconds to
    start. The trace is scaled to the peak. If it is longer than a day, its busiest day is used.
    """
    from millrace_research.arena.report import show_comparison
    from millrace_research.arena.scenarios import ScenarioSetting

    setting = ScenarioSetting(interval, max_executors, peak, seed=seed)
    show_comparison(trace, policy, setting, plot=plot, as_json=format is SimulationFormat.JSON)
