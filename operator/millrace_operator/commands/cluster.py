"""Connection of the command line to a cluster, by kubeconfig or by a pod's service account.

``user_errors`` turns refusals of the API server into messages for the user.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from kubernetes.client import ApiException, Configuration
from kubernetes.config import ConfigException, incluster_config
from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger
from urllib3 import Retry
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    MaxRetryError,
    NameResolutionError,
    NewConnectionError,
    SSLError,
    TimeoutError,
)

from millrace_api.errors import MillraceError, Problem, TransientError, suggest

from ..kube.client import KUBECONFIG_ERRORS, JsonClient, own_namespace, server_message

TIMEOUT = (5.0, 15.0)
"""Timeouts in seconds: to connect, and to receive the answer."""

_DEFAULT = "~/.kube/config"


@dataclass(frozen=True)
class Cluster:
    """API server of a kubeconfig context or of the current pod, with the namespace to use."""

    client: JsonClient
    server: str
    context: str
    namespace: str


def connect(kubeconfig: Path | None, context: str | None, namespace: str | None) -> Cluster:
    """Return the cluster of a context, by default the current one, without sending a request.

    Without ``kubeconfig``, KUBECONFIG names the files; the default is ``~/.kube/config``. A pod without any of them
    uses its own cluster through its service account.

    Raises:
        MillraceError: there is no kubeconfig, it cannot be read, or it has no such context.
    """
    files = kubeconfig or os.environ.get("KUBECONFIG")
    configuration = Configuration()
    if not files and context is None and _only_a_pod():
        chosen, default_namespace = "in-cluster", _load_account(configuration)
    else:
        chosen, default_namespace = _load(str(files or _DEFAULT), context, configuration)
    # retry only when the server asks for it, so that an unreachable server is reported at once
    configuration.retries = Retry(3, connect=False, read=False, other=0, raise_on_status=False)
    configuration.keep_alive = True  # detects a stream whose peer is silently gone
    return Cluster(JsonClient(configuration), configuration.host, chosen, namespace or default_namespace or "default")


def _only_a_pod() -> bool:
    """Return whether this is a pod without a kubeconfig in the default place."""
    default = Path(os.path.expanduser(_DEFAULT))  # noqa: PTH111 - a user in a container may have no home
    return incluster_config.SERVICE_HOST_ENV_NAME in os.environ and not default.exists()


def _load_account(configuration: Configuration) -> str | None:
    """Load this pod's service account into the configuration; return its namespace."""
    try:
        incluster_config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
        return own_namespace()
    except (ConfigException, OSError) as error:
        problem = f"there is no kubeconfig {_DEFAULT}, and this pod's service account cannot be used: {error}"
        raise MillraceError(Problem(problem, "mount its token, or write --kubeconfig FILE")) from None


def _load(files: str, context: str | None, configuration: Configuration) -> tuple[str, str | None]:
    """Load kubeconfig files into the configuration; return the context and its namespace."""
    try:
        found = KubeConfigMerger(files).config  # type: ignore[no-untyped-call]
        if found is None:
            hint = "write --kubeconfig FILE, or set KUBECONFIG"
            raise MillraceError(Problem(f"there is no kubeconfig {Path(files).expanduser()}", hint))
        chosen = _context(files, context, found.value)
        loader = KubeConfigLoader(found, active_context=chosen, config_base_path=None)  # type: ignore[no-untyped-call]
        loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
        return chosen, loader.current_context["context"].get("namespace")
    except KUBECONFIG_ERRORS as error:
        problem = f"{files} is not a usable kubeconfig: {type(error).__name__}"
        raise MillraceError(Problem(problem, "check it with kubectl config view")) from None


def _context(files: str, wanted: str | None, document: dict[str, object]) -> str:
    contexts = document["contexts"]
    names = [str(each.value["name"]) for each in contexts] if isinstance(contexts, list) else []
    chosen = wanted or document.get("current-context")
    if not chosen:
        hint = f"write --context {names[0]}" if names else "add one with kubectl config set-context"
        raise MillraceError(Problem(f"{files} has no current context", hint))
    if chosen not in names:
        hint = suggest(str(chosen), names, "" if names else "add it with kubectl config set-context")
        raise MillraceError(Problem(f'{files} has no context "{chosen}"', hint))
    return str(chosen)


