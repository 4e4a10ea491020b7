"""Reading the logs of a query's pods."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, NamedTuple

from kubernetes.client import ApiException, CoreV1Api

from millrace_api.model.labels import DRIVER, EXECUTOR

from ..resources.names import Owner
from .cluster import TIMEOUT, Cluster
from .refusals import MissingError, user_errors

_FOLLOWING = (TIMEOUT[0], 4 * 3600.0)
"""Timeouts in seconds: to connect, and for silence of a followed log, which is also the kubelet's limit."""


class Excerpt(NamedTuple):
    """Part of a log to read: the last ``tail`` lines of the last ``since`` seconds; None means all.

    ``previous`` selects the container before its last restart.
    """

    follow: bool = False
    tail: int | None = None
    since: int | None = None
    previous: bool = False


class PodLogs:
    """Reader of pod logs. All methods raise MillraceError with a message for the user."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._core = CoreV1Api(cluster.client)

    def executors(self, owner: Owner) -> list[str]:
        """Return the names of the current executor pods, sorted."""
        labels = ",".join(f"{name}={value}" for name, value in owner.selector(EXECUTOR).items())
        with user_errors(self._cluster, "list", "pods", owner.namespace):
            found = self._core.list_namespaced_pod(owner.namespace, label_selector=labels, _request_timeout=TIMEOUT)
        return sorted(str(pod.metadata.name) for pod in found.items if pod.metadata is not None)

    def lines(self, owner: Owner, pod: str, excerpt: Excerpt) -> Iterator[bytes]:
        """Yield the lines of a pod's log as they arrive, with line ends.

        Raises:
            MissingError: the pod does not exist or is not scheduled yet.
            MillraceError: the log cannot be read.
        """
        container = DRIVER if pod == owner.driver_pod else EXECUTOR
        with user_errors(self._cluster, "get", "pods/log", owner.namespace, pod):
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
