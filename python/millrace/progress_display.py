"""Progress of a run in a terminal or a notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn


@contextmanager
def shown_progress(name: str, line: Callable[[], str], wanted: bool | None) -> Iterator[Callable[[], None]]:
    """Show a bar while the block runs, which the function that it gets brings up to date.

    Args:
        name: name of the query.
        line: returns the state of the run.
        wanted: whether to show it; None if there is a terminal or a notebook.
    """
    console = Console()
    shown = (console.is_terminal or console.is_jupyter) if wanted is None else wanted
    columns = (TextColumn("{task.fields[name]}"), BarColumn(20), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, disable=not shown) as progress:
        bar = progress.add_task(line(), total=None, name=name)
        yield lambda: progress.update(bar, description=line())
