"""The commands of research on the command line of the whole product.

Every start of ``millrace`` loads the modules of the commands, so these import what they need when they run.
"""

from __future__ import annotations

import typer

from millrace_support.help_groups import PLANNING, AllMissingOptions

from .arena.command import simulate
from .comparison.command import partitioners
from .flows.command import app as flow


def add_to(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    bench = typer.Typer(help="Compare partitioners on recorded streams.", no_args_is_help=True, rich_markup_mode=None)
    bench.command(cls=AllMissingOptions)(partitioners)
    app.add_typer(bench, name="bench", rich_help_panel=PLANNING)
    app.add_typer(flow, name="flow", rich_help_panel=PLANNING)
    app.command(rich_help_panel=PLANNING)(simulate)
