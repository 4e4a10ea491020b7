"""Sizes before there is a cluster: scaling policies on a simulated job, and the capacity of a flow by its costs."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.options import parameters_for_options
from millrace.tables import FigureTable
from millrace_api.errors import MillraceError, Problem
from millrace_support.extras import dependencies_reported

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

_RUN_FIGURES = (
    "policy",
    "violations",
    "over_interval",
    "latency_p50",
    "latency_p95",
    "latency_p99",
    "late",
    "core_hours",
    "over_oracle",
    "rescales",
    "oscillations",
    "reversals",
    "largest_backlog",
)


def simulate(
    trace: str | PathLike[str] | tuple[ArrayLike, ArrayLike],
    policies: str | Sequence[str] = "all",
    *,
    interval: float = 2.0,
    max_executors: int = 8,
    peak: float | None = None,
    seed: int = 0,
) -> FigureTable:
    """Return how scaling policies do on a load, against a simulated job, as ``millrace simulate`` does.

    All policies get the same records, noise and cluster. docs/autoscaling.md explains the figures: ``violations`` is
    the share of batches that were not in time, latencies are in seconds, ``over_oracle`` compares core hours with those
    of the least that any policy could have.

    Args:
        trace: name of a synthetic load, such as ``diurnal``; a CSV file of times and rates; or a pair of arrays, of
            seconds from the start and of records per second. Noise is added to a load with points more than a minute
            apart.
        policies: names of policies, or ``all``.
        interval: batch interval, seconds.
        max_executors: maximum number of executors, of two cores each.
        peak: highest rate to scale the load to, records per second. By default a pair of arrays is not scaled, and
            others have 80 % of what all executors can do, which a note on standard error says of a file.
        seed: seed of the noise.

    Raises:
        MillraceError: the load or a policy is unknown, or a number is out of range.

    >>> table = simulate(([0, 60, 120], [10_000, 50_000, 10_000]), ["millrace", "fixed-peak"], max_executors=2)
    >>> table["policy"]
    ['millrace', 'fixed-peak']
    """
    with dependencies_reported("simulate"):
        from millrace_research.arena.comparison import compare
        from millrace_research.arena.report import chosen_policies, require_records, require_setting, scenario_of
        from millrace_research.arena.scenarios import ScenarioSetting, recorded

    setting = ScenarioSetting(interval, max_executors, peak, seed=seed)
    with parameters_for_options({"policy": "policies"}):
        names = chosen_policies(policies if isinstance(policies, str) else ",".join(policies))
        require_setting(setting)
        if not isinstance(trace, str | PathLike):
            load = _trace_of(trace)
            scenario = recorded(load, replace(setting, peak=setting.peak or load.peak))
        else:
            scenario = scenario_of(fspath(trace), setting, peak_is="peak=")
        require_records(scenario, setting)
    comparison = compare(scenario, names, seed)
    rows = [
        {name: each for name, each in asdict(found).items() if name in _RUN_FIGURES} for found in comparison.figures
    ]
    shown = f"{scenario.trace.duration / 3600:.1f} h, {scenario.trace.records:.3g} records"
    return FigureTable.of(rows, f"{scenario.name}: {shown}, peak {scenario.trace.peak:,.0f}/s")


def _trace_of(trace: Any) -> Any:
    """Return the trace in a pair of times and rates."""
    import numpy as np

    from millrace_research.arena.simulation.traces import Trace

    try:
        times, rates = trace
        if np.asarray(times).dtype.kind in "mM":
            raise ValueError("the times are dates")
        seconds = np.asarray(times, np.float64)
        return Trace("trace", seconds - seconds[0] if len(seconds) else seconds, np.asarray(rates, np.float64))
    except (TypeError, ValueError) as error:
        hint = "pass two arrays: times in seconds, in order, and as many rates"
        raise MillraceError(Problem(str(error), hint, field="trace")) from None


@dataclass(frozen=True)
class FlowCapacity:
    """What a flow can carry: each operator's load, the bottlenecks, and the fewest tasks that would carry the rates."""

    operators: FigureTable
    bottlenecks: FigureTable
    fewest_tasks: FigureTable
    throughput: Mapping[str, float]
    """Records per second of each source that get through."""

    def _repr_html_(self) -> str:
        tables = (self.operators, self.bottlenecks, self.fewest_tasks)
        return "".join(table._repr_html_() for table in tables if len(table))

    def __repr__(self) -> str:
        tables = (self.operators, self.bottlenecks, self.fewest_tasks)
        return "\n\n".join(repr(table) for table in tables if len(table))


