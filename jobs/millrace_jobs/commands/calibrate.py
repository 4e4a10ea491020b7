"""The command ``millrace calibrate``: only its options are here."""

from __future__ import annotations

import json
import math
import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_jobs.commands.query import Debug, FileOrInput, QueryName, given_file, query_for_spark
from millrace_jobs.commands.run import GRACE, run_job
from millrace_support.plan_measurements import ReportRequest, cost_reports
from millrace_support.query_targets import ConnectionFiles

if TYPE_CHECKING:
    from millrace_jobs.calibration.calibrate import CalibrationRun
    from millrace_jobs.run.job import Job

_LEAST_SECONDS = 20.0


class CalibrateFormat(StrEnum):
    """Output format of ``millrace calibrate``."""

    TEXT = "text"
    JSON = "json"


def calibrate(
    file: FileOrInput,
    rate: Annotated[
        list[float] | None,
        typer.Option(
            help="Records/s of all sources to find a plan for; can be repeated. Default: some that the bounds carry.",
            show_default=False,
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=_LEAST_SECONDS, help="Time of all batches; starting Spark comes on top.")
    ] = 90.0,
    query: QueryName = None,
    connections: ConnectionFiles = None,
    record: Annotated[
        Path | None, typer.Option(metavar="RECORDING.json", help="File for what was measured, for `millrace model`.")
    ] = None,
    format: Annotated[CalibrateFormat, typer.Option(help="text, or json.")] = CalibrateFormat.TEXT,
    debug: Debug = False,
) -> None:
    """Measure what batches of a query cost on this machine, and predict how many executors it needs at which rate.

    Sinks are not written, and results are dropped. Ctrl-C, or a server that does not answer, ends the run early, with a
    report if it has measured enough.
    """
    for each in rate or ():
        if not 0 < each < math.inf:
            raise MillraceError(Problem(f"--rate is {each:g}", "write a number of records per second above 0"))
    if not seconds < math.inf:
        raise MillraceError(Problem(f"--seconds is {seconds:g}", "write a number of seconds, such as 90"))
    if "calibrate" not in cost_reports:
        message = "the package millrace_operator, whose model explains the measurements, is not installed"
        raise MillraceError(Problem(message, "run this command where Millrace was installed by pip"))
    runs: list[CalibrationRun] = []

    def job() -> Job:
        chosen = query_for_spark(given, query, connections, debug=debug)
        from millrace_jobs.calibration.calibrate import CalibrationRun

        typer.echo(f"starting={chosen.name}", err=True)
        runs.append(CalibrationRun(chosen, seconds, os.cpu_count() or 1, lambda text: typer.echo(text, err=True)))
        runs[0].job.file, runs[0].job.debug = given.path, debug
        return runs[0].job

    with given_file(file) as given:
        try:
            try:
                run_job(job, GRACE)
            except TransientError as error:
                if not (runs and runs[0].has_enough):
                    raise
                typer.echo(f"ended early: {error}", err=True)
            measured = runs[0].measured()
        finally:
            for run in runs:
                run.close()
    request = ReportRequest(rate or (), None if record is None else str(record))
    document, lines = cost_reports["calibrate"](measured, request)
    typer.echo(json.dumps(document, indent=2, allow_nan=False) if format is CalibrateFormat.JSON else "\n".join(lines))
