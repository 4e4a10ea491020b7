"""Look-ups in the driver's pod of a query, through the API server with the user's own rights (``pods/portforward``).

A driver answers look-ups only on its pod's loopback interface. A forwarded port ends there, so that those who may
forward ports of the pod may read the table, and no other pod can.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection

from kubernetes.client import ApiException, CoreV1Api
from kubernetes.stream import portforward

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_api.model.sinks import TransactionScope
from millrace_support.lookups import TIMEOUT, Lookup, TableAnswer, look_up

from ..resources.names import LOOKUPS_PORT, Owner
from .cluster import Cluster, MissingError, user_errors
from .user_queries import UserQueries


def look_up_in_pod(cluster: Cluster, name: str, lookup: Lookup) -> TableAnswer:
    """Look rows up in the result table of a query.

    Raises:
        MillraceError: the query does not exist or has no table, tasks write that, the user may not, or the driver does
            not answer.
    """
    query = UserQueries(cluster).get(name)
    sink = query.body["spec"].get("sink", {})
    if "table" not in sink:
        kind = next(iter(sink), "none")
        message = f"{name} has no result table to look rows up in: its results go to the sink {kind}"
        hint = "write spec.sink.table: {bootstrapServers: ..., topic: ...} with a compacted topic"
        raise MillraceError(Problem(message, hint))
    if sink["table"].get("transaction") == TransactionScope.PARTITION:
        message = f"the table of {name} cannot be looked up, since tasks write it by partition"
        raise MillraceError(Problem(message, "write spec.sink.table.transaction: Batch"))
    pod = Owner(query.namespace, query.name, query.body["metadata"]["uid"]).driver_pod
    try:
        with _connected(cluster, query.namespace, pod) as connection:
            return look_up(connection, lookup, pod)
    except (TransientError, MissingError) as error:
        hint = f"millrace status {name} shows the state of the query: its phase is {query.phase}"
        raise TransientError(*(Problem(each.message, hint) for each in error.problems)) from None


@contextmanager
def _connected(cluster: Cluster, namespace: str, pod: str) -> Iterator[HTTPConnection]:
    """Yield a connection to the port of look-ups in a pod."""
    core = CoreV1Api(cluster.client)
    with user_errors(cluster, "create", "pods/portforward", namespace, pod):
        try:
            forward = portforward(core.connect_get_namespaced_pod_portforward, pod, namespace, ports=str(LOOKUPS_PORT))
        except ApiException as error:
            raise _with_status(error) from None
    with closing(forward), closing(HTTPConnection("localhost")) as connection:
        stream: socket.socket = forward.socket(LOOKUPS_PORT)
        stream.settimeout(TIMEOUT)
        connection.sock = stream
        yield connection


def _with_status(error: ApiException) -> ApiException:
    """Return the error of a failed upgrade with the status and body of the answer, which only its context has."""
    refusal = error.__context__
    answer = ApiException(status=getattr(refusal, "status_code", 503), reason=str(error.reason).partition(" -+-+-")[0])
    answer.body = (getattr(refusal, "resp_body", None) or b"").decode(errors="replace")
    return answer
