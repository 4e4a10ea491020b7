"""The commands on the state of a query: ``millrace state ...``."""

from __future__ import annotations

from typing import Annotated

import typer

from millrace_jobs.commands.query import Debug, QueryFile, QueryName, query_for_spark
from millrace_support.query_targets import ConnectionFiles

state = typer.Typer(help="Show or repartition a query's state.", no_args_is_help=True, rich_markup_mode=None)


@state.command("repartition")
def repartition_state(
    file: QueryFile,
    partitions: Annotated[int, typer.Option(help="State partitions from the next run on.", show_default=False)],
    query: QueryName = None,
    connections: ConnectionFiles = None,
    debug: Debug = False,
) -> None:
    """Redistribute the state of a query over another number of partitions, also while it runs."""
    from millrace_jobs.run.query_file import errors_located_in, query_of
    from millrace_jobs.run.running_state import is_running, repartition_running
    from millrace_jobs.run.state import repartition

    chosen = query_of(file, query, connections or ())
    with errors_located_in(file, chosen.name):
        if is_running(chosen):
            chosen = query_for_spark(file, query, connections, debug=debug)
            before = repartition_running(chosen, partitions, typer.echo, debug=debug)
        else:
            before = repartition(chosen, partitions, debug=debug)
    if before == partitions:
        typer.echo(f"the state of {chosen.name} has {partitions} partitions already")
    else:
        typer.echo(f"state partitions of {chosen.name}: {before} -> {partitions}")


@state.command("show")
def show_state(
    file: QueryFile,
    query: QueryName = None,
    connections: ConnectionFiles = None,
) -> None:
    """Show how many partitions a query's state has, how large it is on disk, and which batch was the last."""
    from millrace_jobs.run.query_file import errors_located_in, query_of
    from millrace_jobs.run.state import describe_state
    from millrace_jobs.stores.spark import use

    chosen = query_of(file, query, connections or ())
    with errors_located_in(file, chosen.name):
        use(chosen.spec.s3, chosen.spec.azure)
        typer.echo(describe_state(chosen))
