"""``millrace status``: the status of one query or of all queries."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from .options import Context, Everywhere, Kubeconfig, Namespace, Timeout, connected


class StatusFormat(StrEnum):
    """Output format of ``millrace status``."""

    TABLE = "table"
    JSON = "json"


def status(
    name: Annotated[str | None, typer.Argument(help="Name of a StreamQuery; without it, all.", show_default=False)] = (
        None
    ),
    format: Annotated[StatusFormat, typer.Option(help="table, or json.")] = StatusFormat.TABLE,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the query runs and has applied its plan.")] = False,
    timeout: Timeout = 300.0,
    everywhere: Everywhere = False,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Say how a query on the cluster is: its phase, plan, load and scaling, and what is not in order."""
    from millrace_api.errors import MillraceError, Problem

    from .status_screen import show_all, show_one
    from .waiting import is_running, look_until

    if name is not None and everywhere:
        raise MillraceError(Problem("-A is for all queries, and NAME for one", "leave one of them out"))
    if name is None and wait:
        raise MillraceError(Problem("--wait is for one query", "write its NAME"))
    cluster = connected(namespace, context, kubeconfig)
    as_json = format is StatusFormat.JSON
    if name is not None:
        if wait:
            look_until(cluster, name, "to run on its plan", is_running, timeout)
        show_one(cluster, name, as_json=as_json)
    else:
        show_all(cluster, everywhere=everywhere, as_json=as_json)