class MissingError(MillraceError):
    """The named object does not exist."""


class ForbiddenError(MillraceError):
    """The user has no right to the request."""


@contextmanager
def user_errors(cluster: Cluster, verb: str, resource: str, namespace: str | None, name: str = "") -> Iterator[None]:
    """Convert the errors of a request in this block to MillraceError with a message for the user.

    ``verb`` and ``resource`` are as in an RBAC role; ``namespace`` None means all namespaces.

    Raises:
        MissingError: the object does not exist.
        ForbiddenError: the user has no right to it.
        TransientError: the server is unreachable or cannot answer now.
        MillraceError: the server refuses the request.
    """
    where = "in all namespaces" if namespace is None else f"in namespace {namespace}"
    what = f'{verb} {resource} "{name}" {where}' if name else f"{verb} {resource} {where}"
    try:
        yield
    except ApiException as error:
        raise _refusal(error, cluster, what, f"{verb} {resource}") from None
    except HTTPError as error:
        problem = f"the API server {cluster.server} of context {cluster.context} {_unreachable(error)}"
        hint = "check that the cluster is up and the kubeconfig right, or choose another --context"
        raise TransientError(Problem(problem, hint)) from None


def _refusal(error: ApiException, cluster: Cluster, what: str, right: str) -> MillraceError:
    message = server_message(error)
    match error.status or 0:
        case HTTPStatus.UNAUTHORIZED:
            problem = f"the API server {cluster.server} rejects the credentials of context {cluster.context}"
            return MillraceError(Problem(f"cannot {what}: {problem}", "log in again, or choose another --context"))
        case HTTPStatus.FORBIDDEN:
            return ForbiddenError(Problem(f"you may not {what}", f'ask for a role with the right "{right}"'))
        case HTTPStatus.NOT_FOUND if not _names_an_object(error):
            problem = f"the API server {cluster.server} has no {right.partition(' ')[2]}"
            hint = "install the CRD: millrace crd | kubectl apply --server-side -f -"
            return MillraceError(Problem(problem, hint))
        case HTTPStatus.NOT_FOUND:
            return MissingError(message)
        case HTTPStatus.CONFLICT:
            return MillraceError(Problem(f"cannot {what}: another client has changed it meanwhile", "try again"))
        case HTTPStatus.TOO_MANY_REQUESTS | HTTPStatus.GONE:
            return TransientError(Problem(f"cannot {what} now: {message}", "try again later"))
        case status if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return TransientError(Problem(f"cannot {what}: {message}", "try again later"))
    return MillraceError(Problem(f"cannot {what}: {message}"))


def _names_an_object(error: ApiException) -> bool:
    """Return whether a NOT_FOUND error is about a missing object, not an unknown kind."""
    try:
        return bool(json.loads(error.body or "")["details"]["name"])
    except (ValueError, TypeError, KeyError):
        return False


def _unreachable(error: Exception) -> str:
    if isinstance(error, MaxRetryError) and error.reason is not None:
        return _unreachable(error.reason)
    if isinstance(error, SSLError):
        return f"cannot be reached: {' '.join(str(error).split())}"
    if isinstance(error, NameResolutionError):
        return "cannot be reached: its name cannot be resolved"
    if isinstance(error, NewConnectionError):  # a kind of ConnectTimeoutError
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.strerror and not isinstance(cause, ConnectionRefusedError):
            return f"cannot be reached: {cause.strerror[:1].lower()}{cause.strerror[1:]}"
        return "cannot be reached: the connection is refused"
    if isinstance(error, ConnectTimeoutError):
        return "cannot be reached: nothing answers"
    if isinstance(error, TimeoutError):
        return "does not answer in time"
    return f"ended the connection early ({type(error).__name__})"
