"""Printing of pod logs: a single log unchanged, several with the pod name before each line."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from threading import Lock, Thread
from typing import Any, NamedTuple

import typer
from kubernetes.client import ApiException, CoreV1Api

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.streamquery import DRIVER, EXECUTOR
from millrace_api.model.values import PositiveDuration

from ..resources.names import Owner
from .cluster import TIMEOUT, Cluster, MissingError, user_errors
from .user_queries import UserQueries

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


def seconds(since: str) -> int:
    """Return the whole seconds of ``--since``, at least 1.

    Raises:
        MillraceError: the text is not a duration.
    """
    try:
        return math.ceil(PositiveDuration(since).seconds)
    except ValueError as error:
        raise MillraceError(Problem(str(error), field="--since")) from None


def print_logs(cluster: Cluster, name: str, excerpt: Excerpt, *, executors: bool) -> None:
    """Print the log of the driver, or the logs of all current executors.

    Raises:
        MillraceError: the query does not exist, has no such pods, or a log cannot be read.
    """
    query = UserQueries(cluster).get(name)
    logs = _PodLogs(cluster, Owner(query.namespace, query.name, query.body["metadata"]["uid"]), excerpt)
    pods = logs.executors() if executors else [logs.owner.driver_pod]
    if not pods:
        raise MillraceError(Problem(f"{name} has no executors now: its phase is {query.phase}", _hint(name)))
    with _ended_by_ctrl_c():
        if excerpt.follow and executors:
            logs.follow_together(pods)
        else:
            for pod in pods:
                logs.print(pod, prefixed=executors)


@contextmanager
def _ended_by_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C end the process at once, as it ends ``tail -f``.

    Python's own handler only leaves a note for the main thread. If that starts to wait for a thread or a line at that
    moment, it misses the note and waits forever.
    """
    handler = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


class _PodLogs:
    """Logs of one query's pods. All methods raise MillraceError with a message for the user."""

    def __init__(self, cluster: Cluster, owner: Owner, excerpt: Excerpt) -> None:
        self.owner = owner
        self._cluster = cluster
        self._excerpt = excerpt
        self._core = CoreV1Api(cluster.client)
        self._printing = Lock()

    def executors(self) -> list[str]:
        """Return the names of the current executor pods, sorted."""
        namespace = self.owner.namespace
        labels = ",".join(f"{name}={value}" for name, value in self.owner.selector(EXECUTOR).items())
        with user_errors(self._cluster, "list", "pods", namespace):
            found = self._core.list_namespaced_pod(namespace, label_selector=labels, _request_timeout=TIMEOUT)
        return sorted(str(pod.metadata.name) for pod in found.items if pod.metadata is not None)

    def follow_together(self, pods: list[str]) -> None:
        """Follow the logs of all pods at once, line by line, until all have ended."""
        failures = list[MillraceError | OSError]()

        def follow(pod: str) -> None:
            try:
                self.print(pod, prefixed=True)
            except (MillraceError, OSError) as error:
                failures.append(error)

        threads = [Thread(target=follow, args=(pod,)) for pod in pods]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        if failures:
            raise failures[0]

    def print(self, pod: str, *, prefixed: bool) -> None:
        """Print the log of one pod, each line with the pod's name if ``prefixed``."""
        prefix = f"[{pod}] ".encode() if prefixed else b""
        try:
            for line in self._lines(pod):
                with self._printing:
                    typer.echo(prefix + line.removesuffix(b"\n"))
        except MissingError as error:
            raise MillraceError(Problem(f"there is no log of {pod}: {error}", _hint(self.owner.name))) from None

    def _lines(self, pod: str) -> Iterator[bytes]:
        """Yield the lines of a log as they arrive. Raises MissingError if the pod is missing or not scheduled yet."""
        excerpt = self._excerpt
        with user_errors(self._cluster, "get", "pods/log", self.owner.namespace, pod):
            answer: Any = self._core.read_namespaced_pod_log(
                pod,
                self.owner.namespace,
                container=DRIVER if pod == self.owner.driver_pod else EXECUTOR,
                follow=excerpt.follow,
                previous=excerpt.previous,
                since_seconds=excerpt.since,
                tail_lines=excerpt.tail,
                _preload_content=False,
                _request_timeout=_FOLLOWING if excerpt.follow else TIMEOUT,
            )
            try:
                if answer.status == HTTPStatus.NO_CONTENT:
                    raise MissingError("the pod has not been scheduled to a node yet")
                if answer.status != HTTPStatus.OK:
                    body = answer.data.decode(errors="replace")
                    raise ApiException(answer.status, answer.reason, body=body)
                yield from answer
            finally:
                answer.close()


def _hint(name: str) -> str:
    return f"millrace status {name} shows the state of the query"
