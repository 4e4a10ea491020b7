"""Screen of ``millrace top``: a table of all queries that is redrawn while they change."""

from __future__ import annotations

import os
import select
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from ..lifecycle.query_facts import one_line
from .cluster import Cluster
from .formatting import console
from .status_screen import queries_table
from .user_queries import WatchedQueries


def show_live(cluster: Cluster, *, everywhere: bool) -> None:
    """Show the table full screen until the user presses q or Ctrl-C.

    Raises:
        MillraceError: if the server is unreachable at the start, or refuses the request.
    """
    queries = WatchedQueries(cluster, everywhere=everywhere)
    where = "all namespaces" if everywhere else f"namespace {cluster.namespace}"

    def render() -> RenderableType:
        return picture(queries, f"{cluster.context}, {where}", datetime.now(UTC), everywhere=everywhere)

    queries.start()
    try:
        with _keys(), Live(console=console(), get_renderable=render, screen=True):
            _wait_for_q()
    except KeyboardInterrupt:
        pass
    finally:
        queries.stop()


def picture(queries: WatchedQueries, where: str, now: datetime, *, everywhere: bool) -> RenderableType:
    """Return the table under a line that says what is shown, and whether it is up to date."""
    views = queries.items
    head = Text.assemble(
        (where, "bold"), f"  {len(views)} quer{'y' if len(views) == 1 else 'ies'}  {now:%H:%M:%S}Z  q quits"
    )
    parts: list[RenderableType] = [head]
    if queries.problem:
        parts.append(Text(f"not up to date: {one_line(queries.problem)}", "bold red"))
    parts.append(queries_table(views, now, everywhere=everywhere))
    return Group(*parts)


@contextmanager
def _keys() -> Iterator[None]:
    """Read single keys without Enter and without echo."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _wait_for_q() -> None:
    if not sys.stdin.isatty():
        threading.Event().wait()
    while True:
        select.select([sys.stdin], [], [])
        if os.read(sys.stdin.fileno(), 1) in (b"q", b"Q", b""):
            return
