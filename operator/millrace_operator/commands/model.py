"""``millrace model``: capacity of a data flow from its costs, written in a file or learned from a running query."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace_api.errors import MillraceError, Problem
from millrace_support.query_targets import Context, Kubeconfig, Namespace

from .queries import connected

if TYPE_CHECKING:
    from ..capacity.live_flow import LiveFlow
    from ..capacity.report import PlannedFlow
    from .recording import Recording

app = typer.Typer(
    help="Plan the capacity of a data flow, from costs in a file or those of a running query.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class ReportFormat(StrEnum):
    """Output format of ``millrace model``."""

    TABLE = "table"
    JSON = "json"


class OnOff(StrEnum):
    """Whether operators may send records in batches."""

    ON = "on"
    OFF = "off"


FlowPath = Annotated[
    Path | None,
    typer.Argument(metavar="FLOW.yaml", help="Operators and costs; or a .json of `millrace model record`."),
]
Query = Annotated[str | None, typer.Option("--query", help="Name of a StreamQuery on the cluster, instead of a file.")]
Rates = Annotated[
    list[str] | None,
    typer.Option(
        "--rate",
        help="Records/s of each source; with several sources also --rate NAME=R for each. A query's default is what "
        "arrives now.",
    ),
]
Batching = Annotated[OnOff, typer.Option(help="off: every record is sent by itself, whatever batches the file has.")]
Format = Annotated[ReportFormat, typer.Option(help="table, or json with all figures.")]
Executors = Annotated[int | None, typer.Option(min=1, help="Executors of the query; default: the present ones.")]
Parallelism = Annotated[int | None, typer.Option(min=1, help="Combine tasks of the query; default: the present ones.")]
Replicas = Annotated[int | None, typer.Option(min=1, help="Replicas of the query; default: the present ones.")]
Interval = Annotated[
    float | None, typer.Option(min=0.001, help="Batch interval of the query in seconds; default: the present one.")
]


@dataclass(frozen=True)
class _Wanted:
    """Where a query is, and the settings under which to look at it; None keeps the present one."""

    query: str | None
    cluster: tuple[str | None, str | None, Path | None]
    executors: int | None
    parallelism: int | None
    replicas: int | None
    interval: float | None

    @property
    def options(self) -> Mapping[str, object]:
        """The options of queries that were given, by name."""
        names = ("--namespace", "--context", "--kubeconfig", "--executors", "--parallelism", "--replicas", "--interval")
        values = (*self.cluster, self.executors, self.parallelism, self.replicas, self.interval)
        return {name: value for name, value in zip(names, values, strict=True) if value is not None}


@app.command()
def predict(
    file: FlowPath = None,
    query: Query = None,
    rate: Rates = None,
    batching: Batching = OnOff.ON,
    format: Format = ReportFormat.TABLE,
    executors: Executors = None,
    parallelism: Parallelism = None,
    replicas: Replicas = None,
    interval: Interval = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Predict rates, capacity and throughput with the present tasks and batches, and what batching costs."""
    from ..capacity import report, tables

    wanted = _Wanted(query, (namespace, context, kubeconfig), executors, parallelism, replicas, interval)
    given = _given(file, wanted, rate, batching)
    _print(report.prediction(*given) | _live(given[0]), format, tables.print_prediction)


