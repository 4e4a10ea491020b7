"""Logs of a query's pods."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, NamedTuple

from kubernetes.client import ApiException, CoreV1Api

from millrace_api.model.labels import DRIVER, EXECUTOR

from ..resources.names import Owner
from .cluster import TIMEOUT, Cluster
from .refusals import MissingError, told

_FOLLOWING = (TIMEOUT[0], 4 * 3600.0)
"""Seconds to connect, and for which a log that is followed may be silent: after as many, a kubelet closes it too."""


class Excerpt(NamedTuple):
    """Which part of a log: so many last lines, of the last so many seconds; None is all. ``previous``: of the
    container before its last restart."""

    follow: bool = False
    tail: int | None = None
    since: int | None = None
    previous: bool = False


class PodLogs:
    """Logs in one namespace. All methods raise MillraceError with a sentence for the user."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._core = CoreV1Api(cluster.client)

    def executors(self, owner: Owner) -> list[str]:
        """Names of the executors' pods that there are now."""
        labels = ",".join(f"{name}={value}" for name, value in owner.selector(EXECUTOR).items())
        with told(self._cluster, "list", "pods", owner.namespace):
            found = self._core.list_namespaced_pod(owner.namespace, label_selector=labels, _request_timeout=TIMEOUT)
        return sorted(str(pod.metadata.name) for pod in found.items if pod.metadata is not None)

    def lines(self, owner: Owner, pod: str, excerpt: Excerpt) -> Iterator[bytes]:
        """Lines of the log of a pod as they come, each with its end.

        Raises:
            MissingError: there is no such pod, or it runs nowhere.
            MillraceError: its log cannot be read.
        """
        container = DRIVER if pod == owner.driver_pod else EXECUTOR
        with told(self._cluster, "get", "pods/log", owner.namespace, pod):
            answer: Any = self._core.read_namespaced_pod_log(
                pod,
                owner.namespace,
                container=container,
                follow=excerpt.follow,
                previous=excerpt.previous,
                since_seconds=excerpt.since,
                tail_lines=excerpt.tail,
                _preload_content=False,
                _request_timeout=_FOLLOWING if excerpt.follow else TIMEOUT,
            )
            try:
                if answer.status == HTTPStatus.NO_CONTENT:
                    raise MissingError("the pod has not been given a node yet")
                if answer.status != HTTPStatus.OK:
                    body = answer.data.decode(errors="replace")
                    raise ApiException(answer.status, answer.reason, body=body)
                yield from answer
            finally:
                answer.close()
