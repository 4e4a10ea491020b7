"""The command line: the commands of this package (``commands``), and those of other packages."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points, version
from importlib.util import find_spec
from typing import Annotated, Literal

import typer

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.commands.calibrate import calibrate
from millrace_jobs.commands.checkpoint import checkpoint
from millrace_jobs.commands.compare import compare, compared_version
from millrace_jobs.commands.explain import explain, validate
from millrace_jobs.commands.get import get
from millrace_jobs.commands.init import init
from millrace_jobs.commands.problems import print_problems
from millrace_jobs.commands.report import report
from millrace_jobs.commands.run import driver, partitioner, run
from millrace_jobs.commands.shadow import shadow
from millrace_jobs.commands.snapshot import snapshot
from millrace_jobs.commands.state import state
from millrace_jobs.produce.command import produce
from millrace_support.extras import extras_reported
from millrace_support.help_groups import ADMINISTRATION, PLANNING, WIDTH, GroupedHelp

app = typer.Typer(
    help="Streaming queries on Spark, placed by skew-aware partitioners.",
    cls=GroupedHelp,
    context_settings={"max_content_width": WIDTH},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

COMMANDS: tuple[Callable[..., None], ...] = (init, validate, run, explain, get, report, produce)
"""In the order of the help."""

for command in COMMANDS:
    app.command()(command)
app.add_typer(state, name="state")
app.add_typer(checkpoint, name="checkpoint")
app.add_typer(snapshot, name="snapshot")
app.command(rich_help_panel=PLANNING)(compare)
app.command(rich_help_panel=PLANNING)(calibrate)
for started_by_others in (driver, partitioner, shadow, compared_version):
    app.command(hidden=True)(started_by_others)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"millrace {version('millrace')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of ``millrace`` itself, before any command."""


@app.command("prepare")
def prepare_runs(
    s3: Annotated[bool, typer.Option("--s3", help="Also fetch Spark's client for S3, by Maven: 12 MB.")] = False,
    azure: Annotated[bool, typer.Option("--azure", help="Also fetch Spark's client for Azure: 0.6 MB.")] = False,
) -> None:
    """Compile once what every run needs, so that queries start sooner; takes about a minute and 200 MB."""
    from millrace_jobs.prepare import prepare

    prepare(typer.echo)
    for name, wanted in {"s3": s3, "azure": azure}.items():
        if wanted:
            from millrace_jobs.stores.spark import CLIENTS

            CLIENTS[name].fetch(typer.echo)


@app.command(rich_help_panel=ADMINISTRATION)
def crd(
    format: Annotated[
        Literal["yaml", "json-schema"], typer.Option(help="The CustomResourceDefinition, or a JSON schema for editors.")
    ] = "yaml",
    kind: Annotated[Literal["StreamQuery", "Connection"], typer.Option(help="Which kind of objects.")] = "StreamQuery",
) -> None:
    """Print the CustomResourceDefinition of StreamQuery, or of Connection."""
    from millrace_api.crd import crd_yaml, json_schema

    typer.echo(crd_yaml(kind) if format == "yaml" else json_schema(kind), nl=False)


@cache
def _add_other_commands() -> None:
    """Add the commands of other installed packages, found by entry point because this package imports none of them.

    Images lack ``millrace_research``, which the distribution's entry points name all the same.
    """
    for package in entry_points(group="millrace.commands"):
        if find_spec(package.module.partition(".")[0]):
            package.load()(app)


def main() -> None:
    """Run the command line; report a user error in one sentence and exit with its status."""
    try:
        with extras_reported():
            _add_other_commands()
            app()
    except MillraceError as error:
        if "--debug" in sys.argv:
            raise
        print_problems(error.problems)
        sys.exit(error.exit_status)
    except BrokenPipeError:
        sys.exit(141)
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        first_line = f"{type(error).__name__}: {error}".split("\n", 1)[0]
        print_problems((Problem(f"this should not have happened: {first_line}", "run with --debug to see where"),))
        sys.exit(1)
