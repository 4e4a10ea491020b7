"""``millrace pause | resume | suspend | restart | scale``."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import Context, Kubeconfig, Name, Namespace, Timeout, Wait, connected

_PATIENCE = 300.0


def pause(
    name: Name,
    scale_in: Annotated[bool, typer.Option("--scale-in", help="Only give back no cores.")] = False,
    scale_out: Annotated[bool, typer.Option("--scale-out", help="Only add no cores.")] = False,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Keep the operator from changing anything of a query, or from scaling it; what runs goes on."""
    from .changes import pause

    pause(connected(namespace, context, kubeconfig), name, scale_in=scale_in, scale_out=scale_out)


def resume(name: Name, namespace: Namespace = None, context: Context = None, kubeconfig: Kubeconfig = None) -> None:
    """Take back all pauses of a query, and let it run again where it is suspended."""
    from .changes import resume

    resume(connected(namespace, context, kubeconfig), name)


def suspend(
    name: Name,
    wait: Wait = False,
    timeout: Timeout = _PATIENCE,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Let a query end after its running batch; resume lets it go on from there."""
    from .changes import suspend
    from .waiting import is_suspended, wait_until

    cluster = connected(namespace, context, kubeconfig)
    changed = suspend(cluster, name)
    if wait:
        wait_until(cluster, name, "to be suspended", is_suspended(changed), timeout)


def restart(
    name: Name,
    wait: Wait = False,
    timeout: Timeout = _PATIENCE,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Let a query's driver end after its running batch, and start a new one."""
    from .changes import restart
    from .waiting import is_restarted, wait_until

    cluster = connected(namespace, context, kubeconfig)
    changed = restart(cluster, name)
    if wait:
        wait_until(cluster, name, "to run with a new driver", is_restarted(changed), timeout)


def scale(
    name: Name,
    executors: Annotated[int, typer.Option(help="Number of executors.", show_default=False)],
    wait: Wait = False,
    timeout: Timeout = _PATIENCE,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Give a query another number of executors, as kubectl scale does."""
    from .changes import scale
    from .waiting import is_scaled, wait_until

    cluster = connected(namespace, context, kubeconfig)
    changed = scale(cluster, name, executors)
    if wait:
        wait_until(cluster, name, f"to run on a plan of {executors} executors", is_scaled(changed, executors), timeout)
