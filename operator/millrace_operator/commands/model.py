"""``millrace model``: capacity of a running query from the costs that were learned of it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
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
    from .recording import Recording

app = typer.Typer(
    help="Plan the capacity of a running query, from the costs that its batches had.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class ReportFormat(StrEnum):
    """Output format of ``millrace model``."""

    TABLE = "table"
    JSON = "json"


class OnOff(StrEnum):
    """Whether tasks may send records in batches."""

    ON = "on"
    OFF = "off"


RecordingPath = Annotated[
    Path | None, typer.Argument(metavar="RECORDING.json", help="A file that `millrace model record` wrote.")
]
Query = Annotated[str | None, typer.Option("--query", help="Name of a StreamQuery on the cluster, instead of a file.")]
Rates = Annotated[list[str] | None, typer.Option("--rate", help="Records/s of all sources; default: what arrives now.")]
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


@app.command()
def predict(
    file: RecordingPath = None,
    query: Query = None,
    rate: Rates = None,
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
    flow, rates = _given(file, wanted, rate)
    _print(report.prediction(flow, rates) | {"query": flow.facts()}, format, tables.print_prediction)


@app.command()
def bottleneck(
    file: RecordingPath = None,
    query: Query = None,
    rate: Rates = None,
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
    flow, rates = _given(file, wanted, rate)
    _print(report.bottlenecks(flow, rates) | {"query": flow.facts()}, format, tables.print_bottlenecks)


@app.command()
def minimize(
    file: RecordingPath = None,
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
    flow, rates = _given(file, wanted, rate)
    found = report.fewest_tasks(flow, rates, batching=batching is OnOff.ON)
    _print(found | {"query": flow.facts()}, format, tables.print_fewest_tasks)


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
        raise MillraceError(Problem("a recording covers one query", "write either --query NAME or --metrics URL"))
    if metrics is not None:
        found = record_run(metrics, seconds, cores or os.cpu_count() or 1)
    else:
        found = _of_query(str(query), namespace, context, kubeconfig)
    found.write(file)
    typer.echo(f"{file}: {len(found.calibration['observations'])} observations of {found.query}")


def _given(path: Path | None, wanted: _Wanted, rates: list[str] | None) -> tuple[LiveFlow, dict[str, float]]:
    """Return the flow of a recording or of a query, and the rate of its source."""
    from ..capacity.live_flow import SOURCE
    from ..capacity.report import rate_of
    from ..scaling.shape import Shape

    recording = _recording(path, wanted)
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


def _recording(path: Path | None, wanted: _Wanted) -> Recording:
    if (path is None) == (wanted.query is None):
        raise MillraceError(Problem("a model covers one query", "write either RECORDING.json or --query NAME"))
    if path is None:
        return _of_query(str(wanted.query), *wanted.cluster)
    if path.suffix in (".yaml", ".yml"):
        hint = (
            "write `millrace flow`, in a checkout, for a flow in YAML, or the name of a running query with --query NAME"
        )
        raise MillraceError(Problem(f"{path} is not a recording of a query", hint))
    from .recording import read_recording

    return read_recording(path)


def _of_query(name: str, namespace: str | None, context: str | None, kubeconfig: Path | None) -> Recording:
    from .recording import recorded_by_operator
    from .user_queries import UserQueries

    return recorded_by_operator(UserQueries(connected(namespace, context, kubeconfig)), name)


def _print(document: dict[str, Any], format: ReportFormat, table: Callable[[dict[str, Any]], None]) -> None:
    if format is ReportFormat.JSON:
        typer.echo(json.dumps(document, indent=2, allow_nan=False))
    else:
        table(document)
