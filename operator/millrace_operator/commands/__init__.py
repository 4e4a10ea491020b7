"""Commands of the operator package: models, and queries on a cluster."""

from __future__ import annotations

import typer

from ..capacity import commands as model
from . import explain, logs, operator, status, steering, top


def add_to(app: typer.Typer) -> None:
    """Add the commands to the command line of the whole product."""
    app.add_typer(model.app, name="model")
    app.command()(operator.operator)
    explain.extend_explain(app)
    for command in (
        status.status,
        top.top,
        logs.logs,
        steering.pause,
        steering.resume,
        steering.suspend,
        steering.restart,
        steering.scale,
    ):
        app.command()(command)
