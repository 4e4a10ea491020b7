"""The command ``millrace bench partitioners`` and its options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console


def partitioners(
    input: Annotated[Path, typer.Option(help="Recorded stream: .csv with a header, .json lines or .parquet.")],
    key: Annotated[list[str], typer.Option(help="Column of the key; for a composite key: --key a --key b.")],
    workers: Annotated[int, typer.Option(help="Workers that records are placed on.")],
    window: Annotated[str, typer.Option(help="Length of a window: a duration with --time, else records.")],
    algorithm: Annotated[str, typer.Option(help="Algorithms and parameters: hash,pkg,pkg:choices=5; or all.")],
    slide: Annotated[str | None, typer.Option(help="Time or records between window starts; default: --window.")] = None,
    time: Annotated[str | None, typer.Option(help="Column of event time: timestamps, or numbers of seconds.")] = None,
    replicas: Annotated[int, typer.Option(help="Partitioner replicas, each with a part of every slide.")] = 1,
    resize: Annotated[int | None, typer.Option(help="Workers to resize to at the end, to see which keys move.")] = None,
    assignments: Annotated[Path | None, typer.Option(help="Folder to write worker ids to, one .npy file each.")] = None,
    format: Annotated[
        Literal["table", "json"], typer.Option(help="table, or json with all figures over time.")
    ] = "table",
    plot: Annotated[Path | None, typer.Option(help="SVG file to draw (needs the extra 'plots').")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the hash functions.")] = 0,
) -> None:
    """Place a recorded stream by several algorithms, and compare their balance, cost and speed.

    Records keep their input order. Slides are cut at multiples of their length, in event time or in records; a late
    record belongs to the current slide. Each slide is divided into contiguous parts of nearly equal size, one for
    each replica.
    """
    from millrace_research.comparison.compare import ComparisonRequest, compare
    from millrace_research.comparison.plot import write_plot
    from millrace_research.comparison.table import print_tables
    from millrace_support.plot_files import check_plotting

    if plot is not None:
        check_plotting(plot)
    report = compare(
        ComparisonRequest(
            input, key, time, workers, replicas, window, slide or window, algorithm, seed, assignments, resize
        )
    )
    if plot is not None:
        write_plot(report, plot)
    if format == "json":
        typer.echo(json.dumps(report.to_json(), indent=2, allow_nan=False))
    else:
        print_tables(report, Console(highlight=False, emoji=False))
