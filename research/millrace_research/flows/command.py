"""``millrace flow``: capacity of a data flow from costs in a file.

What the commands need is imported when they run, because every start of ``millrace`` loads this module.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

app = typer.Typer(
    help="Plan the capacity of a data flow, from costs in a file.", no_args_is_help=True, rich_markup_mode=None
)

FlowPath = Annotated[Path, typer.Argument(metavar="FLOW.yaml", help="Operators and their costs.", show_default=False)]
Rates = Annotated[
    list[str],
    typer.Option(
        "--rate", help="Records/s of each source; with several sources also --rate NAME=R for each.", show_default=False
    ),
]
Batching = Annotated[
    Literal["on", "off"], typer.Option(help="off: every record is sent by itself, whatever batches the file has.")
]
Format = Annotated[Literal["table", "json"], typer.Option(help="table, or json with all figures.")]


@app.command()
def predict(file: FlowPath, rate: Rates, batching: Batching = "on", format: Format = "table") -> None:
    """Predict rates, capacity and throughput with the present tasks and batches, and what batching costs."""
    from millrace_operator.capacity import report, tables

    from .flow_file import read_flow, workload

    flow = read_flow(file, batching=batching == "on")
    _print(report.prediction(flow, workload(flow, rate)), format, tables.print_prediction)


@app.command()
def bottleneck(file: FlowPath, rate: Rates, batching: Batching = "on", format: Format = "table") -> None:
    """Name the operators that the present tasks and batches overload, what they lack, and what would help."""
    from millrace_operator.capacity import report, tables

    from .flow_file import read_flow, workload

    flow = read_flow(file, batching=batching == "on")
    _print(report.bottlenecks(flow, workload(flow, rate)), format, tables.print_bottlenecks)


@app.command()
def minimize(
    file: FlowPath,
    rate: Rates,
    batching: Annotated[Literal["on", "off"], typer.Option(help="Whether records may be sent in batches.")] = "on",
    format: Format = "table",
) -> None:
    """Find the fewest tasks that carry the rates without a bottleneck, and the batches that this takes."""
    from millrace_api.errors import MillraceError
    from millrace_operator.capacity import report, tables
    from millrace_operator.capacity.minimizer import UnattainableError

    from .flow_file import read_flow, workload

    flow = read_flow(file)
    try:
        found = report.fewest_tasks(flow, workload(flow, rate), batching=batching == "on")
    except UnattainableError as error:
        message = "cannot keep up with what is broadcast to it, however many tasks it has"
        hint = "lower its costs or the rates, or connect it by hash or random"
        raise MillraceError(flow.problem(error.operator, message, hint)) from None
    _print(found, format, tables.print_fewest_tasks)


def _print(document: dict[str, Any], format: str, table: Callable[[dict[str, Any]], None]) -> None:
    if format == "json":
        typer.echo(json.dumps(document, indent=2, allow_nan=False))
    else:
        table(document)
