"""Targets of ``millrace explain``, ``get`` and ``report``: a file, or a query on a cluster, each with its options.

It imports only what the command line has loaded already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from millrace_api.errors import MillraceError, Problem

ConnectionFiles = Annotated[
    list[Path] | None,
    typer.Option("--connections", help="YAML file with Connections that the query refers to.", show_default=False),
]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Namespace; by default that of the kubeconfig's context.")
]
Context = Annotated[str | None, typer.Option(help="Context of the kubeconfig; by default the current one.")]
Kubeconfig = Annotated[Path | None, typer.Option(help="Kubeconfig; by default KUBECONFIG or ~/.kube/config.")]


class ClusterOptions(NamedTuple):
    """The options that select a cluster and a namespace."""

    namespace: str | None
    context: str | None
    kubeconfig: Path | None


on_cluster: dict[str, Callable[..., Any]] = {}
"""What a command does with a query on a cluster, by the command's name; the operator's package registers it."""


def is_on_cluster(target: str, cluster: ClusterOptions, of_file: Mapping[str, object]) -> bool:
    """Return whether the target is a query on a cluster.

    Args:
        target: what the user wrote.
        cluster: the options that select the cluster.
        of_file: the options that only a file can have.

    Raises:
        MillraceError: an option does not apply to this kind of target.
    """
    if not is_file(target):
        _refuse(target, "is the name of a query on the cluster", of_file)
        return True
    is_url = target.startswith(("http://", "https://"))
    given = {f"--{name}": value for name, value in cluster._asdict().items()}
    _refuse(target, "is a URL" if is_url else "is a file", given)
    return False


def is_file(target: str) -> bool:
    """Return whether ``target`` is a file, or standard input, rather than the name of a query."""
    is_path = target == "-" or "/" in target or target.endswith((".yaml", ".yml", ".json", ".jsonl"))
    return is_path or Path(target).is_file()


def _refuse(target: str, what: str, options: Mapping[str, object]) -> None:
    given = [name for name, value in options.items() if value is not None]
    if given:
        hint = f"leave out {' and '.join(given)}"
        if not is_file(target):
            hint += f", or write a file's name as ./{target}"
        raise MillraceError(Problem(f"{target} {what}, to which {given[0]} does not apply", hint))
