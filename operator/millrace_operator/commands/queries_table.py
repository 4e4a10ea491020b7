"""Table with one query per line, for ``millrace top`` and for ``millrace status`` without a name."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from rich import box
from rich.table import Table
from rich.text import Text

from .query_view import QueryView
from .wording import age, count, figure, printable

_LEFT = ("phase", "algo-\nrithm", "plan")
_RIGHT = ("W", "records\n/s", "lag", "re-\nstarts")


def queries_table(views: Iterable[QueryView], now: datetime, *, everywhere: bool) -> Table:
    """Return a table of queries, highest utilization W first; ``everywhere`` puts the namespace before the name."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=0, pad_edge=False)
    table.add_column("query", overflow="fold")  # only this and the last column may wrap on a narrow terminal
    for name in _LEFT + _RIGHT:
        table.add_column(name, justify="left" if name in _LEFT else "right", no_wrap=True)
    table.add_column("last decision")
    for view in sorted(views, key=_order):
        cells = (f"{view.namespace}/{view.name}" if everywhere else view.name, *_cells(view, now))
        table.add_row(*(Text(printable(cell)) for cell in cells))
    return table


def _order(view: QueryView) -> tuple[float, str, str]:
    load = view.status.load
    busy = load.utilization if load is not None and load.utilization is not None else -1.0
    return -busy, view.namespace, view.name


def _cells(view: QueryView, now: datetime) -> tuple[str, ...]:
    status = view.status
    plan, load, last, driver = status.plan, status.load, status.last_scaling, status.driver
    return (
        view.phase,
        "-" if plan is None else plan.algorithm.value,
        "-" if plan is None else f"{plan.executors}/{plan.parallelism}/{plan.replicas}",
        figure(load.utilization if load else None),
        count(load.input_rate if load else None),
        count(load.lag if load else None),
        "-" if driver is None else str(driver.restarts),
        "-" if last is None else f"{age(last.time, now)}: {last.reason}",
    )
