"""The commands' console, and how they print facts."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..lifecycle.query_facts import one_line

_WIDE = 160


def console() -> Console:
    """Return the console of the commands; if it is not a terminal, it has no colors and wide lines."""
    found = Console(highlight=False, emoji=False)
    if not found.is_terminal:
        found.width = _WIDE
    return found


def facts_table(facts: Iterable[tuple[str, str]]) -> Table:
    """Return a table with one line per fact: its name, and its text with control characters escaped."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in facts:
        table.add_row(name, Text(one_line(text)))
    return table
