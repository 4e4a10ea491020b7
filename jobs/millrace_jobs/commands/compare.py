"""The command ``millrace compare``: only its options are here."""

from __future__ import annotations

import _thread
import os
import sys
import threading
import time
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.commands.query import query_for_spark
from millrace_jobs.comparison import EXAMPLES, TOLERANCE
from millrace_support.extras import extras_reported
from millrace_support.query_targets import ConnectionFiles

if TYPE_CHECKING:
    from millrace_api.model.values import Duration

RUN_COMMAND = (sys.executable, "-c", "from millrace_jobs.cli import main; main()", "compared-version")
"""The command that runs one version."""

_END_SECONDS = 8.0
"""Seconds in which a run removes its temporary files; the comparison kills it soon after."""


class CompareFormat(StrEnum):
    """Output format of ``millrace compare``."""

    TEXT = "text"
    JSON = "json"


class CompareStatus(IntEnum):
    """Exit statuses of ``millrace compare``, like those of ``millrace diff``."""

    EQUAL = 0
    DIFFERENT = 1
    FAILED = 2


def compare(
    old: Annotated[Path, typer.Argument(help="YAML file with the version that runs now.", show_default=False)],
    new: Annotated[Path, typer.Argument(help="YAML file with the version to compare.", show_default=False)],
    query: Annotated[str | None, typer.Option(help="Name of the query, if the files have several.")] = None,
    connections: ConnectionFiles = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Snapshot of the old version's checkpoint to begin with, or beginning: that of the sources. "
            "Default: the newest snapshot, if there is one that the new version can continue.",
            show_default=False,
        ),
    ] = None,
    records: Annotated[int, typer.Option(min=1, help="Records to compare at most, in whole batches.")] = 1_000_000,
    within: Annotated[
        str | None,
        typer.Option(help="Longest time for the records of the old version, such as 10m.", show_default=False),
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(help="Column that may differ; can be repeated.", show_default=False)
    ] = None,
    tolerance: Annotated[
        float, typer.Option(min=0, help="Relative difference of two floats that does not count.")
    ] = TOLERANCE,
    slower_than: Annotated[
        float, typer.Option(min=0, help="How many times as long as the old version the new one may take.")
    ] = 1.5,
    differences: Annotated[int, typer.Option(min=0, help="Differing rows to show for each output.")] = EXAMPLES,
    expect_changes: Annotated[
        bool,
        typer.Option("--expect-changes", help="ComparisonReport differences, and exit with status 0 all the same."),
    ] = False,
    format: Annotated[CompareFormat, typer.Option(help="text, or json.")] = CompareFormat.TEXT,
) -> None:
    """Run two versions of a query on the same records, and compare their results and their speed.

    Sinks are not written: the results stay in a temporary folder. Exit with status 0 if both are equal, 1 if they
    differ or the new one is slower, and 2 if they cannot be compared.
    """
    from millrace_jobs.comparison.compare import ComparedVersion, VersionsRequest
    from millrace_jobs.comparison.compare import compare as compared
    from millrace_jobs.comparison.report import as_json, as_text
    from millrace_jobs.run.query_file import query_of

    try:
        with extras_reported():
            versions = [ComparedVersion(file, query_of(file, query, connections or ())) for file in (old, new)]
            request = VersionsRequest(
                old=versions[0],
                new=versions[1],
                connections=connections or (),
                start=start,
                records=records,
                within=None if within is None else _duration(within),
                ignored=frozenset(ignore or ()),
                tolerance=tolerance,
                bound=slower_than,
                examples=differences,
                command=RUN_COMMAND,
            )
            report = compared(request, lambda text: typer.echo(text, err=True))
    except MillraceError as error:
        error.exit_status = CompareStatus.FAILED
        raise
    typer.echo(as_json(report) if format is CompareFormat.JSON else "\n".join(as_text(report)))
    if not report.is_equal and not expect_changes:
        raise typer.Exit(CompareStatus.DIFFERENT)


def compared_version(
    task: Annotated[Path, typer.Argument(help="File with the task.", show_default=False)],
) -> None:
    """Run one version for ``millrace compare``, and end when the standard input closes."""
    from millrace_jobs.comparison.version_run import VersionOutcome, VersionTask, run_version
    from millrace_jobs.run.query_file import errors_located_in

    threading.Thread(target=_end_with_parent, daemon=True).start()
    wanted = VersionTask.read(task)
    try:
        with extras_reported():
            files = [Path(file) for file in wanted.connections]
            chosen = query_for_spark(Path(wanted.file), wanted.query, files, debug=False, in_pod=wanted.in_pod)
            with errors_located_in(Path(wanted.file), chosen.name):
                outcome = run_version(chosen, wanted)
    except MillraceError as error:
        outcome = VersionOutcome(problems=error.problems)
    outcome.write(wanted.outcome_file)


def _end_with_parent() -> None:
    """End this process in order when the comparison has ended or died, and after some seconds in any case."""
    while sys.stdin.buffer.read(1 << 10):
        pass
    _thread.interrupt_main()
    time.sleep(_END_SECONDS)
    os._exit(1)


def _duration(text: str) -> Duration:
    from millrace_api.model import values

    try:
        return values.Duration(text)
    except ValueError as error:
        raise MillraceError(Problem(f"--within: {error}")) from None
