"""The commands on checkpoints by their place: ``millrace checkpoint ...``."""

from __future__ import annotations

from typing import Annotated

import typer

checkpoint = typer.Typer(
    help="List, show, copy or remove checkpoints in a folder or an object store.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Named = Annotated[str, typer.Argument(help="A folder, or a place such as s3a://bucket/prefix.", show_default=False)]


@checkpoint.command("ls")
def list_checkpoints(place: Named) -> None:
    """List the checkpoints that are directly in a place."""
    from millrace_jobs.places import place_of
    from millrace_jobs.run.checkpoints import checkpoints_in

    for found in checkpoints_in(place_of(place)):
        typer.echo(found)


@checkpoint.command("show")
def show_checkpoint(place: Named) -> None:
    """Show a checkpoint's query, its driver, its last batch and its size."""
    from millrace_jobs.places import place_of
    from millrace_jobs.run.checkpoints import describe

    typer.echo(describe(place_of(place)))


@checkpoint.command("rm")
def remove_checkpoint(place: Named) -> None:
    """Remove a checkpoint that no driver holds."""
    from millrace_jobs.places import place_of
    from millrace_jobs.run.checkpoints import remove

    remove(place_of(place))
    typer.echo(f"removed {place}")


@checkpoint.command("copy")
def copy_checkpoint(
    source: Named,
    target: Annotated[str, typer.Argument(help="A folder or prefix that does not exist yet.", show_default=False)],
) -> None:
    """Copy a checkpoint that no driver holds, also from a folder to an object store, or back."""
    from millrace_jobs.places import place_of
    from millrace_jobs.run.checkpoints import copy

    files = copy(place_of(source), place_of(target))
    typer.echo(f"copied {files} files to {target}: continue only one of the two")
