"""Report of ``millrace simulate``: check the request, run the policies, and show their figures as tables or as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from millrace_api.errors import MillraceError, Problem, suggest
from millrace_research.arena.comparison import NAMES, Comparison, compare
from millrace_research.arena.figures import RunFigures
from millrace_research.arena.plot import write_plot
from millrace_research.arena.scenarios import SYNTHETIC, ScenarioSetting, recorded, synthetic
from millrace_research.arena.simulation.run import Scenario
from millrace_research.arena.simulation.trace_files import TraceFileError, read_trace
from millrace_support.plot_files import check_plotting

_SERVICE = ("policy", "over\ninterval", "violations", "p50", "p95", "p99", "late", "back-\nlog")
_COST = (
    "policy",
    "core\nhours",
    "of the\noracle's",
    "rescales",
    "to\nsettle",
    "within\nseconds",
    "oscil-\nlations",
    "rever-\nsals",
)
_ALL = "all"
_FEWEST_BATCHES = 10
_SHORTEST_INTERVAL = 0.5


def show_comparison(trace: str, policies: str, setting: ScenarioSetting, *, plot: Path | None, as_json: bool) -> None:
    """Run the named policies on a trace and print their figures; if ``plot`` is given, draw them into that file.

    Raises:
        MillraceError: if the request cannot be simulated or plotted.
    """
    names = chosen_policies(policies)
    require_setting(setting)
    if plot is not None:
        check_plotting(plot)
    scenario = scenario_of(trace, setting)
    require_records(scenario, setting)
    comparison = compare(scenario, names, setting.seed)
    if plot is not None:
        write_plot(comparison, plot)
    if as_json:
        typer.echo(json.dumps(comparison.to_json(), indent=2, allow_nan=False))
    else:
        print_comparison(comparison, Console(highlight=False, emoji=False, markup=False))


def chosen_policies(given: str) -> list[str]:
    """Return the names of policies in a comma-separated list, or all. Raises MillraceError for an unknown one."""
    if given == _ALL:
        return list(NAMES)
    names = [name.strip() for name in given.split(",")]
    for name in names:
        if name not in NAMES:
            hint = suggest(name, NAMES) if name or "," not in given else "remove the comma"
            raise MillraceError(Problem(f'--policy {given}: there is no policy "{name}"', hint))
    if len(set(names)) < len(names):
        raise MillraceError(Problem(f"--policy {given} names a policy twice", "name each once"))
    return names


def require_setting(setting: ScenarioSetting) -> None:
    """Raise MillraceError if a parameter of the scenario is out of range."""
    if not _SHORTEST_INTERVAL <= setting.interval <= 600:
        hint = f"write {_SHORTEST_INTERVAL:g} to 600 seconds"
        raise MillraceError(Problem(f"--interval is {setting.interval:g}", hint))
    if not 1 <= setting.max_executors <= 32:
        raise MillraceError(Problem(f"--max-executors is {setting.max_executors}", "write a whole number from 1 to 32"))
    if setting.peak is not None and not 0 < setting.peak < 1e12:
        hint = "write a number of records per second above 0 and below 1e12"
        raise MillraceError(Problem(f"--peak is {setting.peak:g}", hint))
    if setting.seed < 0:
        raise MillraceError(Problem(f"--seed is {setting.seed}", "write 0 or more"))


def require_records(scenario: Scenario, setting: ScenarioSetting) -> None:
    """Raise MillraceError if the scenario has no records."""
    if scenario.trace.records >= 1:
        return
    if setting.peak is not None:
        raise MillraceError(Problem(f"no records arrive at a --peak of {setting.peak:g}", "write a larger --peak"))
    problem = f"{setting.max_executors} executors have no time for records in an --interval of {setting.interval:g}"
    raise MillraceError(Problem(problem, "write a longer --interval or fewer --max-executors"))


def scenario_of(trace: str, setting: ScenarioSetting, *, peak_is: str = "--peak ") -> Scenario:
    """Return the scenario of a synthetic load or of a trace in a file.

    Args:
        trace: name of a load, or path of a file.
        setting: what the load is scaled to, and for which job.
        peak_is: how users write the peak: the note on a scaled file puts this before the number.

    Raises:
        MillraceError: there is no such load or file, or the file cannot be used.
    """
    if trace in SYNTHETIC:
        return synthetic(trace, setting)
    try:
        read = read_trace(Path(trace))
        if read.duration < _FEWEST_BATCHES * setting.interval:
            raise _too_short(trace, read.duration, setting.interval)
        scenario = recorded(read, setting)
        if setting.peak is None:
            typer.echo(
                f"note: the rates of {trace} are scaled by {scenario.trace.peak / read.peak:.3g}, from a peak of "
                f"{read.peak:,.0f}/s to {scenario.trace.peak:,.0f}/s; {peak_is}{read.peak:g} leaves them as they are",
                err=True,
            )
        return scenario
    except FileNotFoundError:
        problem = f'--trace: there is no file "{trace}", and no synthetic load of that name'
        raise MillraceError(Problem(problem, f"check the path, or write one of {', '.join(SYNTHETIC)}")) from None
    except TraceFileError as error:
        message = error.problem if error.value is None else f'"{error.value}": {error.problem}'
        raise MillraceError(Problem(message, file=str(error.file), line=error.line)) from None
    except (OSError, ValueError) as error:
        reason = (error.strerror or error) if isinstance(error, OSError) else error
        raise MillraceError(Problem(f"cannot be used: {reason}", "name another --trace", file=trace)) from None


def _too_short(trace: str, seconds: float, interval: float) -> MillraceError:
    """Return the error for a trace of fewer than ``_FEWEST_BATCHES`` intervals."""
    longest = seconds / _FEWEST_BATCHES
    hint = f"write an --interval of at most {longest:g} s"
    if longest < _SHORTEST_INTERVAL:
        hint = f"name a --trace of at least {_SHORTEST_INTERVAL * _FEWEST_BATCHES:g} s"
    message = f"the trace is {seconds:g} s long, less than {_FEWEST_BATCHES} intervals of {interval:g} s"
    return MillraceError(Problem(message, hint, file=trace))


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print the scenario in a line and the figures as two tables, with their meanings."""
    scenario = comparison.scenario
    trace, bounds = scenario.trace, scenario.bounds
    console.print(
        f"{scenario.name}: {trace.duration / 3600:.1f} h, {trace.records:.3g} records, mean {trace.mean:,.0f}/s, "
        f"peak {trace.peak:,.0f}/s; batches of {scenario.job.interval:g} s, "
        f"{bounds.executors.low} to {bounds.executors.high} executors of {bounds.executor_cores} cores",
    )
    console.print(_table("Service", _SERVICE, [_service(found) for found in comparison.figures]))
    console.print(
        "over interval: batches that took longer; violations: these, and batches with late records; p50 to p99: "
        "seconds from a record's arrival to the end of its batch; late: share of the records for which that is over "
        "two intervals; backlog: the most records waiting",
    )
    console.print(_table("Cost and steadiness", _COST, [_cost(found) for found in comparison.figures]))
    console.print(
        "to settle: most rescales after a step change of the load, and seconds to ten batches in a row in time; "
        "oscillations: rescales reverted within ten minutes although the load was the same; "
        "reversals: rescales taken back within 15 minutes for any reason",
    )


def _table(title: str, columns: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for name in columns:
        table.add_column(name, justify="left" if name == "policy" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _service(found: RunFigures) -> tuple[str, ...]:
    return (
        found.policy,
        f"{found.over_interval:.2%}",
        f"{found.violations:.2%}",
        *(_seconds(value) for value in (found.latency_p50, found.latency_p95, found.latency_p99)),
        f"{found.late:.2%}",
        _records(found.largest_backlog),
    )


def _cost(found: RunFigures) -> tuple[str, ...]:
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
        str(found.reversals),
    )


def _records(count: int) -> str:
    return f"{count / 1e6:.1f} M" if count >= 1e6 else f"{count:,}"


def _seconds(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}" if value < 100 else f"{value:.0f}"
