"""Printing of pod logs: a single log unchanged, several with the pod name before each line."""

from __future__ import annotations

import math
import os
from threading import Lock, Thread

import typer

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.values import PositiveDuration

from ..kube.cluster import Cluster
from ..kube.logs import Excerpt, PodLogs
from ..kube.refusals import MissingError
from ..kube.user_queries import UserQueries
from ..resources.names import Owner
from .query_view import QueryView

_INTERRUPTED = 130
"""Exit code of a process ended by Ctrl-C."""


def seconds(since: str) -> int:
    """Return the whole seconds of ``--since``, at least 1.

    Raises:
        MillraceError: if the text is not a duration.
    """
    try:
        return math.ceil(PositiveDuration(since).seconds)
    except ValueError as error:
        raise MillraceError(Problem(str(error), field="--since")) from None


def print_logs(cluster: Cluster, name: str, excerpt: Excerpt, *, executors: bool) -> None:
    """Print the log of the driver, or the logs of all current executors.

    Raises:
        MillraceError: if the query does not exist, has no such pods, or a log cannot be read.
    """
    view = QueryView(UserQueries(cluster).get(name))
    owner = Owner(view.namespace, view.name, view.body["metadata"]["uid"])
    logs = PodLogs(cluster)
    pods = logs.executors(owner) if executors else [owner.driver_pod]
    if not pods:
        raise MillraceError(Problem(f"{name} has no executors now, its phase is {view.phase}", _hint(name)))
    try:
        if excerpt.follow and executors:
            _together(logs, owner, pods, excerpt)
        else:
            for pod in pods:
                _print(logs, owner, pod, excerpt, executors, Lock())
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None


def _together(logs: PodLogs, owner: Owner, pods: list[str], excerpt: Excerpt) -> None:
    """Follow the logs of all pods at once, line by line, until all have ended."""
    lock, failures = Lock(), list[MillraceError | OSError]()

    def follow(pod: str) -> None:
        try:
            _print(logs, owner, pod, excerpt, True, lock)
        except (MillraceError, OSError) as error:
            failures.append(error)

    threads = [Thread(target=follow, args=(pod,)) for pod in pods]
    try:
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    except KeyboardInterrupt:
        os._exit(_INTERRUPTED)  # threads blocked on a line cannot be stopped, and daemon threads may abort at exit
    if failures:
        raise failures[0]


def _print(logs: PodLogs, owner: Owner, pod: str, excerpt: Excerpt, prefixed: bool, lock: Lock) -> None:
    prefix = f"[{pod}] ".encode() if prefixed else b""
    try:
        for line in logs.lines(owner, pod, excerpt):
            with lock:
                typer.echo(prefix + line.removesuffix(b"\n"))
    except MissingError as error:
        raise MillraceError(Problem(f"there is no log of {pod}: {error}", _hint(owner.name))) from None


def _hint(name: str) -> str:
    return f"millrace status {name} says how the query is"
