"""The client for all that the operator asks of the API server: measured, and changing nothing without the lease."""

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
"""That are kept at most; each watch has one of its own."""

_SOCKET = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    # what was not sent when a connection is given up is thrown away: else it might arrive when the lease has ended
    (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)),
]


def unfenced() -> float:
    """Any change may be made, and may take any time."""
    return math.inf


class Client(ApiClient):
    """Asks one API server, by the configuration that ``load_configuration`` has found.

    A change that is given up after its time may still be done when it has reached the API server, and a process may be
    paused between the check and the request; no check on this side can prevent that. Such a change does no lasting
    harm: the next leader's watch shows it, and puts it right.

    Args:
        metrics: where requests are counted.
        fence: called before each request that changes something: the seconds in which it must have ended. What it
            raises, the caller of the request gets, and no request is made. It is called again with the connection made
            and the request built, right before it is sent: either may take long, on a busy machine or network.
    """

    def __init__(self, metrics: OperatorMetrics, fence: Callable[[], float] = unfenced) -> None:
        configuration = Configuration.get_default_copy()
        configuration.retries = False  # they would pass by the fence; who asks tries again
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
        """Make a request, as all calls of the library do in the end."""
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
    """Connections that call the fence right before they send a request that changes something."""

    class Connection(pool.ConnectionCls):  # type: ignore[misc, name-defined]
        def endheaders(self, *arguments: Any, **options: Any) -> None:
            if self._method in CHANGES:
                if self.sock is None:
                    self.connect()  # which else comes after the check
                fence()
            super().endheaders(*arguments, **options)

    return type(pool.__name__, (pool,), {"ConnectionCls": Connection})


def load_configuration() -> None:
    """Use the pod's own account, else the kubeconfig, as kopf does.

    Raises:
        MillraceError: there is neither.
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
    """The plural of what is asked for, with the subresource: ``streamqueries/status``."""
    match = _PATH.fullmatch(urlsplit(url).path)
    return match["plural"] + (match["subresource"] or "") if match else "other"
