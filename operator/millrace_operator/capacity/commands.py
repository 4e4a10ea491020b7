"""``millrace model``: capacity of a data flow from its costs."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from .flow_file import FlowFile

app = typer.Typer(help="Plan the capacity of a data flow from its costs.", no_args_is_help=True, rich_markup_mode=None)


class ReportFormat(StrEnum):
    """Output format of ``millrace model``."""

    TABLE = "table"
    JSON = "json"


class OnOff(StrEnum):
    """Whether operators may send records in batches."""

    ON = "on"
    OFF = "off"


FlowPath = Annotated[Path, typer.Argument(metavar="FLOW.yaml", help="Operators and costs.", show_default=False)]
Rates = Annotated[
    list[str],
    typer.Option("--rate", help="Records/s of each source; with several sources also --rate NAME=R for each."),
]
Batching = Annotated[OnOff, typer.Option(help="off: every record is sent by itself, whatever batches the file has.")]
Format = Annotated[ReportFormat, typer.Option(help="table, or json with all figures.")]


@app.command()
def predict(file: FlowPath, rate: Rates, batching: Batching = OnOff.ON, format: Format = ReportFormat.TABLE) -> None:
    """Predict rates, capacity and throughput with the tasks and batches of the file, and what batching costs."""
    from . import report, tables

    _print(report.prediction(*_read(file, rate, batching)), format, tables.print_prediction)


@app.command()
def bottleneck(file: FlowPath, rate: Rates, batching: Batching = OnOff.ON, format: Format = ReportFormat.TABLE) -> None:
    """Name the operators that the tasks and batches of the file overload, what they lack, and what would help."""
    from . import report, tables

    _print(report.bottlenecks(*_read(file, rate, batching)), format, tables.print_bottlenecks)


@app.command()
def minimize(
    file: FlowPath,
    rate: Rates,
    batching: Annotated[OnOff, typer.Option(help="Whether records may be sent in batches.")] = OnOff.ON,
    format: Format = ReportFormat.TABLE,
) -> None:
    """Find the fewest tasks that carry the rates without a bottleneck, and the batches that this takes."""
    from . import report, tables

    _print(report.fewest_tasks(*_read(file, rate), batching=batching is OnOff.ON), format, tables.print_fewest_tasks)


def _read(path: Path, rates: list[str], batching: OnOff = OnOff.ON) -> tuple[FlowFile, dict[str, float]]:
    """Return the flow of a file and the rates of its sources."""
    from .flow_file import read_flow, workload

    given = read_flow(path, batching=batching is OnOff.ON)
    return given, workload(given, rates)


def _print(document: dict[str, Any], format: ReportFormat, table: Callable[[dict[str, Any]], None]) -> None:
    if format is ReportFormat.JSON:
        typer.echo(json.dumps(document, indent=2, allow_nan=False))
    else:
        table(document)
