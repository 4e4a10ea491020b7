"""``millrace top``: a live table of all queries."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import Context, Everywhere, Kubeconfig, Namespace, connected


def top(
    everywhere: Everywhere = False,
    once: Annotated[bool, typer.Option("--once", help="Print the table once, and end.")] = False,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show all queries with their load, the busiest first, until q or Ctrl-C is pressed."""
    from .status_screen import console, show_all
    from .top_screen import show_live

    cluster = connected(namespace, context, kubeconfig)
    if once or not console().is_terminal:
        show_all(cluster, everywhere=everywhere, as_json=False)
    else:
        show_live(cluster, everywhere=everywhere)
