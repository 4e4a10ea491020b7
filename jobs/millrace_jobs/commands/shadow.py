"""The command of the pod that compares a changed query with the one that runs, before that is replaced."""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace_api.errors import MillraceError
from millrace_jobs.commands.compare import RUN_COMMAND

if TYPE_CHECKING:
    from millrace_api.model.upgrade import UpgradeReport

_LOCAL = Path("/var/lib/millrace/local")
"""The folder of a driver's pod for temporary data."""


def shadow(
    old: Annotated[Path, typer.Argument(help="File with the query that runs.", show_default=False)],
    new: Annotated[Path, typer.Argument(help="File with the changed query.", show_default=False)],
    report: Annotated[Path, typer.Option(help="File for the report as JSON, such as the termination message.")],
) -> None:
    """Compare a changed query with the one that runs; only the pods that the operator creates need this command."""
    from millrace_jobs.comparison.upgrade_report import fitted
    from millrace_jobs.process.signals import on_shutdown_request

    on_shutdown_request(_end_once())
    found = _compared(old, new)
    typer.echo(f"{found.verdict}: {found.message}")
    report.write_text(fitted(found), encoding="utf-8")


def _compared(old: Path, new: Path) -> UpgradeReport:
    """Compare both versions, and report also why that is not possible."""
    from millrace_jobs.comparison.compare import TooSlowError
    from millrace_jobs.comparison.upgrade_report import not_compared, too_slow

    try:
        return _run(old, new)
    except TooSlowError as error:
        return too_slow(str(error))
    except MillraceError as error:
        return not_compared(str(error))
    except Exception as error:
        traceback.print_exc()
        return not_compared(f"this should not have happened: {type(error).__name__}: {error}; see the log of the pod")


def _run(old: Path, new: Path) -> UpgradeReport:
    from millrace_jobs.comparison.compare import ComparedVersion
    from millrace_jobs.comparison.report import as_text
    from millrace_jobs.comparison.upgrade import compare_upgrade, heap_of
    from millrace_jobs.comparison.upgrade_report import upgrade_report
    from millrace_jobs.confinement import confine
    from millrace_jobs.run.query_file import query_of

    confine(new)
    before, after = (ComparedVersion(file, query_of(file, in_pod=True)) for file in (old, new))
    _fit_pod(heap_of(after.query.spec))
    found = compare_upgrade(before, after, RUN_COMMAND, typer.echo)
    typer.echo("\n".join(as_text(found)))
    images = {each.query.spec.image for each in (before, after)}
    note = "both versions have run in the image of the new one" if len(images) > 1 else ""
    return upgrade_report(found, note)


def _fit_pod(heap: str) -> None:
    """Let this process, and those that it starts, keep temporary data in the pod's folder, and Java to its heap."""
    named = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
    if named or _LOCAL.is_dir():
        os.environ["TMPDIR"] = named or str(_LOCAL)
        tempfile.tempdir = None
    os.environ.pop("SPARK_LOCAL_DIRS", None)  # Spark would prefer it to the folder of the run, which is removed
    os.environ.pop("SPARK_CONF_DIR", None)  # its settings are those of a driver with executors
    os.environ["SPARK_DRIVER_MEMORY"] = heap


def _end_once() -> Callable[[int], None]:
    """Return a handler that ends this process in order at the first signal, and lets that go on at further ones."""
    requested: list[int] = []

    def handle(number: int) -> None:
        if not requested:
            requested.append(number)
            raise SystemExit(128 + number)

    return handle
