"""Waiting until the operator reports that a requested change is done."""

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
    """Return a condition: the query is suspended, at the generation of ``asked`` or later."""
    return lambda view: _observed(view, asked) and view.status.phase is Phase.SUSPENDED


def is_restarted(asked: QueryView) -> Reached:
    """Return a condition: the query is ready, with a driver that started after ``asked``."""
    old = asked.status.driver.start_time if asked.status.driver is not None else None

    def reached(view: QueryView) -> bool:
        ready, driver = view.condition(ConditionType.READY), view.status.driver
        if not _observed(view, asked) or ready is None or driver is None:
            return False
        return ready.status is ConditionStatus.TRUE and driver.start_time not in (None, old)

    return reached


def is_scaled(asked: QueryView, executors: int) -> Reached:
    """Return a condition: the job has applied a plan with ``executors`` executors."""

    def reached(view: QueryView) -> bool:
        plan = view.status.plan
        if not _observed(view, asked) or plan is None or plan.executors != executors:
            return False
        return _is_applied(view)

    return reached


def is_running(view: QueryView) -> bool:
    """Return whether a query runs under its current spec and has applied its plan."""
    return not view.pending and view.status.phase is Phase.RUNNING and _is_applied(view)


def wait_until(cluster: Cluster, name: str, what: str, reached: Reached, seconds: float) -> None:
    """Wait like ``look_until``, and print the progress of the query when it is done."""
    typer.echo(f"done:   {name} {_progress(look_until(cluster, name, what, reached, seconds))}")


def look_until(cluster: Cluster, name: str, what: str, reached: Reached, seconds: float) -> QueryView:
    """Poll a query once a second until ``reached`` holds, and return it; transient server errors are retried.

    Raises:
        MillraceError: if ``reached`` does not hold within ``seconds``, or the query no longer exists.
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
    """Return whether the operator has observed the change."""
    return (view.status.observed_generation or 0) >= asked.generation


def _is_applied(view: QueryView) -> bool:
    """Return whether the job has applied its plan."""
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
