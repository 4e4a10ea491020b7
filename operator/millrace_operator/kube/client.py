"""Kubernetes clients: one for plain JSON, and the operator's, which makes no change without the lease."""

from __future__ import annotations

import json
import math
import re
import socket
import struct
import time
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import yaml
from kubernetes import config
from kubernetes.client import ApiClient, ApiException, Configuration
from kubernetes.config import incluster_config
from urllib3 import HTTPConnectionPool

from millrace_api.crd import CONNECTIONS_PLURAL, GROUP, PLURAL, VERSION
from millrace_api.errors import MillraceError, Problem
from millrace_api.model.connections import CONNECTION_KIND
from millrace_api.model.streamquery import KIND
from millrace_support.refusals import message_of

from ..resources.names import MANAGER, Manifest
from ..resources.permissions import Account
from .bounded_json import decode_bounded

if TYPE_CHECKING:
    from ..telemetry.metrics import OperatorMetrics

TIMEOUT = (3.0, 15.0)
"""Timeouts in seconds: to connect, and to receive the answer."""

APPLY = "application/apply-patch+yaml"
"""Content type of server-side apply, which takes ownership of the named fields only."""

MERGE = "application/merge-patch+json"
"""Content type of a merge patch, which changes the named fields only."""

KUBECONFIG_ERRORS = (
    config.ConfigException,
    yaml.YAMLError,
    OSError,
    TypeError,
    AttributeError,
    LookupError,
    ValueError,
)
"""Errors of the library for a broken kubeconfig. Their texts may quote whole user entries, so do not repeat them."""

_CHANGES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_PATH = re.compile(
    r"/apis?(?:/[^/]+)?/v[^/]+(?:/namespaces/[^/]+(?=/))?/(?P<plural>[^/]+)(?:/[^/]+(?P<subresource>/[^/]+)?)?"
)
PAGE = 25
"""Number of objects per page of a list; each may have a megabyte."""

_CONNECTIONS = 100
"""Number of pooled connections; each watch uses one, and those above it are closed after their request."""

_SOCKET = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    # discard unsent data when a connection is given up: it could arrive after the lease has ended
    (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)),
]


class ResourceKind(NamedTuple):
    """Kind of object with the root of its API, ``api/v1`` or ``apis/GROUP/VERSION``, and its plural."""

    name: str
    root: str
    plural: str

    @property
    def type_meta(self) -> dict[str, str]:
        """API version and kind, which list items omit."""
        return {"apiVersion": self.root.partition("/")[2], "kind": self.name}

    def path(self, namespace: str | None = None, name: str = "") -> str:
        """Return the path of all objects, of those in a namespace, or of a single one."""
        where = f"/{self.root}/namespaces/{namespace}" if namespace else f"/{self.root}"
        return f"{where}/{self.plural}/{name}" if name else f"{where}/{self.plural}"


QUERIES = ResourceKind(KIND, f"apis/{GROUP}/{VERSION}", PLURAL)
CONNECTIONS = ResourceKind(CONNECTION_KIND, f"apis/{GROUP}/{VERSION}", CONNECTIONS_PLURAL)