@app.command()
def bottleneck(
    file: FlowPath = None,
    query: Query = None,
    rate: Rates = None,
    batching: Batching = OnOff.ON,
    format: Format = ReportFormat.TABLE,
    executors: Executors = None,
    parallelism: Parallelism = None,
    replicas: Replicas = None,
    interval: Interval = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Name the operators that the present tasks and batches overload, what they lack, and what would help."""
    from ..capacity import report, tables

    wanted = _Wanted(query, (namespace, context, kubeconfig), executors, parallelism, replicas, interval)
    given = _given(file, wanted, rate, batching)
    _print(report.bottlenecks(*given) | _live(given[0]), format, tables.print_bottlenecks)


@app.command()
def minimize(
    file: FlowPath = None,
    query: Query = None,
    rate: Rates = None,
    batching: Annotated[OnOff, typer.Option(help="Whether records may be sent in batches.")] = OnOff.ON,
    format: Format = ReportFormat.TABLE,
    executors: Executors = None,
    parallelism: Parallelism = None,
    replicas: Replicas = None,
    interval: Interval = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Find the fewest tasks that carry the rates without a bottleneck, and the batches that this takes."""
    from ..capacity import report, tables

    wanted = _Wanted(query, (namespace, context, kubeconfig), executors, parallelism, replicas, interval)
    given = _given(file, wanted, rate, OnOff.ON)
    found = report.fewest_tasks(*given, batching=batching is OnOff.ON)
    _print(found | _live(given[0]), format, tables.print_fewest_tasks)


@app.command()
def record(
    file: Annotated[Path, typer.Argument(metavar="RECORDING.json", help="File to write.", show_default=False)],
    query: Query = None,
    metrics: Annotated[
        str | None, typer.Option(metavar="URL", help="Metrics of a `millrace run`, instead of a query on the cluster.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, help="How long to watch a run at least.")] = 30.0,
    cores: Annotated[
        int | None, typer.Option(min=1, help="Cores of the machine of a run; default: those of this machine.")
    ] = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Record what the batches of a running query cost, for the other commands."""
    from .recording import record_run

    if (query is None) == (metrics is None):
        raise MillraceError(Problem("a recording is of one query", "write either --query NAME or --metrics URL"))
    if metrics is not None:
        found = record_run(metrics, seconds, cores or os.cpu_count() or 1)
    else:
        found = _of_query(str(query), namespace, context, kubeconfig)
    found.write(file)
    typer.echo(f"{file}: {len(found.calibration['observations'])} observations of {found.query}")


def _given(
    path: Path | None, wanted: _Wanted, rates: list[str] | None, batching: OnOff
) -> tuple[PlannedFlow, dict[str, float]]:
    """Return the flow of a file or of a query, and the rates of its sources."""
    if (path is None) == (wanted.query is None):
        raise MillraceError(Problem("a model is of one flow", "write either FLOW.yaml or --query NAME"))
    if path is None:
        return _of_recording(_of_query(str(wanted.query), *wanted.cluster), wanted, rates, batching)
    if path.suffix == ".json":
        from .recording import read_recording

        return _of_recording(read_recording(path), wanted, rates, batching)
    from ..capacity.flow_file import read_flow, workload

    for option in wanted.options:
        raise MillraceError(Problem(f"{path} is a flow, to which {option} does not apply", f"leave out {option}"))
    given = read_flow(path, batching=batching is OnOff.ON)
    if not rates:
        raise MillraceError(Problem("the rate of the sources is missing", "write --rate NUMBER"))
    return given, workload(given, rates)


def _of_query(name: str, namespace: str | None, context: str | None, kubeconfig: Path | None) -> Recording:
    from .recording import recorded_by_operator
    from .user_queries import UserQueries

    return recorded_by_operator(UserQueries(connected(namespace, context, kubeconfig)), name)


def _of_recording(
    recording: Recording, wanted: _Wanted, rates: list[str] | None, batching: OnOff
) -> tuple[LiveFlow, dict[str, float]]:
    from ..capacity.flow_file import rate_of
    from ..capacity.live_flow import SOURCE
    from ..scaling.shape import Shape

    if batching is OnOff.OFF:
        raise MillraceError(Problem("the batches of a query are those of its interval", "leave out --batching off"))
    newest = recording.newest
    if len(rates or ()) > 1:
        raise MillraceError(Problem(f"{recording.query} has one rate, that of all its sources", "write one --rate"))
    rate = rate_of(rates[0]) if rates else recording.arrival
    if not rate:
        raise MillraceError(Problem("no records arrive", "write --rate NUMBER, above 0"))
    shape = Shape(
        wanted.executors or newest.plan.executors,
        wanted.parallelism or newest.plan.parallelism,
        wanted.replicas or newest.plan.replicas,
    )
    return recording.flow(rate, shape, wanted.interval or newest.interval), {SOURCE: rate}


def _live(given: PlannedFlow) -> dict[str, Any]:
    """Return what a report says of a query beyond its flow: settings, predicted W, and executors that would do."""
    from ..capacity.live_flow import LiveFlow

    return {"query": given.facts()} if isinstance(given, LiveFlow) else {}


def _print(document: dict[str, Any], format: ReportFormat, table: Callable[[dict[str, Any]], None]) -> None:
    if format is ReportFormat.JSON:
        typer.echo(json.dumps(document, indent=2, allow_nan=False))
    else:
        table(document)
