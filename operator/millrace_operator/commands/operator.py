"""``millrace operator``: the operator itself."""

from __future__ import annotations

import gc
import re
import signal
import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace_api.errors import MillraceError, Problem, quote
from millrace_support.bounded_server import ALL_ADDRESSES
from millrace_support.collections_paused import collections_paused

from ..telemetry.logs import LogFormat, configure

if TYPE_CHECKING:
    from ..handlers.operator import OperatorOptions

_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LEASE = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
"""Names of Leases, which begin with a letter, since the canaries named after them are StreamQueries."""


class PullPolicy(StrEnum):
    """When nodes pull an image."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


def operator(
    namespace: Annotated[
        list[str] | None,
        typer.Option(
            "--namespace",
            "-n",
            help="Namespace to watch; repeat it for more. Default: all namespaces.",
            show_default=False,
        ),
    ] = None,
    shard: Annotated[str, typer.Option(help="I/N: handle shard I of N of the queries.")] = "1/1",
    image: Annotated[
        str, typer.Option(envvar="MILLRACE_IMAGE", help="Image of queries that do not name one.")
    ] = "millrace-jobs",
    image_pull_policy: Annotated[
        PullPolicy | None,
        typer.Option(help="When nodes pull the image of queries; default: Kubernetes' own rule.", show_default=False),
    ] = None,
    image_pull_secret: Annotated[
        list[str] | None,
        typer.Option(
            help="Secret, in the namespace of each query, with which its image is pulled; repeat it for more.",
            show_default=False,
        ),
    ] = None,
    fixed_user: Annotated[
        bool,
        typer.Option(
            "--fixed-user/--no-fixed-user",
            help="Whether pods of queries ask for user and group 10001; OpenShift assigns its own.",
        ),
    ] = True,
    leader_elect: Annotated[
        bool, typer.Option(help="Work only while holding a Lease, so that several can run and one works.")
    ] = True,
    lease_namespace: Annotated[
        str | None,
        typer.Option(help="Namespace of the Lease; default: the pod's, else the first watched one."),
    ] = None,
    lease_name: Annotated[
        str, typer.Option(help="Name of the Lease; the operators that share it elect one leader.")
    ] = "millrace-operator",
    lease_seconds: Annotated[
        int, typer.Option(min=3, max=300, help="Seconds without a renewal after which another operator may lead.")
    ] = 15,
    prometheus_url: Annotated[
        str | None,
        typer.Option(help="Prometheus that scrapes the queries; without it, no query is scaled.", show_default=False),
    ] = None,
    prometheus_ca_file: Annotated[
        Path | None, typer.Option(help="PEM file with the CA of Prometheus's certificate.", show_default=False)
    ] = None,
    prometheus_token_file: Annotated[
        Path | None, typer.Option(help="File with a bearer token for Prometheus.", show_default=False)
    ] = None,
    prometheus_user: Annotated[str | None, typer.Option(help="User name for Prometheus.", show_default=False)] = None,
    prometheus_password_file: Annotated[
        Path | None, typer.Option(help="File with the password of that user.", show_default=False)
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(help="YAML file with what the queries of each namespace may ask for.", show_default=False),
    ] = None,
    namespace_mib: Annotated[
        int, typer.Option(min=1, help="MiB that are kept of the queries and objects of one namespace.")
    ] = 64,
    port: Annotated[int, typer.Option(help="Port of /metrics, /healthz and /readyz; 0 takes a free one.")] = 8080,
    bind: Annotated[
        str, typer.Option(help="Address to listen on; :: is all addresses, those of IPv4 included.")
    ] = ALL_ADDRESSES,
    page_port: Annotated[
        int | None,
        typer.Option(help="Port of the page of the fleet; without it, there is no page.", show_default=False),
    ] = None,
    log_format: Annotated[
        LogFormat | None, typer.Option(help="text or json; default: text on a terminal, else json.", show_default=False)
    ] = None,
) -> None:
    """Deploy the StreamQueries of a cluster and keep them in their desired state, until SIGTERM.

    At SIGTERM, a standby ends with status 0, and so does a leader once its running steps are finished. A leader that
    has lost its Lease ends with status 1, to be restarted.
    """
    with collections_paused():
        from .. import main  # noqa: F401 - its decorators fill kopf's registry
        from ..handlers.operator import OperatorOptions
        from ..leadership.election import Timing
        from ..leadership.shard import Shard
        from ..metrics_source.settings import PrometheusSettings
        from ..resources.pod_defaults import PodDefaults
        from ..resources.tenancy_policy import TenancyPolicy

    namespaces = tuple(dict.fromkeys(namespace or ()))
    for name in namespaces:
        _check_namespace(name, "--namespace")
    if lease_namespace:
        _check_namespace(lease_namespace, "--lease-namespace")
    if not _LEASE.fullmatch(lease_name):
        hint = "write lowercase letters, digits and '-', a letter first and no '-' last, such as millrace-operator"
        raise MillraceError(Problem(f"{quote(lease_name)} is not a valid Lease name", hint, field="--lease-name"))
    prometheus = None
    if prometheus_url is not None:
        try:
            prometheus = PrometheusSettings(
                prometheus_url,
                ca_file=prometheus_ca_file,
                token_file=prometheus_token_file,
                user=prometheus_user,
                password_file=prometheus_password_file,
            )
        except MillraceError as error:
            raise MillraceError(*map(_of_option, error.problems)) from None
    options = OperatorOptions(
        pods=PodDefaults(image, image_pull_policy, tuple(dict.fromkeys(image_pull_secret or ())), fixed_user),
        namespaces=namespaces,
        shard=Shard.parse(shard),
        leader_elect=leader_elect,
        lease_namespace=lease_namespace,
        lease_name=lease_name,
        timing=Timing(lease_seconds),
        bind=bind,
        port=port,
        prometheus=prometheus,
        policy=TenancyPolicy() if policy is None else TenancyPolicy.load(policy),
        namespace_bytes=namespace_mib << 20,
        page_port=page_port,
    )
    configure(log_format or (LogFormat.TEXT if sys.stderr.isatty() else LogFormat.JSON))
    _run(options)


def _run(options: OperatorOptions) -> None:
    import kopf

    from ..handlers.operator import Operator

    # kopf listens for signals only after the first requests; until then, process 1 of a container would ignore SIGTERM
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    memo = kopf.Memo(operator=Operator(options))
    gc.freeze()  # what the modules define stays, and no collection has to look through it
    kopf.run(
        registry=kopf.get_default_registry(),
        standalone=True,
        clusterwide=not options.namespaces,
        namespaces=options.namespaces,
        memo=memo,
    )


def _of_option(problem: Problem) -> Problem:
    """Return a problem of the Prometheus settings with the command-line option as its field."""
    return replace(problem, field=f"--prometheus-{problem.field.replace('_', '-')}")


def _check_namespace(name: str, option: str) -> None:
    if not _NAMESPACE.fullmatch(name):
        hint = "write one name of lowercase letters, digits and '-', such as analytics; patterns are not supported"
        raise MillraceError(Problem(f"{quote(name)} is not a valid namespace name", hint, field=option))
