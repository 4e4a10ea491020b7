"""Output of ``millrace status``: one query in full, or a table with one query per line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import typer
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from millrace_api.model.status import ConditionStatus, ConditionType, Phase

from ..lifecycle.query_facts import age, count, figure, one_line, query_facts
from ..lifecycle.query_view import QueryView
from .cluster import Cluster
from .formatting import console, facts_table
from .user_queries import UserQueries

_STYLES = {Phase.RUNNING: "green", Phase.FAILED: "bold red", Phase.SUSPENDED: "dim"}


def show_one(cluster: Cluster, name: str, *, as_json: bool) -> None:
    """Print the status of one query."""
    view = UserQueries(cluster).get(name)
    if as_json:
        typer.echo(json.dumps(_document(view), indent=2))
    else:
        console().print(screen(view, datetime.now(UTC)))


def show_all(cluster: Cluster, *, everywhere: bool, as_json: bool) -> None:
    """Print one line per query."""
    views, _ = UserQueries(cluster).all(everywhere=everywhere)
    if as_json:
        typer.echo(json.dumps([_document(view) for view in views], indent=2))
    elif views:
        console().print(queries_table(views, datetime.now(UTC), everywhere=everywhere))
    else:
        typer.echo(f"no queries in {'any namespace' if everywhere else f'namespace {cluster.namespace}'}")


def screen(view: QueryView, now: datetime) -> RenderableType:
    """Return the status of one query as one screen."""
    head = Text.assemble(
        (view.name, "bold"), " ", (view.phase, _STYLES.get(view.status.phase or Phase.PENDING, "yellow"))
    )
    return Group(head, facts_table(query_facts(view, now)))


def _document(view: QueryView) -> dict[str, Any]:
    return {
        "name": view.name,
        "namespace": view.namespace,
        "generation": view.generation,
        "paused": view.pauses,
        "status": view.body.get("status", {}),
    }


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
        table.add_row(*(Text(one_line(cell)) for cell in cells))
    return table


def _order(view: QueryView) -> tuple[float, str, str]:
    load = view.status.load
    busy = load.utilization if load is not None and load.utilization is not None else -1.0
    return -busy, view.namespace, view.name


def _cells(view: QueryView, now: datetime) -> tuple[str, ...]:
    status = view.status
    plan, load, driver = status.plan, status.load, status.driver
    return (
        view.phase,
        "-" if plan is None else plan.algorithm.value,
        "-" if plan is None else plan.shape,
        figure(load.utilization if load else None),
        count(load.input_rate if load else None),
        count(load.lag if load else None),
        "-" if driver is None else str(driver.restarts),
        _decided(view, now),
    )


def _decided(view: QueryView, now: datetime) -> str:
    """Return the last decision, after what keeps more executors from helping."""
    last, ineffective = view.status.last_scaling, view.condition(ConditionType.SCALING_INEFFECTIVE)
    decided = "-" if last is None else f"{age(last.time, now)}: {last.reason}"
    is_futile = ineffective is not None and ineffective.status is ConditionStatus.TRUE
    return f"{ineffective.reason}; {decided}" if ineffective is not None and is_futile else decided