class JsonClient(ApiClient):
    """Client that makes requests by path and answers with plain JSON.

    Typed models of each kind would cost more time than the request itself.
    """

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Manifest | None = None,
        content_type: str = "application/json",
        timeout: float | tuple[float, float] = TIMEOUT,
    ) -> Manifest:
        """Make a request and return the JSON document that answers it.

        Raises:
            ApiException: the API server refuses the request.
            HTTPError: the API server is unreachable.
        """
        return dict(self.decode(self._answer(method, path, query, body, content_type, timeout).read()))

    def lines(self, path: str, query: Mapping[str, str], timeout: tuple[float, float]) -> Iterator[Any]:
        """Yield each line of a streamed answer as it arrives, parsed from JSON. Raises errors like ``request``."""
        answer = self._answer("GET", path, query, None, "application/json", timeout).response
        rest = b""
        try:
            while piece := answer.read1(1 << 16):
                *whole, rest = (rest + piece).split(b"\n")
                yield from (self.decode(line) for line in whole if line)
        finally:
            answer.close()

    def decode(self, document: bytes) -> Any:
        """Return the value of a JSON document of the API server."""
        return json.loads(document)

    def _answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Manifest | None,
        content_type: str,
        timeout: float | tuple[float, float],
    ) -> Any:
        request = self.param_serialize(
            method,
            path,
            query_params=list(query.items()),
            header_params={"Accept": "application/json", "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
        )
        answer: Any = self.call_api(*request, _request_timeout=timeout)
        if answer.status >= HTTPStatus.MULTIPLE_CHOICES:
            text = answer.read().decode(errors="replace")
            raise ApiException.from_response(http_resp=answer, body=text, data=None)
        return answer


def pages(client: JsonClient, path: str, selector: str) -> Iterator[Manifest]:
    """Yield a list of objects by pages, each as the API server answers. Raises errors like ``JsonClient.request``."""
    query = {"labelSelector": selector, "limit": str(PAGE)}
    while True:
        page = client.request("GET", path, query)
        yield page
        query["continue"] = page["metadata"].get("continue") or ""
        if not query["continue"]:
            return


class Client(JsonClient):
    """Client of the operator, configured by ``load_configuration``: counts its requests and asks its fence.

    Documents are decoded by ``decode_bounded``, whatever their authors have put into them.

    A change that timed out may still be applied once it has reached the API server, and the process may be paused
    between the check and the request. No check on the client's side can prevent that. Such a change does no lasting
    harm: the next leader sees it through its watch and corrects it.

    Args:
        metrics: where requests are counted.
        fence: called before each request that changes something; returns the seconds within which the request must end.
            An exception from it cancels the request and is raised to the caller. It is called a second time when the
            connection is open and the request is built, right before sending: both may take long on a busy machine or
            network. By default, every change is allowed without a time limit.
    """

    def __init__(self, metrics: OperatorMetrics, fence: Callable[[], float] = lambda: math.inf) -> None:
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

    def decode(self, document: bytes) -> Any:
        """Return the value of a JSON document of the API server, as far as it is kept."""
        return decode_bounded(document)

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
        if method in _CHANGES and (left := self._fence()) < math.inf:
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
            if self._method in _CHANGES:
                if self.sock is None:
                    self.connect()  # otherwise it would connect after the check
                fence()
            super().endheaders(*arguments, **options)

    return type(pool.__name__, (pool,), {"ConnectionCls": ApiConnection})


def load_configuration() -> None:
    """Use the pod's service account or else the kubeconfig, like kopf.

    Raises:
        MillraceError: neither exists, or the kubeconfig is broken.
    """
    try:
        config.load_incluster_config()  # type: ignore[no-untyped-call]
    except config.ConfigException:
        try:
            config.load_kube_config()  # type: ignore[no-untyped-call]
        except KUBECONFIG_ERRORS as error:
            problem = f"there is neither a pod's service account nor a usable kubeconfig: {type(error).__name__}"
            hint = "set KUBECONFIG to the file that names the cluster, and check it with kubectl config view"
            raise MillraceError(Problem(problem, hint)) from None


def resource_of(url: str) -> str:
    """Return the resource's plural with its subresource, such as ``streamqueries/status``; otherwise ``other``."""
    match = _PATH.fullmatch(urlsplit(url).path)
    return match["plural"] + (match["subresource"] or "") if match else "other"


def own_namespace() -> str | None:
    """Return the namespace of this pod's service account; None outside a pod."""
    file = Path(incluster_config.SERVICE_TOKEN_FILENAME).with_name("namespace")
    return file.read_text(encoding="utf-8").strip() if file.exists() else None


def own_account() -> Account | None:
    """Return this pod's service account, which the subject of its token names; None outside a pod.

    Raises:
        MillraceError: the token is not one of a service account.
    """
    file = Path(incluster_config.SERVICE_TOKEN_FILENAME)
    if not file.exists():
        return None
    try:
        claims = file.read_text(encoding="utf-8").split(".")[1]
        subject = json.loads(urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["sub"]
        _, _, namespace, name = subject.split(":")
    except (LookupError, ValueError, TypeError, AttributeError):
        message = "the pod's token does not name its service account"
        raise MillraceError(Problem(message, "let Kubernetes mount it", file=str(file))) from None
    return Account(namespace, name)


def server_message(error: ApiException) -> str:
    """Return the API server's message about a refused request, on one line."""
    text = error.body or error.reason or f"status {error.status}"
    return message_of(error.body) or " ".join(str(text).split())
