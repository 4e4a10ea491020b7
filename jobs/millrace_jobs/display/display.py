"""The interface of the displays of a run: live in a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from rich.console import Console

from millrace_jobs.display.live import LiveDisplay
from millrace_jobs.display.plain import PlainDisplay
from millrace_jobs.display.summary import Summary
from millrace_jobs.pipeline.progress import BatchReport


class Display(Protocol):
    """A display of a run; its methods may be called from any thread."""

    def starting(self, step: str) -> None:
        """Show the current step of the preparation for the first batch."""
        ...

    def started(self, facts: Mapping[str, str]) -> None:
        """Show the start of the run, with facts such as the address of its metrics."""
        ...

    def batch(self, report: BatchReport) -> None:
        """Show a finished batch."""
        ...

    def message(self, text: str) -> None:
        """Show a message to the user."""
        ...

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Show results; each row has one value per column."""
        ...

    def finished(self, summary: Summary) -> None:
        """Show the summary of a run that has ended or failed."""
        ...

    def close(self) -> None:
        """Restore the terminal; ``finished`` does so too, and a second call does nothing."""
        ...


def display_for(console: Console, name: str) -> Display:
    """Return the display of query ``name``: live if the console is a terminal that can move its cursor, else plain."""
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveDisplay(console, name)
    return PlainDisplay(console, name)
