"""``millrace model``: capacity of a data flow from its costs."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

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
    from . import model_report, model_table
    from .flow_file import read_flow
    from .rates import workload

    given = read_flow(file, batching=batching is OnOff.ON)
    _print(model_report.prediction(given, workload(given, rate)), format, model_table.prediction)


@app.command()
def bottleneck(file: FlowPath, rate: Rates, batching: Batching = OnOff.ON, format: Format = ReportFormat.TABLE) -> None:
    """Name the operators that the tasks and batches of the file overload, what they lack, and what would help."""
    from . import model_report, model_table
    from .flow_file import read_flow
    from .rates import workload

    given = read_flow(file, batching=batching is OnOff.ON)
    _print(model_report.bottlenecks(given, workload(given, rate)), format, model_table.bottlenecks)


@app.command()
def minimize(
    file: FlowPath,
    rate: Rates,
    batching: Annotated[OnOff, typer.Option(help="Whether records may be sent in batches.")] = OnOff.ON,
    format: Format = ReportFormat.TABLE,
) -> None:
    """Find the fewest tasks that carry the rates without a bottleneck, and the batches that this takes."""
    from . import model_report, model_table
    from .flow_file import read_flow
    from .rates import workload

    given = read_flow(file)
    report = model_report.least(given, workload(given, rate), batching=batching is OnOff.ON)
    _print(report, format, model_table.least)


def _print(report: dict[str, Any], format: ReportFormat, table: Callable[[dict[str, Any]], None]) -> None:
    if format is ReportFormat.JSON:
        typer.echo(json.dumps(report, indent=2, allow_nan=False))
    else:
        table(report)
