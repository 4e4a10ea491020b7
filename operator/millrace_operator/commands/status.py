"""``millrace status``: how a query is, or all of them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from .options import Context, Everywhere, Kubeconfig, Namespace, connected


class StatusFormat(StrEnum):
    """How ``status`` prints."""

    TABLE = "table"
    JSON = "json"


def status(
    name: Annotated[str | None, typer.Argument(help="Name of a StreamQuery; without it, all.", show_default=False)] = (
        None
    ),
    format: Annotated[StatusFormat, typer.Option(help="table, or json.")] = StatusFormat.TABLE,
    everywhere: Everywhere = False,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Say how a query on the cluster is: its phase, plan, load and scaling, and what is not in order."""
    from millrace_api.errors import MillraceError, Problem

    from .status_screen import show_all, show_one

    if name is not None and everywhere:
        raise MillraceError(Problem("-A is for all queries, and NAME for one", "leave one of them out"))
    cluster = connected(namespace, context, kubeconfig)
    as_json = format is StatusFormat.JSON
    if name is not None:
        show_one(cluster, name, as_json=as_json)
    else:
        show_all(cluster, everywhere=everywhere, as_json=as_json)
