"""Waiting until the operator reports what was asked for."""

from __future__ import annotations

import time
from collections.abc import Callable

import typer

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_api.model.status import ConditionStatus, ConditionType, Phase

from ..kube.cluster import Cluster
from ..kube.user_queries import UserQueries
from .query_view import QueryView
from .wording import printable

_PAUSE = 1.0

Reached = Callable[[QueryView], bool]


def is_suspended(asked: QueryView) -> Reached:
    """Whether a query is suspended as it was ``asked``."""
    return lambda view: _observed(view, asked) and view.status.phase is Phase.SUSPENDED


def is_restarted(asked: QueryView) -> Reached:
    """Whether a query runs, with a driver that started after it was ``asked`` to."""
    old = asked.status.driver.start_time if asked.status.driver is not None else None

    def reached(view: QueryView) -> bool:
        ready, driver = view.condition(ConditionType.READY), view.status.driver
        if not _observed(view, asked) or ready is None or driver is None:
            return False
        return ready.status is ConditionStatus.TRUE and driver.start_time not in (None, old)

    return reached


def is_scaled(asked: QueryView, executors: int) -> Reached:
    """Whether the job has applied a plan of so many executors."""

    def reached(view: QueryView) -> bool:
        plan = view.status.plan
        if not _observed(view, asked) or plan is None or plan.executors != executors:
            return False
        return _is_applied(view)

    return reached


def is_running(view: QueryView) -> bool:
    """Whether a query runs as its spec is now, and the job has applied its plan."""
    return not view.pending and view.status.phase is Phase.RUNNING and _is_applied(view)


def wait_until(cluster: Cluster, name: str, what: str, reached: Reached, seconds: float) -> None:
    """Wait until it is so, and say so. Raises MillraceError as ``look_until`` does."""
    typer.echo(f"done:   {name} {_progress(look_until(cluster, name, what, reached, seconds))}")


def look_until(cluster: Cluster, name: str, what: str, reached: Reached, seconds: float) -> QueryView:
    """Look once a second, also where the server is away for a while, until it is so; how the query is then.

    Raises:
        MillraceError: it was not so in time, or there is no such query any more.
    """
    queries, deadline, seen = UserQueries(cluster), time.monotonic() + seconds, "nothing was seen of it"
    while True:
        try:
            view = QueryView(queries.get(name))
            if reached(view):
                return view
            seen = f"it has {_progress(view)}"
        except TransientError as error:
            seen = str(error)
        if time.monotonic() + _PAUSE > deadline:
            hint = f"millrace status {name} says how it goes on; --timeout waits longer"
            raise MillraceError(Problem(f"waited {seconds:g} s for {name} {what}: {seen}", hint))
        time.sleep(_PAUSE)


def _observed(view: QueryView, asked: QueryView) -> bool:
    """Whether the operator has seen the change."""
    return (view.status.observed_generation or 0) >= asked.generation


def _is_applied(view: QueryView) -> bool:
    """Whether the job is under its plan."""
    plan = view.status.plan
    return plan is not None and plan.applied_epoch is not None and plan.applied_epoch >= plan.epoch


def _progress(view: QueryView) -> str:
    ready, plan = view.condition(ConditionType.READY), view.status.plan
    text = f"phase {view.phase}"
    if ready is not None:
        text += f", Ready {ready.status} ({ready.reason}{': ' if ready.message else ''}{printable(ready.message)})"
    if plan is not None:
        applied = "none" if plan.applied_epoch is None else f"{plan.applied_epoch}"
        text += f", a plan of {plan.executors} executors (epoch {plan.epoch}, applied {applied})"
    if view.pending:
        text += "; the operator has not seen the change"
    return text
