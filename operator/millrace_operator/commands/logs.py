"""``millrace logs``: the logs of a query's driver or executors."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import Context, Kubeconfig, Name, Namespace, connected


def logs(
    name: Name,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes.")] = False,
    executors: Annotated[bool, typer.Option("--executors", help="Of all executors that there are now.")] = False,
    tail: Annotated[int | None, typer.Option(help="Only so many last lines.", min=0)] = None,
    previous: Annotated[bool, typer.Option("--previous", help="Of the container before its last restart.")] = False,
    since: Annotated[str | None, typer.Option(help="Only of a time such as 30s, 5m or 2h until now.")] = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Print the log of a query's driver, or those of its executors."""
    from ..kube.logs import Excerpt
    from .log_printing import print_logs, seconds

    excerpt = Excerpt(follow, tail, None if since is None else seconds(since), previous)
    print_logs(connected(namespace, context, kubeconfig), name, excerpt, executors=executors)
