"""What the user sees of a run: one interface, live in a terminal, and plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from rich.console import Console

from millrace_jobs.display.live import LiveDisplay
from millrace_jobs.display.plain import PlainDisplay
from millrace_jobs.display.summary import Summary
from millrace_jobs.pipeline.progress import BatchReport


class Display(Protocol):
    """Shows a run; may be called from any thread."""

    def starting(self, step: str) -> None:
        """The run prepares for its first batch; ``step`` is what it does now."""
        ...

    def started(self, facts: Mapping[str, str]) -> None:
        """The run begins; ``facts`` are worth knowing from the start, such as where its metrics are."""
        ...

    def batch(self, report: BatchReport) -> None:
        """A batch has been finished."""
        ...

    def message(self, text: str) -> None:
        """Something the user should know has happened."""
        ...

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Results for the terminal; each row has one value per column."""
        ...

    def finished(self, summary: Summary) -> None:
        """The run has ended, well or not."""
        ...

    def close(self) -> None:
        """Give the terminal back as it was; ``finished`` does so too, and a second call does nothing."""
        ...


def display_for(console: Console, name: str) -> Display:
    """The display of query ``name``: live where the console is a terminal that can move its cursor."""
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveDisplay(console, name)
    return PlainDisplay(console, name)