def capacity(
    flow: str | PathLike[str] | Mapping[str, Any], rate: float | Mapping[str, float], *, batching: bool = True
) -> FlowCapacity:
    """Return the capacity of a data flow from the costs of its operators, by Sax's model; see docs/capacity.md.

    Args:
        flow: a FLOW.yaml, or a dict with the same fields.
        rate: records per second of every source, or of each by its name.
        batching: whether records are sent in batches; otherwise one by one.

    Raises:
        MillraceError: the flow is not valid, a source has no rate, or no number of tasks would carry the rates.

    >>> flow = {
    ...     "operators": {
    ...         "read": {"cpuNanoseconds": 500},
    ...         "count": {"inputs": {"read": "hash"}, "cpuNanoseconds": 4000, "tasks": 2},
    ...     }
    ... }
    >>> found = capacity(flow, 1_000_000)
    >>> found.bottlenecks["operator"]
    ['count']
    >>> found.fewest_tasks["tasks"]
    [1, 4]
    """
    with dependencies_reported("capacity"):
        from millrace_operator.capacity import report
        from millrace_operator.capacity.minimizer import UnattainableError
        from millrace_research.flows.flow_file import read_flow, workload

    rates_given = rate.items() if isinstance(rate, Mapping) else [("", rate)]
    written = [f"{f'{name}=' if name else ''}{_plain(each)!r}" for name, each in rates_given]
    with tempfile.TemporaryDirectory() as folder, parameters_for_options({}):
        file = _flow_file(flow, Path(folder))
        try:
            read = read_flow(file, batching=batching)
            rates = workload(read, written)
            predicted, lacking = report.prediction(read, rates), report.bottlenecks(read, rates)
            least = report.fewest_tasks(read_flow(file), rates, batching=batching)
        except UnattainableError as error:
            message = f"{error.operator} cannot keep up with what is broadcast to it, however many tasks it has"
            raise MillraceError(Problem(message, "lower its costs or the rates, or connect it by hash")) from None
        except MillraceError as error:
            raise MillraceError(*(_without_folder(each, folder) for each in error.problems)) from None
    return FlowCapacity(
        _operators(predicted["operators"], "Predicted", lacks="overloaded"),
        _operators(lacking["bottlenecks"], "Overloaded", lacks="overloaded"),
        _operators(least["operators"], "Fewest tasks"),
        predicted["throughput_records_per_second"],
    )


def _plain(number: Any) -> Any:
    """Return a number of NumPy as one of Python."""
    return number.item() if type(number).__module__ == "numpy" else number


def _flow_file(flow: str | PathLike[str] | Mapping[str, Any], folder: Path) -> Path:
    """Return the file of a flow; a dict is written into the folder."""
    if not isinstance(flow, Mapping):
        return Path(flow)
    from millrace.documents import yaml_text

    file = folder / "flow.yaml"
    file.write_text(yaml_text(flow), encoding="utf-8")
    return file


def _without_folder(problem: Problem, folder: str) -> Problem:
    """Return a problem of a dict without the temporary file that it was written to."""
    if problem.file.startswith(folder):
        return replace(problem, file="", line=None)
    return replace(problem, message=problem.message.replace(f"{folder}/flow.yaml", "the flow"))


def _operators(found: Sequence[Mapping[str, Any]], title: str, *, lacks: str = "") -> FigureTable:
    """Return operators of a report as a table, without the figures that no operator has."""
    known = {name for each in found for name, value in each.items() if value is not None} - {"name", lacks}
    rows = []
    for each in found:
        row = {"operator": each["name"]} | {name: value for name, value in each.items() if name in known}
        rows.append(row | ({"lacks": ", ".join(each[lacks])} if lacks else {}))
    return FigureTable.of(rows, title)
