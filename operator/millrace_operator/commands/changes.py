"""User changes of a query; each prints the changed field before and after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.annotations import PAUSED, PAUSED_SCALE_IN, PAUSED_SCALE_OUT
from millrace_api.model.streamquery import QueryState

from ..kube.cluster import Cluster
from ..kube.user_queries import UserQueries
from .query_view import PAUSES, QueryView

_Said = Callable[[QueryView], str]


def pause(cluster: Cluster, name: str, *, scale_in: bool, scale_out: bool) -> QueryView:
    """Pause everything, or only scale-in or scale-out; other pauses stay."""
    names = [PAUSED_SCALE_IN] * scale_in + [PAUSED_SCALE_OUT] * scale_out or [PAUSED]
    return _changed(cluster, name, {"metadata": {"annotations": dict.fromkeys(names, "true")}}, _paused)


def resume(cluster: Cluster, name: str) -> QueryView:
    """Remove all pauses, and run the query again if it is suspended."""
    view = QueryView(UserQueries(cluster).get(name))
    patch: dict[str, Any] = {"metadata": {"annotations": dict.fromkeys(PAUSES)}}
    if view.state is QueryState.SUSPENDED:
        patch["spec"] = {"state": QueryState.RUNNING.value}
    return _changed(cluster, name, patch, lambda view: f"{_paused(view)}, {_state(view)}")


def suspend(cluster: Cluster, name: str) -> QueryView:
    """Set the desired state of a query to suspended."""
    return _changed(cluster, name, {"spec": {"state": QueryState.SUSPENDED.value}}, _state)


def restart(cluster: Cluster, name: str) -> QueryView:
    """Request a restart of a query.

    Raises:
        MillraceError: if the query is suspended.
    """
    queries = UserQueries(cluster)
    before = QueryView(queries.get(name))
    if before.state is QueryState.SUSPENDED:
        raise MillraceError(Problem(f"{name} is suspended, so nothing can be restarted", f"millrace resume {name}"))
    return _say(before, QueryView(queries.restart(name)), _nonce)


def scale(cluster: Cluster, name: str, executors: int) -> QueryView:
    """Set the initial number of executors of a query."""
    queries = UserQueries(cluster)
    before = QueryView(queries.get(name))
    queries.scale(name, executors)
    return _say(before, QueryView(queries.get(name)), _executors)


def _changed(cluster: Cluster, name: str, patch: dict[str, Any], said: _Said) -> QueryView:
    queries = UserQueries(cluster)
    before = QueryView(queries.get(name))
    return _say(before, QueryView(queries.change(name, patch)), said)


def _say(before: QueryView, after: QueryView, said: _Said) -> QueryView:
    typer.echo(f"before: {before.name} {said(before)}")
    typer.echo(f"now:    {after.name} {said(after)}")
    return after


def _paused(view: QueryView) -> str:
    return f"paused: {', '.join(view.pauses)}" if view.pauses else "not paused"


def _state(view: QueryView) -> str:
    return f"spec.state {view.state}, phase {view.phase}"


def _nonce(view: QueryView) -> str:
    return f"spec.restartNonce {view.body['spec'].get('restartNonce', 'not set')}"


def _executors(view: QueryView) -> str:
    plan = view.status.plan
    runs = "no plan yet" if plan is None else f"the plan has {plan.executors}"
    return f"spec.executors.initial {view.body['spec']['executors']['initial']}, {runs}"
