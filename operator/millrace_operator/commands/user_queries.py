"""StreamQueries on the API server, read, changed and watched on behalf of a user."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kubernetes.client import CoreV1Api
from kubernetes.utils import Backoff as ConflictBackoff
from kubernetes.utils import retry_on_conflict

from millrace_api.crd import CONNECTIONS_PLURAL, GROUP, PLURAL
from millrace_api.errors import MillraceError, Problem
from millrace_api.model.connections import ConnectionSpec
from millrace_api.model.streamquery import CANARY_LABEL
from millrace_api.validation.connections import Connections, references
from millrace_api.validation.loading import read_connection
from millrace_support.backoff import Backoff

from ..kube.client import CONNECTIONS, MERGE, QUERIES
from ..kube.informer import VersionTooOldError, watch_events
from ..kube.query_api import EVENTS
from ..lifecycle.query_view import QueryView
from ..resources.names import Manifest, scaling_config_map
from ..telemetry.logs import in_short
from .cluster import TIMEOUT, Cluster, MissingError, user_errors

RESOURCE = f"{PLURAL}.{GROUP}"
_SELECTOR = f"!{CANARY_LABEL}"
_CONFLICTS = ConflictBackoff(steps=10, duration=0.02, factor=1.5, jitter=0.5)

_WATCH_SECONDS = 50
"""Seconds after which the server ends a watch, so that a lost server is noticed."""


class UserQueries:
    """API for the queries of one cluster. All methods raise MillraceError with a message for the user."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def get(self, name: str) -> QueryView:
        """Return a query of the namespace."""
        with self._user_errors("get", name):
            return QueryView(self._request("GET", name))

    def all(self, *, everywhere: bool) -> tuple[list[QueryView], str]:
        """Return the queries of the namespace or of all namespaces, without canaries, and their resource version."""
        namespace = None if everywhere else self._cluster.namespace
        with user_errors(self._cluster, "list", RESOURCE, namespace):
            query = {"labelSelector": _SELECTOR}
            found = self._cluster.client.request("GET", QUERIES.path(namespace), query, timeout=TIMEOUT)
        return [QueryView(item) for item in found["items"]], found["metadata"]["resourceVersion"]

    def change(self, name: str, patch: Manifest) -> QueryView:
        """Merge fields into a query and return the result."""
        with self._user_errors("patch", name):
            return QueryView(self._request("PATCH", name, patch))

    def connections(self, *documents: Mapping[str, Any]) -> Connections:
        """Return the Connections of the namespace, if any of these queries refers to one."""
        if not any(True for document in documents for _ in references(document)):
            return {}
        resource = f"{CONNECTIONS_PLURAL}.{GROUP}"
        with user_errors(self._cluster, "list", resource, self._cluster.namespace):
            path = CONNECTIONS.path(self._cluster.namespace)
            items = self._cluster.client.request("GET", path, {}, timeout=TIMEOUT)["items"]
        return {each["metadata"]["name"]: _connection(each) for each in items}

    def scale(self, name: str, executors: int) -> None:
        """Set the number of executors, like ``kubectl scale``."""
        with self._user_errors("patch", name, f"{RESOURCE}/scale"):
            self._request("PATCH", f"{name}/scale", {"spec": {"replicas": executors}})

    def restart(self, name: str) -> QueryView:
        """Increment ``spec.restartNonce`` and return the query.

        Two concurrent calls make two restarts, because a change applies only to the version that was read.
        """

        def increase() -> QueryView:
            body = self.get(name).body
            nonce = body["spec"].get("restartNonce") or 0
            version = {"resourceVersion": body["metadata"]["resourceVersion"]}
            return QueryView(self._request("PATCH", name, {"metadata": version, "spec": {"restartNonce": nonce + 1}}))

        with self._user_errors("patch", name):
            return retry_on_conflict(increase, _CONFLICTS)

    def decision(self, name: str) -> str | None:
        """Return the last scaling decision that the operator saved, as JSON; None if it saved no decision."""
        return (self.config_map(scaling_config_map(name)) or {}).get("decision.json")

    def config_map(self, name: str) -> dict[str, str] | None:
        """Return the data of a ConfigMap of the namespace; None if it does not exist."""
        try:
            with user_errors(self._cluster, "get", "configmaps", self._cluster.namespace, name):
                found = CoreV1Api(self._cluster.client).read_namespaced_config_map(
                    name, self._cluster.namespace, _request_timeout=TIMEOUT
                )
        except MissingError:
            return None
        return dict(found.data or {})

    def events(self, name: str) -> list[Manifest]:
        """Return the events of a query, which the API server keeps for an hour by default."""
        namespace = self._cluster.namespace
        chosen = {"fieldSelector": f"involvedObject.kind=StreamQuery,involvedObject.name={name}"}
        with user_errors(self._cluster, "list", "events", namespace):
            found = self._cluster.client.request("GET", EVENTS.path(namespace), chosen, timeout=TIMEOUT)
        return list(found["items"])

    def _request(self, method: str, name: str, patch: Manifest | None = None) -> Manifest:
        path = QUERIES.path(self._cluster.namespace, name)
        return self._cluster.client.request(method, path, {}, patch, MERGE, TIMEOUT)

    @contextmanager
    def _user_errors(self, verb: str, name: str, resource: str = RESOURCE) -> Iterator[None]:
        try:
            with user_errors(self._cluster, verb, resource, self._cluster.namespace, name):
                yield
        except MissingError:
            raise MissingError(self._missing(name)) from None

    def _missing(self, name: str) -> Problem:
        """Return the problem of a missing query, with similar names as a hint."""
        problem = f'there is no StreamQuery "{name}" in namespace {self._cluster.namespace}'
        try:
            names = [query.name for query in self.all(everywhere=False)[0]]
        except MillraceError:  # a user who may get queries may not be allowed to list them
            return Problem(problem, "choose another namespace with -n")
        similar = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        if similar:
            return Problem(problem, f"did you mean {' or '.join(similar)}?")
        hint = f"millrace status -n {self._cluster.namespace} lists the queries, -A those of all namespaces"
        return Problem(problem, hint)


