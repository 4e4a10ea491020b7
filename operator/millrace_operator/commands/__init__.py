"""Commands of the operator package: the operator, and what users type about queries on a cluster.

It may import any package of the operator; only the command line imports it.
"""

from __future__ import annotations

import typer

from millrace_support.help_groups import ADMINISTRATION, CLUSTER, PLANNING
from millrace_support.query_targets import on_cluster

from . import by_name, diff, model, operator, queries, uninstall


def add_to(app: typer.Typer) -> None:
    """Add the commands to the command line of the whole product."""
    app.add_typer(model.app, name="model", rich_help_panel=PLANNING)
    app.command(rich_help_panel=ADMINISTRATION)(operator.operator)
    app.command(hidden=True)(uninstall.check_uninstall)
    on_cluster.update(explain=by_name.explain, get=by_name.get, report=by_name.report)
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
        app.command(rich_help_panel=CLUSTER)(command)
