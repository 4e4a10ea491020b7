"""Commands of the operator package: the operator, and what users type about queries on a cluster.

It may import any package of the operator; only the command line imports it.
"""

from __future__ import annotations

import typer

from . import diff, explain, get, model, operator, queries, uninstall


def add_to(app: typer.Typer) -> None:
    """Add the commands to the command line of the whole product."""
    app.add_typer(model.app, name="model")
    app.command()(operator.operator)
    app.command(hidden=True)(uninstall.check_uninstall)
    explain.extend_explain(app)
    get.extend_get(app)
    for command in (
        queries.status,
        diff.diff,
        queries.top,
        queries.logs,
        queries.pause,
        queries.resume,
        queries.suspend,
        queries.restart,
        queries.scale,
    ):
        app.command()(command)
