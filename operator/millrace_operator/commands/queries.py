"""Commands about queries on a cluster: ``millrace status | top | logs | pause | resume | suspend | restart | scale``.

Only their options are here. The code behind them is imported when one runs, because its libraries take long to load.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace_api.errors import MillraceError, Problem
from millrace_support.query_targets import Context, Kubeconfig, Namespace

if TYPE_CHECKING:
    from .cluster import Cluster

Name = Annotated[str, typer.Argument(help="Name of a StreamQuery.", show_default=False)]
Everywhere = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Show the queries of all namespaces.")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until the change is carried out.")]
Timeout = Annotated[float, typer.Option(help="Seconds to wait.")]

_WAIT_SECONDS = 300.0


class StatusFormat(StrEnum):
    """Output format of ``millrace status``."""

    TABLE = "table"
    JSON = "json"


def connected(namespace: str | None, context: str | None, kubeconfig: Path | None) -> Cluster:
    """Connect to the cluster that the options select."""
    from .cluster import connect

    return connect(kubeconfig, context, namespace)


def status(
    name: Annotated[str | None, typer.Argument(help="Name of a StreamQuery; without it, all.", show_default=False)] = (
        None
    ),
    format: Annotated[StatusFormat, typer.Option(help="table, or json.")] = StatusFormat.TABLE,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the query runs and has applied its plan.")] = False,
    timeout: Timeout = _WAIT_SECONDS,
    everywhere: Everywhere = False,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show the phase, plan, load and scaling of a query on the cluster, and the conditions that indicate a problem."""
    from .changes import is_running, wait_until
    from .status_screen import show_all, show_one

    if name is not None and everywhere:
        raise MillraceError(Problem("-A is for all queries, and NAME for one", "leave one of them out"))
    if name is None and wait:
        raise MillraceError(Problem("--wait is for one query", "write its NAME"))
    cluster = connected(namespace, context, kubeconfig)
    as_json = format is StatusFormat.JSON
    if name is not None:
        if wait:
            wait_until(cluster, name, "to run on its plan", is_running, timeout)
        show_one(cluster, name, as_json=as_json)
    else:
        show_all(cluster, everywhere=everywhere, as_json=as_json)


def top(
    everywhere: Everywhere = False,
    once: Annotated[bool, typer.Option("--once", help="Print the table once and exit.")] = False,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show all queries with their load, the busiest first, until q or Ctrl-C is pressed."""
    from .formatting import console
    from .status_screen import show_all
    from .top_screen import show_live

    cluster = connected(namespace, context, kubeconfig)
    if once or not console().is_terminal:
        show_all(cluster, everywhere=everywhere, as_json=False)
    else:
        show_live(cluster, everywhere=everywhere)


def logs(
    name: Name,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing lines as they are written.")] = False,
    executors: Annotated[bool, typer.Option("--executors", help="Print the logs of all current executors.")] = False,
    tail: Annotated[int | None, typer.Option(help="Print only this many of the last lines.", min=0)] = None,
    previous: Annotated[
        bool, typer.Option("--previous", help="Print the log of the container before its last restart.")
    ] = False,
    since: Annotated[str | None, typer.Option(help="Print only lines newer than this, such as 30s, 5m or 2h.")] = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Print the log of a query's driver, or those of its executors."""
    from .pod_logs import Excerpt, print_logs, seconds

    excerpt = Excerpt(follow, tail, None if since is None else seconds(since), previous)
    print_logs(connected(namespace, context, kubeconfig), name, excerpt, executors=executors)


def pause(
    name: Name,
    scale_in: Annotated[bool, typer.Option("--scale-in", help="Pause only scaling in.")] = False,
    scale_out: Annotated[bool, typer.Option("--scale-out", help="Pause only scaling out.")] = False,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Stop the operator from changing a query, or only from scaling it in or out; the job continues."""
    from . import changes

    changes.pause(connected(namespace, context, kubeconfig), name, scale_in=scale_in, scale_out=scale_out)


def resume(name: Name, namespace: Namespace = None, context: Context = None, kubeconfig: Kubeconfig = None) -> None:
    """Remove all pauses of a query, and run it again if it is suspended."""
    from . import changes

    changes.resume(connected(namespace, context, kubeconfig), name)


def suspend(
    name: Name,
    wait: Wait = False,
    timeout: Timeout = _WAIT_SECONDS,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Stop a query after its running batch; resume continues from there."""
    from . import changes

    changes.suspend(connected(namespace, context, kubeconfig), name, timeout if wait else None)


def restart(
    name: Name,
    wait: Wait = False,
    timeout: Timeout = _WAIT_SECONDS,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Stop a query's driver after its running batch, and start a new one."""
    from . import changes

    changes.restart(connected(namespace, context, kubeconfig), name, timeout if wait else None)


def scale(
    name: Name,
    executors: Annotated[int, typer.Option(help="Number of executors.", show_default=False)],
    wait: Wait = False,
    timeout: Timeout = _WAIT_SECONDS,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Set the number of executors of a query, like kubectl scale."""
    from . import changes

    changes.scale(connected(namespace, context, kubeconfig), name, executors, timeout if wait else None)
