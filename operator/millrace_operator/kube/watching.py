"""Live view of all queries, kept up to date by a watch."""

from __future__ import annotations

import threading
from http import HTTPStatus
from typing import Any

from kubernetes.client import ApiException, CustomObjectsApi
from kubernetes.watch import Watch

from millrace_api.crd.document import GROUP, PLURAL, VERSION
from millrace_api.errors import MillraceError
from millrace_support.backoff import Backoff

from ..resources.names import Manifest
from .cluster import TIMEOUT, Cluster
from .refusals import QUERIES, user_errors
from .user_queries import PEOPLES, Listed, UserQueries

_WATCH = 50
"""Seconds after which the server ends a watch, so that a lost server is noticed."""

_Key = tuple[str, str]


class WatchedQueries:
    """Queries of one or all namespaces, followed by a background thread from ``start`` to ``stop``."""

    def __init__(self, cluster: Cluster, *, everywhere: bool) -> None:
        """List the queries.

        Raises:
            MillraceError: the server is unreachable or refuses.
        """
        self._cluster, self._everywhere = cluster, everywhere
        self._stopped = threading.Event()
        self._items: dict[_Key, Manifest] = {}
        self._problem = ""
        self._version = self._listed()

    @property
    def items(self) -> list[Manifest]:
        """Queries as last observed."""
        return list(self._items.values())

    @property
    def problem(self) -> str:
        """Reason why the queries are not being followed now; empty if they are."""
        return self._problem

    def start(self) -> None:
        """Start following the queries."""
        threading.Thread(target=self._follow, name="watch", daemon=True).start()

    def stop(self) -> None:
        """Stop following the queries once the current watch has ended."""
        self._stopped.set()

    def _follow(self) -> None:
        backoff = Backoff()
        while not self._stopped.is_set():
            try:
                self._watch()
                backoff.reset()
            except MillraceError as error:
                self._problem = str(error)
                self._stopped.wait(backoff.next())
                self._version = ""

    def _watch(self) -> None:
        """Follow one watch to its end; list the queries first if the last watch broke."""
        if not self._version:
            self._version = self._listed()
        namespace = None if self._everywhere else self._cluster.namespace
        with user_errors(self._cluster, "watch", QUERIES, namespace):
            try:
                for event in filter(None, self._events(namespace)):  # None stands for a line without an event
                    self._take(event["type"], event["raw_object"])
            except ApiException as error:
                if error.status != HTTPStatus.GONE:
                    raise
                self._version = ""  # the version is too old to watch from: list again

    def _events(self, namespace: str | None) -> Any:
        api = CustomObjectsApi(self._cluster.client)
        place = (GROUP, VERSION, PLURAL) if namespace is None else (GROUP, VERSION, namespace, PLURAL)
        return Watch().stream(  # type: ignore[no-untyped-call]
            api.list_cluster_custom_object if namespace is None else api.list_namespaced_custom_object,
            *place,
            resource_version=self._version,
            label_selector=PEOPLES,
            allow_watch_bookmarks=True,
            timeout_seconds=_WATCH,
            _request_timeout=(TIMEOUT[0], _WATCH + TIMEOUT[1]),
        )

    def _listed(self) -> str:
        found: Listed = UserQueries(self._cluster).all(everywhere=self._everywhere)
        self._items = {_key(item): item for item in found.items}
        self._problem = ""
        return found.version

    def _take(self, kind: str, item: Manifest) -> None:
        # replaced, never changed in place: the drawing thread may be reading it
        self._version = item["metadata"]["resourceVersion"]
        if kind in ("ADDED", "MODIFIED"):
            self._items = self._items | {_key(item): item}
        elif kind == "DELETED":
            self._items = {key: each for key, each in self._items.items() if key != _key(item)}


def _key(item: Manifest) -> _Key:
    return item["metadata"]["namespace"], item["metadata"]["name"]
