"""Output of ``millrace status``: one query in full, or a table with one query per line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import typer
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from millrace_api.model.deployment import Placement
from millrace_api.model.status import (
    Condition,
    ConditionStatus,
    ConditionType,
    ConnectionUpdate,
    ObservedLoad,
    Phase,
)

from .cluster import Cluster
from .formatting import age, ago, console, count, facts_table, figure, one_line
from .query_view import QueryView, change_of
from .user_queries import UserQueries

_STYLES = {Phase.RUNNING: "green", Phase.FAILED: "bold red", Phase.SUSPENDED: "dim"}
_FAILURES = 3
_UPDATES = {
    ConnectionUpdate.WAITING: "waits to follow it",
    ConnectionUpdate.REPLACING: "the driver is replaced to follow it",
    ConnectionUpdate.ROLLED_BACK: "rolled back to what it led to before",
}


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
    return Group(head, facts_table(_facts(view, now)))


def _facts(view: QueryView, now: datetime) -> Iterator[tuple[str, str]]:
    yield "namespace", view.namespace
    if view.is_readable:
        yield from _progress(view, now)
    else:
        command = f"kubectl get sq {view.name} -n {view.namespace} -o yaml"
        yield "status", f"another version of Millrace wrote it, and it cannot be read; see {command}"
    if view.pauses:
        yield "paused", ", ".join(view.pauses)
    for each in view.abnormal_conditions:
        yield each.type.value, _held(each)
    for attempt in reversed(view.status.attempts[-_FAILURES:]):
        yield "failed", f"{ago(attempt.time, now)}, {attempt.reason}: {attempt.message or 'no message'}"


def _progress(view: QueryView, now: datetime) -> Iterator[tuple[str, str]]:
    """Yield what the operator has reported and has not reported yet; only for a status that can be read."""
    status = view.status
    yield "ready", _held(view.condition(ConditionType.READY))
    yield "plan", _plan(view)
    yield "load", _load(status.load, now)
    yield "scaling", _scaling(view, now)
    yield "driver", _driver(view, now)
    if (pods := status.partitioner) is not None:
        yield "replicas", f"{pods.ready} of {pods.replicas} ready, {_many(pods.restarts, 'restart')}"
    for connection in status.connections:
        update = "" if connection.update is None else f"; {_UPDATES[connection.update]}"
        leads = f"{connection.name}, generation {connection.generation}: Kafka at {connection.brokers}"
        yield "connection", f"{leads}{update}"
    if status.chain is not None:
        yield "chain", status.chain.order
        for each in status.chain.upstream:
            yield "upstream", f"{each.name}, {each.phase or 'new'}; source {each.source} reads {each.reads}"
    if view.pending:
        seen = status.observed_generation
        observed = "no generation yet" if seen is None else f"generation {seen} of {view.generation}"
        yield "spec", f"changes are pending: the operator has observed {observed}"


def _held(condition: Condition | None) -> str:
    if condition is None:
        return "not reported yet"
    holds = {ConditionStatus.TRUE: "yes", ConditionStatus.FALSE: "no", ConditionStatus.UNKNOWN: "unknown"}
    return f"{holds[condition.status]}, {condition.reason}{': ' if condition.message else ''}{condition.message}"


def _plan(view: QueryView) -> str:
    plan = view.status.plan
    if plan is None:
        return "none yet"
    shape = f"{plan.algorithm}, {_many(plan.executors, 'executor')}, parallelism {plan.parallelism}"
    applied = "none" if plan.applied_epoch is None else plan.applied_epoch
    replicas = f"{_many(plan.replicas, 'replica')}{' in pods' if plan.placement is Placement.DEDICATED else ''}"
    return f"{shape}, {replicas}; epoch {plan.epoch}, applied {applied}"


def _load(load: ObservedLoad | None, now: datetime) -> str:
    if load is None or load.utilization is None:
        return "not observed yet"
    seen = "" if load.observed_time is None else f"; {ago(load.observed_time, now)}"
    return (
        f"W {figure(load.utilization)}, {count(load.input_rate)} records/s arrive, {count(load.lag)} records wait{seen}"
    )


def _scaling(view: QueryView, now: datetime) -> str:
    last = view.status.last_scaling
    if last is None:
        return "no decision yet"
    text = f"{change_of(last)}, {last.reason}, {ago(last.time, now)}"
    if last.predicted is not None:
        observed = "not known yet" if last.observed is None else figure(last.observed)
        text += f"; W predicted {figure(last.predicted)}, observed {observed}"
    return f"{text}: {last.message}" if last.message else text


def _driver(view: QueryView, now: datetime) -> str:
    driver = view.status.driver
    if driver is None:
        return "none"
    since = "" if driver.start_time is None else f", started {ago(driver.start_time, now)}"
    return f"{driver.pod}{since}, {_many(driver.restarts, 'restart')}"


def _many(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


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
    plan, load, last, driver = status.plan, status.load, status.last_scaling, status.driver
    return (
        view.phase,
        "-" if plan is None else plan.algorithm.value,
        "-" if plan is None else plan.shape,
        figure(load.utilization if load else None),
        count(load.input_rate if load else None),
        count(load.lag if load else None),
        "-" if driver is None else str(driver.restarts),
        "-" if last is None else f"{age(last.time, now)}: {last.reason}",
    )
