"""The command that writes the report of a run, from its record or from what Prometheus has of a query on a cluster."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.values import PositiveDuration
from millrace_support.query_targets import ClusterOptions, Context, Kubeconfig, Namespace, is_on_cluster, on_cluster

_SINCE = "1h"
"""Period of a query on a cluster, if none is given."""

_HINT = "write a duration such as 30m, 2h or 1d, or a time such as 2026-11-28T20:15:00Z"


def report(
    target: Annotated[
        str,
        typer.Argument(
            help="Record of a run (millrace run --record), or the name of a StreamQuery on the cluster.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write; - is standard output. By default NAME-report.html."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="Beginning of the period: a time, or how long before its end. By default all of a record, and 1h of a "
            "query on the cluster.",
            show_default=False,
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            help="End of the period: a time, or how long ago. By default now, or the end of a record.",
            show_default=False,
        ),
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(
            envvar="MILLRACE_PROMETHEUS", help="URL of the Prometheus that scrapes the cluster.", show_default=False
        ),
    ] = None,
    prometheus_token_file: Annotated[
        Path | None, typer.Option(help="File with a bearer token for Prometheus.", show_default=False)
    ] = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Write one HTML page about a run: its charts, its verdicts over time, and every decision.

    The page loads nothing from elsewhere, so it can be sent and opened as a file.
    """
    cluster = ClusterOptions(namespace, context, kubeconfig)
    if is_on_cluster(target, cluster, {}):
        now = time.time()
        end = now if until is None else _moment(until, "--until", now)
        first = _moment(since or _SINCE, "--since", end)
        _require_order(first, end)
        lines = on_cluster["report"](target, cluster, prometheus, prometheus_token_file, first, end)
        from millrace_jobs.page.replay import replayed

        found = replayed(lines, first, end)
    else:
        from millrace_jobs.page.replay import replayed
        from millrace_support.run_record import read_record

        lines = read_record(Path(target))
        last = lines[-1].time
        end = last if until is None else _moment(until, "--until", time.time())
        first = lines[0].time if since is None else _moment(since, "--since", end)
        _require_order(first, end)
        found = replayed(lines, first, end)
    from millrace_jobs.page.report import render_report

    _write(output or Path(f"{found.view.name}-report.html"), render_report(found))


def _moment(text: str, option: str, end: float) -> float:
    """Return a time in seconds since 1970, written as one or as a duration before ``end``."""
    try:
        return end - PositiveDuration(text).seconds
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise MillraceError(Problem(f'"{text}" is neither a duration nor a time', _HINT, field=option)) from None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def _require_order(first: float, end: float) -> None:
    if first >= end:
        message = f"the period begins at {datetime.fromtimestamp(first, UTC):%Y-%m-%d %H:%M:%S} UTC, after its end"
        raise MillraceError(Problem(message, "write an earlier time", field="--since"))


def _write(path: Path, page: bytes) -> None:
    if str(path) == "-":
        sys.stdout.buffer.write(page)
        return
    try:
        path.write_bytes(page)
    except OSError as error:
        hint = "write the name of a file in a folder that exists and can be written to"
        raise MillraceError(Problem(f"{path} cannot be written: {error.strerror}", hint, field="--output")) from None
    typer.echo(f"report={path}", err=True)
