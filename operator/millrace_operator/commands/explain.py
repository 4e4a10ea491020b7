"""``millrace explain`` for files and for queries on a cluster; the jobs package implements the part for files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from millrace_api.errors import MillraceError, Problem

from .queries import Context, Kubeconfig, Namespace, connected

ConnectionFiles = Annotated[
    list[Path] | None,
    typer.Option("--connections", help="YAML file with Connections that a file's query names.", show_default=False),
]


def extend_explain(app: typer.Typer) -> None:
    """Extend the existing ``explain`` command to also accept the name of a query on the cluster."""
    (command,) = (each for each in app.registered_commands if getattr(each.callback, "__name__", "") == "explain")
    of_file = command.callback
    assert of_file is not None
    command.callback = _either(of_file)


def is_file(target: str) -> bool:
    """Return whether ``target`` is a file rather than the name of a query."""
    return "/" in target or target.endswith((".yaml", ".yml", ".json")) or Path(target).is_file()


def _either(of_file: Callable[..., None]) -> Callable[..., None]:
    def explain(
        target: Annotated[
            str,
            typer.Argument(help="YAML file with a StreamQuery, or the name of one on the cluster.", show_default=False),
        ],
        plan: Annotated[Path | None, typer.Option(help="Plan file to explain the query of a file under.")] = None,
        query: Annotated[str | None, typer.Option(help="Name of the query, where the file has several.")] = None,
        connections: ConnectionFiles = None,
        debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks and what Spark prints.")] = False,
        namespace: Namespace = None,
        context: Context = None,
        kubeconfig: Kubeconfig = None,
    ) -> None:
        """Explain how a query runs, and why.

        For a file: whether the query is routed or runs natively, and why, and its plan. For a query on the cluster:
        its last scaling decision in full.
        """
        on_cluster = {"--namespace": namespace, "--context": context, "--kubeconfig": kubeconfig}
        if is_file(target):
            refuse_options(target, "is a file", on_cluster)
            of_file(Path(target), plan=plan, query=query, connections=connections, debug=debug)
            return
        from .explain_screen import explain_query

        refuse_options(
            target,
            "is the name of a query on the cluster",
            {"--plan": plan, "--query": query, "--connections": connections},
        )
        with mentioning_file(target, on_cluster):
            cluster = connected(namespace, context, kubeconfig)
        explain_query(cluster, target)

    return explain


@contextmanager
def mentioning_file(target: str, on_cluster: Mapping[str, object]) -> Iterator[None]:
    """Add to the error that there is no cluster, where none was asked for, that the target is no file either."""
    try:
        yield
    except MillraceError as error:
        if any(value is not None for value in on_cluster.values()):
            raise
        first, *more = error.problems
        what = f"{target} is a folder" if Path(target).is_dir() else f"there is no file {target}"
        message = f"{what}, and no cluster to ask for a query of this name: {first.message}"
        hint = f"write the path of a YAML file, or for a query on a cluster {first.hint.removeprefix('write ')}"
        raise MillraceError(replace(first, message=message, hint=hint), *more) from None


def refuse_options(target: str, what: str, options: Mapping[str, object]) -> None:
    """Reject options that do not apply to this kind of target. Raises MillraceError."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        hint = f"leave out {' and '.join(given)}"
        if not is_file(target):
            hint += f", or write a file's name as ./{target}"
        raise MillraceError(Problem(f"{target} {what}, to which {given[0]} does not apply", hint))
