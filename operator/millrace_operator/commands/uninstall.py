"""``millrace check-uninstall``: what the chart's hook runs before the operator is uninstalled."""

from __future__ import annotations

from typing import Annotated

import typer

from millrace_api.errors import MillraceError, Problem
from millrace_support.query_targets import Context, Kubeconfig

from .queries import connected

_NAMED = 10
"""Number of queries that the message names."""


def check_uninstall(
    namespace: Annotated[
        list[str] | None,
        typer.Option(
            "--namespace",
            "-n",
            help="Namespace that the operator watches; repeat it for more. Default: all namespaces.",
            show_default=False,
        ),
    ] = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Fail while there are StreamQueries, which nothing can delete once their operator is gone."""
    from .user_queries import UserQueries

    asked: list[str | None] = [*namespace] if namespace else [None]
    listed = [UserQueries(connected(each, context, kubeconfig)).all(everywhere=each is None) for each in asked]
    names = sorted(f"{query.namespace}/{query.name}" for queries, _ in listed for query in queries)
    if names:
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        problem = f"StreamQueries exist, and without an operator their deletion never ends: {', '.join(names[:_NAMED])}"
        hint = (
            "delete them first; or uninstall with helm uninstall --no-hooks and install an operator again later; "
            "or keep this one: helm rollback to the last revision of helm history"
        )
        raise MillraceError(Problem(problem + more, hint))
