"""What the operator's package adds to the command line: ``millrace model`` and ``millrace simulate``."""

from __future__ import annotations

import typer

from . import model, simulate


def add_to(app: typer.Typer) -> None:
    """Add the commands to the command line of the whole product."""
    app.add_typer(model.app, name="model")
    app.command()(simulate.simulate)
