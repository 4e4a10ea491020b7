"""User messages for refused requests and for an unreachable API server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from kubernetes.client import ApiException
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    MaxRetryError,
    NameResolutionError,
    NewConnectionError,
    SSLError,
    TimeoutError,
)

from millrace_api.crd.document import GROUP, PLURAL
from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_support.refusals import message_of

from .cluster import Cluster

QUERIES = f"{PLURAL}.{GROUP}"


class MissingError(MillraceError):
    """The named object does not exist."""


@contextmanager
def user_errors(cluster: Cluster, verb: str, resource: str, namespace: str | None, name: str = "") -> Iterator[None]:
    """Convert the errors of a request in this block to MillraceError with a message for the user.

    ``verb`` and ``resource`` are as in an RBAC role; ``namespace`` None means all namespaces.

    Raises:
        MissingError: the object does not exist.
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
        problem = f"the API server {cluster.server} of context {cluster.context} {_absence(error)}"
        hint = "check that the cluster is up and the kubeconfig right, or choose another --context"
        raise TransientError(Problem(problem, hint)) from None


def _refusal(error: ApiException, cluster: Cluster, what: str, right: str) -> MillraceError:
    said = words(error)
    match error.status or 0:
        case HTTPStatus.UNAUTHORIZED:
            problem = f"the API server {cluster.server} does not know the user of context {cluster.context}"
            return MillraceError(
                Problem(f"{problem}, who wants to {what}", "log in again, or choose another --context")
            )
        case HTTPStatus.FORBIDDEN:
            return MillraceError(Problem(f"you may not {what}", f'ask for a role with the right "{right}"'))
        case HTTPStatus.NOT_FOUND if not _names_an_object(error):
            problem = f"the API server {cluster.server} has no {right.partition(' ')[2]}"
            hint = "install the CRD: millrace crd | kubectl apply --server-side -f -"
            return MillraceError(Problem(problem, hint))
        case HTTPStatus.NOT_FOUND:
            return MissingError(said)
        case HTTPStatus.CONFLICT:
            return MillraceError(Problem(f"cannot {what}: it is being changed by others", "try again"))
        case HTTPStatus.TOO_MANY_REQUESTS | HTTPStatus.GONE:
            return TransientError(Problem(f"cannot {what} now: {said}", "try again later"))
        case status if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return TransientError(Problem(f"cannot {what}: {said}", "try again later"))
    return MillraceError(Problem(f"cannot {what}: {said}"))


def words(error: ApiException) -> str:
    """Return the API server's message on one line."""
    said = error.body or error.reason or f"status {error.status}"
    return message_of(error.body) or " ".join(str(said).split())


def _names_an_object(error: ApiException) -> bool:
    """Return whether a NOT_FOUND error is about a missing object, not an unknown kind."""
    try:
        return bool(json.loads(error.body or "")["details"]["name"])
    except (ValueError, TypeError, KeyError):
        return False


def _absence(error: Exception) -> str:
    if isinstance(error, MaxRetryError) and error.reason is not None:
        return _absence(error.reason)
    if isinstance(error, SSLError):
        return f"cannot be reached: {' '.join(str(error).split())}"
    if isinstance(error, NameResolutionError):
        return "cannot be reached: its name is unknown"
    if isinstance(error, ConnectTimeoutError):
        return "cannot be reached: nothing answers"
    if isinstance(error, NewConnectionError):
        return "cannot be reached: the connection is refused"
    if isinstance(error, TimeoutError):
        return "does not answer in time"
    return f"broke off ({type(error).__name__})"
