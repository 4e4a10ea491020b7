"""Implementation of ``millrace simulate``: check the request, run the policies, and show the figures."""

from __future__ import annotations

import json
from pathlib import Path

import typer
from rich.console import Console

from millrace_api.errors import MillraceError, Problem
from millrace_api.explain_errors import suggest
from millrace_api.plot_files import check_plotting
from millrace_operator.arena.plot import write_plot
from millrace_operator.arena.registry import POLICIES
from millrace_operator.arena.run import ScenarioSetting, compare, recorded, synthetic
from millrace_operator.arena.synthetic import SYNTHETIC
from millrace_operator.commands.simulate_table import print_comparison
from millrace_operator.simulation.run import Scenario
from millrace_operator.simulation.trace_files import TraceFileError, read_trace

_ALL = "all"
_FEWEST_BATCHES = 10


def show_comparison(trace: str, policies: str, setting: ScenarioSetting, *, plot: Path | None, as_json: bool) -> None:
    """Run the named policies on a trace and print their figures; if ``plot`` is given, draw them into that file.

    Raises:
        MillraceError: if the request cannot be simulated or plotted.
    """
    names = _policies(policies)
    _check(setting)
    if plot is not None:
        check_plotting(plot)
    scenario = _scenario(trace, setting)
    if scenario.trace.records < 1:
        if setting.peak is not None:
            raise MillraceError(Problem(f"no record comes at a --peak of {setting.peak:g}", "write a larger one"))
        problem = f"{setting.max_executors} executors have no time for records in an --interval of {setting.interval:g}"
        raise MillraceError(Problem(problem, "write a longer --interval or fewer --max-executors"))
    comparison = compare(scenario, names, setting.seed)
    if plot is not None:
        write_plot(comparison, plot)
    if as_json:
        typer.echo(json.dumps(comparison.to_json(), indent=2, allow_nan=False))
    else:
        print_comparison(comparison, Console(highlight=False, emoji=False))


def _policies(given: str) -> list[str]:
    if given == _ALL:
        return list(POLICIES)
    names = [name.strip() for name in given.split(",")]
    for name in names:
        if name not in POLICIES:
            hint = suggest(name, tuple(POLICIES)) if name else "remove the comma"
            raise MillraceError(Problem(f'--policy {given}: there is no policy "{name}"', hint))
    if len(set(names)) < len(names):
        raise MillraceError(Problem(f"--policy {given} names a policy twice", "name each once"))
    return names


def _check(setting: ScenarioSetting) -> None:
    if not 0.5 <= setting.interval <= 600:
        raise MillraceError(Problem(f"--interval is {setting.interval:g}", "write 0.5 to 600 seconds"))
    if not 1 <= setting.max_executors <= 32:
        raise MillraceError(Problem(f"--max-executors is {setting.max_executors}", "write a whole number from 1 to 32"))
    if setting.peak is not None and not 0 < setting.peak < 1e12:
        hint = "write a number of records per second above 0 and below 1e12"
        raise MillraceError(Problem(f"--peak is {setting.peak:g}", hint))
    if setting.seed < 0:
        raise MillraceError(Problem(f"--seed is {setting.seed}", "write 0 or more"))


def _scenario(trace: str, setting: ScenarioSetting) -> Scenario:
    if trace in SYNTHETIC:
        return synthetic(trace, setting)
    try:
        read = read_trace(Path(trace))
        if read.duration < _FEWEST_BATCHES * setting.interval:
            hint = f"write a --interval of {read.duration / _FEWEST_BATCHES:g} s at most"
            raise MillraceError(Problem(f"the trace is {read.duration:g} s long", hint, file=trace))
        return recorded(read, setting)
    except FileNotFoundError:
        problem = f'--trace: there is no file "{trace}", and no synthetic load of that name'
        raise MillraceError(Problem(problem, f"check the path, or write one of {', '.join(SYNTHETIC)}")) from None
    except TraceFileError as error:
        message = error.problem if error.value is None else f'"{error.value}": {error.problem}'
        raise MillraceError(Problem(message, file=str(error.file), line=error.line)) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise MillraceError(Problem(f"cannot be used: {reason}", "name another --trace", file=trace)) from None