def _connection(body: Manifest) -> ConnectionSpec | MillraceError:
    try:
        return read_connection(body)
    except MillraceError as error:
        return error


class WatchedQueries:
    """Queries of one or all namespaces, followed by a background thread from ``start`` to ``stop``."""

    def __init__(self, cluster: Cluster, *, everywhere: bool) -> None:
        """List the queries.

        Raises:
            MillraceError: the server is unreachable or refuses.
        """
        self._cluster, self._everywhere = cluster, everywhere
        self._stopped = threading.Event()
        self._items: dict[tuple[str, str], QueryView] = {}
        self.problem = ""
        """Reason why the queries are not being followed now; empty if they are."""
        self._version = self._listed()

    @property
    def items(self) -> list[QueryView]:
        """Queries as last observed."""
        return list(self._items.values())

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
            except Exception as error:  # if this thread ended, the screen would stand still and not say so
                self.problem = str(error) if isinstance(error, MillraceError) else in_short(error)
                self._version = ""
            self._stopped.wait(backoff.next())  # also after a watch that a proxy has ended at once

    def _watch(self) -> None:
        """Follow one watch to its end; list the queries first if the last watch broke."""
        if not self._version:
            self._version = self._listed()
        namespace = None if self._everywhere else self._cluster.namespace
        with user_errors(self._cluster, "watch", RESOURCE, namespace):
            timeout = TIMEOUT[0], _WATCH_SECONDS + TIMEOUT[1]
            watched = self._cluster.client, QUERIES.path(namespace), _SELECTOR
            try:
                for event in watch_events(*watched, self._version, _WATCH_SECONDS, timeout):
                    self._handle(event["type"], QueryView(event["object"]))
            except VersionTooOldError:
                self._version = ""  # list again

    def _listed(self) -> str:
        queries, version = UserQueries(self._cluster).all(everywhere=self._everywhere)
        self._items = {_key(query): query for query in queries}
        self.problem = ""
        return version

    def _handle(self, kind: str, query: QueryView) -> None:
        # the dictionary is replaced, never changed in place: the drawing thread may be reading it
        self._version = query.body["metadata"]["resourceVersion"]
        if kind in ("ADDED", "MODIFIED"):
            self._items = self._items | {_key(query): query}
        elif kind == "DELETED":
            self._items = {each: value for each, value in self._items.items() if each != _key(query)}


def _key(query: QueryView) -> tuple[str, str]:
    return query.namespace, query.name
