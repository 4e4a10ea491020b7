"""The commands on snapshots of checkpoints: ``millrace snapshot ...``."""

from __future__ import annotations

from typing import Annotated

import typer

snapshot = typer.Typer(
    help="Take, list, verify, restore or remove snapshots of a checkpoint; its query may run.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Checkpoint = Annotated[
    str, typer.Argument(help="The checkpoint: a folder, or a place such as s3a://bucket/prefix.", show_default=False)
]
Name = Annotated[str, typer.Argument(help="The snapshot's name.", show_default=False)]


@snapshot.command("create")
def create_snapshot(checkpoint: Checkpoint, name: Name) -> None:
    """Take a snapshot as of the newest finished batch, without stopping the query."""
    from millrace_jobs.run.snapshots import create

    typer.echo(create(checkpoint, name))


@snapshot.command("ls")
def list_snapshots(checkpoint: Checkpoint) -> None:
    """List the snapshots of a checkpoint, the oldest first, with the batch and the size of each."""
    from millrace_jobs.run.snapshots import listed

    for line in listed(checkpoint):
        typer.echo(line)


@snapshot.command("verify")
def verify_snapshot(checkpoint: Checkpoint, name: Name) -> None:
    """Compare every file of a snapshot with what it was when it was taken; fail if one is missing or changed."""
    from millrace_jobs.run.snapshots import verified

    typer.echo(verified(checkpoint, name))


@snapshot.command("restore")
def restore_snapshot(
    checkpoint: Checkpoint,
    name: Name,
    target: Annotated[str, typer.Argument(help="A folder or prefix that does not exist yet.", show_default=False)],
) -> None:
    """Make a checkpoint of a snapshot, also from a folder in an object store, or back."""
    from millrace_jobs.run.snapshots import restored

    typer.echo(restored(checkpoint, name, target))


@snapshot.command("rm")
def remove_snapshot(checkpoint: Checkpoint, name: Name) -> None:
    """Remove a snapshot, also one that is not whole."""
    from millrace_jobs.run.snapshots import removed

    typer.echo(removed(checkpoint, name))


@snapshot.command("prune")
def prune_snapshots(
    checkpoint: Checkpoint,
    keep: Annotated[int, typer.Option(help="How many of the newest to keep.", min=0, show_default=False)],
    older_than: Annotated[
        str | None, typer.Option(help="Remove only those older than this, such as 12h or 7d.", show_default=False)
    ] = None,
) -> None:
    """Remove all snapshots but the newest."""
    from millrace_jobs.run.snapshots import pruned

    for line in pruned(checkpoint, keep, older_than):
        typer.echo(line)
