"""The commands' console, and numbers, ages and texts as they print them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text

from millrace_support.terminal_texts import count_text, printable

_WIDE = 160
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


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


def count(number: float | None) -> str:
    """Format a count as ``count_text`` does; ``-`` if it is unknown."""
    return "-" if number is None else count_text(number)


def figure(number: float | None) -> str:
    """Format a number with two decimals; ``-`` if it is unknown."""
    return "-" if number is None else f"{number:.2f}"


def age(time: str | None, now: datetime) -> str:
    """Format the age of a Kubernetes timestamp in its largest unit: ``12 s``, ``5 min``, ``3 h``, ``2 d``."""
    if time is None:
        return "-"
    try:
        seconds = max((now - datetime.fromisoformat(time)).total_seconds(), 0.0)
    except (TypeError, ValueError):
        return "-"
    for length, unit in _UNITS:
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def ago(time: str | None, now: datetime) -> str:
    """Format the age of a Kubernetes timestamp as the end of a sentence: ``5 min ago``."""
    passed = age(time, now)
    return "at an unknown time" if passed == "-" else f"{passed} ago"


def one_line(text: str) -> str:
    """Return a text of the cluster on one line, with control characters escaped for the terminal."""
    return printable(" ".join(text.split()))
