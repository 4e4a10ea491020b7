"""The command ``millrace produce`` and its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

File = Annotated[Path | None, typer.Argument(help="YAML file of a query that reads the topic.", show_default=False)]


def produce(
    file: File = None,
    query: Annotated[str | None, typer.Option(help="Name of the query, if the file has several.")] = None,
    connections: Annotated[
        list[Path] | None, typer.Option(help="YAML file with Connections that it refers to.", show_default=False)
    ] = None,
    source: Annotated[str | None, typer.Option(help="Its Kafka source, if it has several.")] = None,
    topic: Annotated[str | None, typer.Option(help="Topic, if not that of a query.")] = None,
    bootstrap_servers: Annotated[str | None, typer.Option(help="Brokers, host:port, if not those of a query.")] = None,
    format: Annotated[str | None, typer.Option(help="json (default), csv, or raw: the lines of a file.")] = None,
    partitions: Annotated[int | None, typer.Option(help="Create the topic if it is missing.", min=1)] = None,
    input: Annotated[Path | None, typer.Option(help="File to send: .csv with a header, .json lines, .parquet.")] = None,
    schema: Annotated[str | None, typer.Option(help="Columns of the file; else the query's, or inferred.")] = None,
    header: Annotated[bool, typer.Option(help="Whether a csv file has a header.")] = True,
    delimiter: Annotated[str, typer.Option(help="Separator of the columns of a csv file.")] = ",",
    generate: Annotated[str | None, typer.Option(help="Records to generate: rate, bid, auction or person.")] = None,
    keys: Annotated[int, typer.Option(help="Distinct keys of --generate rate.", min=1, max=1_000_000)] = 1000,
    skew: Annotated[float, typer.Option(help="Zipf exponent of generated keys.", min=0, max=10)] = 0.0,
    drift: Annotated[str | None, typer.Option(help="Time until other keys become hot, such as 30s.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the generator.", min=0, max=2**53)] = 0,
    start: Annotated[str | None, typer.Option(help="Event time of the first generated record; else now.")] = None,
    key: Annotated[str | None, typer.Option(help="Column that is the message key.")] = None,
    rate: Annotated[float | None, typer.Option(help="Messages per second; else as fast as possible.")] = None,
    rate_trace: Annotated[Path | None, typer.Option(help="csv file of times and rates to follow to its end.")] = None,
    rate_scale: Annotated[float, typer.Option(help="Factor for every rate of the trace.")] = 1.0,
    count: Annotated[int | None, typer.Option(help="Maximum number of messages.", min=1)] = None,
    duration: Annotated[str | None, typer.Option(help="Maximum duration, such as 30s or 10m.")] = None,
) -> None:
    """Fill a Kafka topic from a file or a generator; Ctrl-C ends it once every message sent is confirmed.

    With the YAML file of a query, the topic, its cluster with logins, the format and the columns are those of the
    query's Kafka source. Without --rate, a second of event time has a thousand generated records.
    """
    options = dict(locals())
    from millrace_jobs.produce.job import ProduceRequest, run

    run(ProduceRequest(**options))
