"""``millrace get`` for queries on a cluster; the jobs package implements the part for runs on this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from millrace_support.lookup_options import After, AnswerFormat, AtTime, Keys, Limit, Prefix, WindowStart

from .explain import ConnectionFiles, is_file, mentioning_file, refuse_options
from .queries import Context, Kubeconfig, Namespace, connected


def extend_get(app: typer.Typer) -> None:
    """Extend the existing ``get`` command to also accept the name of a query on the cluster."""
    (command,) = (each for each in app.registered_commands if getattr(each.callback, "__name__", "") == "get")
    of_run = command.callback
    assert of_run is not None
    command.callback = _either(of_run)


def _either(of_run: Callable[..., None]) -> Callable[..., None]:
    def get(
        target: Annotated[
            str,
            typer.Argument(
                help="Name of a StreamQuery on the cluster; the YAML file of one that runs on this machine; or a URL.",
                show_default=False,
            ),
        ],
        keys: Keys = None,
        prefix: Prefix = False,
        window: WindowStart = None,
        at: AtTime = None,
        limit: Limit = None,
        after: After = None,
        format: AnswerFormat = "table",
        query: Annotated[str | None, typer.Option(help="Name of the query, where the file has several.")] = None,
        connections: ConnectionFiles = None,
        namespace: Namespace = None,
        context: Context = None,
        kubeconfig: Kubeconfig = None,
    ) -> None:
        """Look up rows of a running query's result table, as of a committed batch.

        Without KEY, show the first rows in the order of keys. Exit with status 1 if a KEY has no row.
        """
        on_cluster = {"--namespace": namespace, "--context": context, "--kubeconfig": kubeconfig}
        if is_file(target):
            is_url = target.startswith(("http://", "https://"))
            refuse_options(target, "is a URL" if is_url else "is a file", on_cluster)
            of_run(target, keys, prefix, window, at, limit, after, format, query, connections)
            return
        from millrace_support.lookups import Lookup, show_answer

        from .pod_lookups import look_up_in_pod

        refuse_options(
            target, "is the name of a query on the cluster", {"--query": query, "--connections": connections}
        )
        lookup = Lookup(keys or (), prefix, window, at, limit, after)
        with mentioning_file(target, on_cluster):
            cluster = connected(namespace, context, kubeconfig)
        answer = look_up_in_pod(cluster, target, lookup)
        if not show_answer(answer, lookup, as_json=format == "json"):
            raise typer.Exit(1)

    return get
