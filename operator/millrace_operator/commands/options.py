"""Options shared by all commands that connect to a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..kube.cluster import Cluster

Name = Annotated[str, typer.Argument(help="Name of a StreamQuery.", show_default=False)]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Namespace; by default that of the kubeconfig's context.")
]
Context = Annotated[str | None, typer.Option(help="Context of the kubeconfig; by default the current one.")]
Kubeconfig = Annotated[Path | None, typer.Option(help="Kubeconfig; by default KUBECONFIG or ~/.kube/config.")]
Everywhere = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Queries of all namespaces.")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until it is so.")]
Timeout = Annotated[float, typer.Option(help="Seconds to wait.")]


def connected(namespace: str | None, context: str | None, kubeconfig: Path | None) -> Cluster:
    """Connect to the cluster that the options select."""
    from ..kube.cluster import connect

    return connect(kubeconfig, context, namespace)
