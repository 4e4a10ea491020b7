"""Changes that a user makes to a query: each prints the field before and after, and can wait until it is done."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import typer

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_api.model.status import ConditionStatus, ConditionType, Phase
from millrace_api.model.streamquery import Annotation

from ..lifecycle.query_facts import one_line
from ..lifecycle.query_view import PAUSES, QueryView
from .cluster import Cluster
from .user_queries import UserQueries

_POLL_SECONDS = 1.0

Reached = Callable[[QueryView], bool]
"""Condition of a query to wait for."""


def pause(cluster: Cluster, name: str, *, scale_in: bool, scale_out: bool) -> None:
    """Pause everything, or only scale-in or scale-out; other pauses stay."""
    queries = UserQueries(cluster)
    names = [Annotation.PAUSED_SCALE_IN] * scale_in + [Annotation.PAUSED_SCALE_OUT] * scale_out or [Annotation.PAUSED]
    before = queries.get(name)
    after = queries.change(name, {"metadata": {"annotations": dict.fromkeys(names, "true")}})
    _print(before, after, _paused)


def resume(cluster: Cluster, name: str) -> None:
    """Remove all pauses, and run the query again if it is suspended."""
    queries = UserQueries(cluster)
    before = queries.get(name)
    patch: dict[str, Any] = {"metadata": {"annotations": dict.fromkeys(PAUSES)}}
    if before.is_suspended:
        patch["spec"] = {"suspend": False}
    _print(before, queries.change(name, patch), lambda query: f"{_paused(query)}, {_suspended(query)}")


def suspend(cluster: Cluster, name: str, wait_seconds: float | None) -> None:
    """Suspend a query; with ``wait_seconds``, wait until it is.

    Raises:
        MillraceError: the query is not suspended within ``wait_seconds``.
    """
    queries = UserQueries(cluster)
    before = queries.get(name)
    after = queries.change(name, {"spec": {"suspend": True}})
    _print(before, after, _suspended)
    if wait_seconds is not None:
        _print_done(cluster, name, "to be suspended", _is_suspended(after), wait_seconds)


def restart(cluster: Cluster, name: str, wait_seconds: float | None) -> None:
    """Request a restart of a query; with ``wait_seconds``, wait until a new driver is ready.

    Raises:
        MillraceError: the query is suspended, or no new driver is ready within ``wait_seconds``.
    """
    queries = UserQueries(cluster)
    before = queries.get(name)
    if before.is_suspended:
        problem = f"{name} is suspended, so there is no driver to restart"
        raise MillraceError(Problem(problem, f"run millrace resume {name}"))
    after = queries.restart(name)
    _print(before, after, _nonce)
    if wait_seconds is not None:
        _print_done(cluster, name, "to run with a new driver", _is_restarted(after), wait_seconds)


def scale(cluster: Cluster, name: str, executors: int, wait_seconds: float | None) -> None:
    """Set the initial number of executors of a query; with ``wait_seconds``, wait until the job has applied it.

    Raises:
        MillraceError: that is the initial number already while the plan has another one, so that nothing would follow;
            or the job has not applied such a plan within ``wait_seconds``.
    """
    queries = UserQueries(cluster)
    before = queries.get(name)
    plan = before.status.plan
    if plan is not None and before.body["spec"]["executors"]["initial"] == executors != plan.executors:
        problem = f"spec.executors.initial of {name} is {executors} already, and its plan has {plan.executors}"
        hint = "only a change makes a plan: write another number first, or set spec.executors.max"
        raise MillraceError(Problem(problem, hint))
    queries.scale(name, executors)
    after = queries.get(name)
    _print(before, after, _executors)
    if wait_seconds is not None:
        what = f"to run on a plan of {executors} executors"
        _print_done(cluster, name, what, _is_scaled(after, executors), wait_seconds)


def is_running(query: QueryView) -> bool:
    """Return whether a query runs under its current spec and has applied its plan."""
    return not query.pending and query.status.phase is Phase.RUNNING and _is_applied(query)


def wait_until(cluster: Cluster, name: str, what: str, reached: Reached, seconds: float) -> QueryView:
    """Poll a query once a second until ``reached`` holds, and return it; transient server errors are retried.

    In a terminal, standard error gets a line each time that what is seen changes.

    Raises:
        MillraceError: ``reached`` does not hold within ``seconds``, or the query no longer exists.
    """
    queries, deadline, seen = UserQueries(cluster), time.monotonic() + seconds, "it was not observed"
    while True:
        try:
            query = queries.get(name)
            if reached(query):
                return query
            now = f"it has {_progress(query)}"
        except TransientError as error:
            now = str(error)
        if now != seen and sys.stderr.isatty():
            typer.echo(f"waiting for {name} {what}: {now}", err=True)
        seen = now
        if time.monotonic() + _POLL_SECONDS > deadline:
            hint = f"millrace status {name} shows its progress; --timeout waits longer"
            raise MillraceError(Problem(f"waited {seconds:g} s for {name} {what}: {seen}", hint))
        time.sleep(_POLL_SECONDS)


def _print(before: QueryView, after: QueryView, describe: Callable[[QueryView], str]) -> None:
    typer.echo(f"before: {before.name} {describe(before)}")
    typer.echo(f"now:    {after.name} {describe(after)}")


def _print_done(cluster: Cluster, name: str, what: str, reached: Reached, seconds: float) -> None:
    typer.echo(f"done:   {name} {_progress(wait_until(cluster, name, what, reached, seconds))}")


def _paused(query: QueryView) -> str:
    return f"paused: {', '.join(query.pauses)}" if query.pauses else "not paused"


def _suspended(query: QueryView) -> str:
    return f"spec.suspend {'true' if query.is_suspended else 'false'}, phase {query.phase}"


def _nonce(query: QueryView) -> str:
    return f"spec.restartNonce {query.body['spec'].get('restartNonce', 'not set')}"


def _executors(query: QueryView) -> str:
    plan = query.status.plan
    planned = "no plan yet" if plan is None else f"the plan has {plan.executors}"
    return f"spec.executors.initial {query.body['spec']['executors']['initial']}, {planned}"


def _is_suspended(requested: QueryView) -> Reached:
    return lambda query: _observed(query, requested) and query.status.phase is Phase.SUSPENDED


def _is_restarted(requested: QueryView) -> Reached:
    """Return a condition: the query is ready, with a driver that started after the request."""
    old = requested.status.driver.start_time if requested.status.driver is not None else None

    def reached(query: QueryView) -> bool:
        ready, driver = query.condition(ConditionType.READY), query.status.driver
        if not _observed(query, requested) or ready is None or driver is None:
            return False
        return ready.status is ConditionStatus.TRUE and driver.start_time not in (None, old)

    return reached


def _is_scaled(requested: QueryView, executors: int) -> Reached:
    """Return a condition: the job has applied a plan with ``executors`` executors."""

    def reached(query: QueryView) -> bool:
        plan = query.status.plan
        scaled = plan is not None and plan.executors == executors
        return _observed(query, requested) and scaled and _is_applied(query)

    return reached


def _observed(query: QueryView, requested: QueryView) -> bool:
    return (query.status.observed_generation or 0) >= requested.generation


def _is_applied(query: QueryView) -> bool:
    plan = query.status.plan
    return plan is not None and plan.applied_epoch is not None and plan.applied_epoch >= plan.epoch


def _progress(query: QueryView) -> str:
    ready, plan = query.condition(ConditionType.READY), query.status.plan
    text = f"phase {query.phase}"
    if ready is not None:
        text += f", Ready {ready.status} ({ready.reason}{': ' if ready.message else ''}{one_line(ready.message)})"
    if plan is not None:
        applied = "none" if plan.applied_epoch is None else f"{plan.applied_epoch}"
        text += f", a plan of {plan.executors} executors (epoch {plan.epoch}, applied {applied})"
    if query.pending:
        text += "; the operator has not seen the change"
    return text
