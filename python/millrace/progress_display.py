"""Progress of a run in a terminal or a notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

_RUNNING = "<progress></progress> "
"""A bar that moves in every browser, without a script."""


@contextmanager
def shown_progress(name: str, line: Callable[[], str], wanted: bool | None) -> Iterator[Callable[[], None]]:
    """Show a bar while the block runs, which the function that it gets brings up to date.

    Args:
        name: name of the query.
        line: returns the state of the run.
        wanted: whether to show it; None if there is a terminal or a notebook.
    """
    console = Console()
    if console.is_jupyter and wanted is not False:
        with _shown_in_notebook(name, line) as show:
            yield show
        return
    shown = console.is_terminal if wanted is None else wanted
    columns = (TextColumn("{task.fields[name]}"), BarColumn(20), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, disable=not shown) as progress:
        bar = progress.add_task(line(), total=None, name=name)
        yield lambda: progress.update(bar, description=line())


@contextmanager
def _shown_in_notebook(name: str, line: Callable[[], str]) -> Iterator[Callable[[], None]]:
    """Show a bar of HTML. Rich's own bar needs ipywidgets, and warns where a notebook does not have it."""
    from IPython.display import HTML, display, update_display

    def state(bar: str) -> HTML:
        return HTML(f"{bar}<b>{escape(name)}</b> {escape(line())}")

    place = display(state(_RUNNING), display_id=True).display_id
    try:
        yield lambda: update_display(state(_RUNNING), display_id=place)
    finally:
        update_display(state(""), display_id=place)
