"""Kubernetes client of the operator: counts its requests and makes no change without the lease."""

from __future__ import annotations

import math
import re
import socket
import struct
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from kubernetes import config
from kubernetes.client import ApiClient, Configuration
from urllib3 import HTTPConnectionPool

from millrace_api.errors import MillraceError, Problem

from ..telemetry.metrics import OperatorMetrics
from .queries import MANAGER, TIMEOUT

CHANGES = frozenset({"POST", "PUT", "PATCH", "DELETE"})

_PATH = re.compile(
    r"/apis?(?:/[^/]+)?/v[^/]+(?:/namespaces/[^/]+(?=/))?/(?P<plural>[^/]+)(?:/[^/]+(?P<subresource>/[^/]+)?)?"
)
_CONNECTIONS = 100
"""Maximum number of pooled connections; each watch uses one."""

_SOCKET = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    # discard unsent data when a connection is given up: it could arrive after the lease has ended
    (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)),
]


def unfenced() -> float:
    """Fence that allows every change, without a time limit."""
    return math.inf


class Client(ApiClient):
    """Client of one API server, configured by ``load_configuration``.

    A change that timed out may still be applied once it has reached the API server, and the process may be paused
    between the check and the request. No check on the client's side can prevent that. Such a change does no lasting
    harm: the next leader sees it through its watch and corrects it.

    Args:
        metrics: where requests are counted.
        fence: called before each request that changes something; returns the seconds within which the request must end.
            An exception from it cancels the request and is raised to the caller. It is called a second time when the
            connection is open and the request is built, right before sending: both may take long on a busy machine or
            network.
    """

    def __init__(self, metrics: OperatorMetrics, fence: Callable[[], float] = unfenced) -> None:
        configuration = Configuration.get_default_copy()
        configuration.retries = False  # retries would bypass the fence; the caller retries
        configuration.socket_options = _SOCKET
        configuration.connection_pool_maxsize = _CONNECTIONS
        super().__init__(configuration)
        self.user_agent = MANAGER
        self._metrics = metrics
        self._fence = fence
        pools = self.rest_client.pool_manager.pool_classes_by_scheme
        self.rest_client.pool_manager.pool_classes_by_scheme = {
            scheme: _fenced(pool, fence) for scheme, pool in pools.items()
        }

    def call_api(
        self,
        method: str,
        url: str,
        header_params: Any = None,
        body: Any = None,
        post_params: Any = None,
        _request_timeout: Any = None,
    ) -> Any:
        """Make a request; every call of the library ends up here."""
        timeout = _request_timeout or TIMEOUT
        if method in CHANGES and (left := self._fence()) < math.inf:
            timeout = min(left, sum(timeout) if isinstance(timeout, tuple) else timeout)
        began, code = time.monotonic(), "none"
        try:
            answer = super().call_api(method, url, header_params, body, post_params, _request_timeout=timeout)
            code = str(answer.status)
            return answer
        finally:
            self._metrics.requested(method, resource_of(url), code, time.monotonic() - began)


def _fenced(pool: type[HTTPConnectionPool], fence: Callable[[], float]) -> type[HTTPConnectionPool]:
    """Return a pool class whose connections call the fence right before they send a change."""

    class ApiConnection(pool.ConnectionCls):  # type: ignore[misc, name-defined]
        def endheaders(self, *arguments: Any, **options: Any) -> None:
            if self._method in CHANGES:
                if self.sock is None:
                    self.connect()  # otherwise it would connect after the check
                fence()
            super().endheaders(*arguments, **options)

    return type(pool.__name__, (pool,), {"ConnectionCls": ApiConnection})


def load_configuration() -> None:
    """Use the pod's service account or else the kubeconfig, like kopf.

    Raises:
        MillraceError: neither exists.
    """
    try:
        config.load_incluster_config()  # type: ignore[no-untyped-call]
    except config.ConfigException:
        try:
            config.load_kube_config()  # type: ignore[no-untyped-call]
        except config.ConfigException as error:
            raise MillraceError(
                Problem(
                    f"there is neither a pod's service account nor a kubeconfig: {error}",
                    "set KUBECONFIG to the file that names the cluster",
                )
            ) from None


def resource_of(url: str) -> str:
    """Return the resource's plural with its subresource, such as ``streamqueries/status``; otherwise ``other``."""
    match = _PATH.fullmatch(urlsplit(url).path)
    return match["plural"] + (match["subresource"] or "") if match else "other"
