"""``millrace operator``: the operator itself."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace_api.errors import MillraceError, Problem

from ..telemetry.logs import LogFormat, configure

if TYPE_CHECKING:
    from ..handlers.operator import OperatorOptions

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def operator(
    namespace: Annotated[
        list[str] | None,
        typer.Option(
            "--namespace",
            "-n",
            help="Namespace to watch; again for each further one. Without it: all.",
            show_default=False,
        ),
    ] = None,
    shard: Annotated[str, typer.Option(help="I/N: work on part I of N of the queries; all of them is 1/1.")] = "1/1",
    image: Annotated[
        str, typer.Option(envvar="MILLRACE_IMAGE", help="Image of queries that name none.")
    ] = "millrace-jobs",
    leader_elect: Annotated[
        bool, typer.Option(help="Work only while holding a Lease, so that several may run and one stands in.")
    ] = True,
    lease_namespace: Annotated[
        str | None,
        typer.Option(help="Where the Lease is; default: the pod's namespace, else the first that is watched."),
    ] = None,
    lease_name: Annotated[
        str, typer.Option(help="Name of the Lease: the same for all operators among which one leads.")
    ] = "millrace-operator",
    lease_seconds: Annotated[
        int, typer.Option(min=3, max=300, help="How long the others wait for a leader that is not heard of.")
    ] = 15,
    prometheus_url: Annotated[
        str | None,
        typer.Option(help="Prometheus that scrapes the queries; without it, none is scaled.", show_default=False),
    ] = None,
    prometheus_ca_file: Annotated[
        Path | None, typer.Option(help="PEM file of who signs its certificate.", show_default=False)
    ] = None,
    prometheus_token_file: Annotated[
        Path | None, typer.Option(help="File with a bearer token for it.", show_default=False)
    ] = None,
    prometheus_user: Annotated[str | None, typer.Option(help="User to log in as.", show_default=False)] = None,
    prometheus_password_file: Annotated[
        Path | None, typer.Option(help="File with that user's password.", show_default=False)
    ] = None,
    port: Annotated[int, typer.Option(help="Of /metrics, /healthz and /readyz; 0: any that is free.")] = 8080,
    bind: Annotated[str, typer.Option(help="Address to listen on.")] = "0.0.0.0",  # noqa: S104 - for other machines
    log_format: Annotated[
        LogFormat | None, typer.Option(help="text or json; default: text on a terminal.", show_default=False)
    ] = None,
) -> None:
    """Deploy the StreamQueries of a cluster, and keep them as they should be, until SIGTERM.

    A standby ends with status 0 at SIGTERM, as a leader does when it has finished what it was doing; a leader that has
    lost its Lease ends with status 1, to be started again.
    """
    from ..handlers.operator import OperatorOptions
    from ..leadership.election import Timing
    from ..leadership.shard import Shard
    from ..metrics_source.settings import PrometheusSettings

    namespaces = tuple(dict.fromkeys(namespace or ()))
    for name in (*namespaces, *filter(None, [lease_namespace])):
        _check(name, "namespace", "analytics")
    _check(lease_name, "Lease", "millrace-operator")
    prometheus = None
    if prometheus_url is not None:
        prometheus = PrometheusSettings(
            prometheus_url,
            ca_file=prometheus_ca_file,
            token_file=prometheus_token_file,
            user=prometheus_user,
            password_file=prometheus_password_file,
        )
    options = OperatorOptions(
        image=image,
        namespaces=namespaces,
        shard=Shard.parse(shard),
        leader_elect=leader_elect,
        lease_namespace=lease_namespace,
        lease_name=lease_name,
        timing=Timing(lease_seconds),
        bind=bind,
        port=port,
        prometheus=prometheus,
    )
    configure(log_format or (LogFormat.TEXT if sys.stderr.isatty() else LogFormat.JSON))
    _run(options)


def _run(options: OperatorOptions) -> None:
    import kopf

    from .. import main  # noqa: F401 - its decorators fill kopf's registry
    from ..handlers.operator import Operator

    memo = kopf.Memo(operator=Operator(options))
    kopf.run(
        registry=kopf.get_default_registry(),
        standalone=True,
        clusterwide=not options.namespaces,
        namespaces=options.namespaces,
        memo=memo,
    )


def _check(name: str, kind: str, example: str) -> None:
    if not _NAME.fullmatch(name):
        hint = f"write one name, such as {example}; patterns are not names"
        raise MillraceError(Problem(f"there can be no {kind} {name!r}", hint))
