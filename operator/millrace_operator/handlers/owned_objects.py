"""Watches of the objects that belong to queries, found by label, of Connections, and of what limits pods.

An event goes to ``lifecycle.observation_cache``, and its query to the queue of ``lifecycle.reconcile``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millrace_api.model.streamquery import QUERY_LABEL

from ..kube.client import CONNECTIONS, Client
from ..kube.informer import Informer
from ..kube.object_api import LIMITING, OWNED
from ..lifecycle.observation_cache import ObservationCache
from ..lifecycle.observed_query import QueryKey
from ..lifecycle.workqueue import WorkQueue
from ..resources.names import Manifest
from ..telemetry.watches import Watches

DEBOUNCE_SECONDS = 0.25
"""Seconds within which changes of a query's objects are handled together, because they come in bursts."""


class OwnedObjects:
    """Watches of the objects of queries and of quotas, from ``start`` to ``stop``; other shards' objects are ignored.

    Args:
        client: client for the API server.
        namespaces: namespaces to watch; empty for all.
        observations: where observed objects are stored.
        queue: receives the queries whose objects have changed.
        owns: returns whether a query, given by namespace and name, belongs to this operator.
        watches: where the watches report their health.
        on_restore: called when the API server's store was restored from a backup.

    Attributes:
        required: informers that must have listed everything before the first step. Those of what limits pods are not
            among them: an operator without the rights to read that works, too.
    """

    def __init__(
        self,
        client: Client,
        namespaces: Sequence[str],
        observations: ObservationCache,
        queue: WorkQueue[QueryKey],
        owns: Callable[[str, str], bool],
        watches: Watches,
        on_restore: Callable[[], None],
    ) -> None:
        self._observations, self._queue, self._owns = observations, queue, owns
        self.required = [
            Informer(client, kind, namespace, self._on_event, watches.of(kind.plural, namespace), on_restore)
            for kind in OWNED
            for namespace in namespaces or (None,)
        ]
        self.required += [
            Informer(
                client,
                CONNECTIONS,
                namespace,
                self._on_connection,
                watches.of(CONNECTIONS.plural, namespace),
                on_restore,
                selector="",
            )
            for namespace in namespaces or (None,)
        ]
        self._limits = [
            Informer(
                client,
                kind,
                namespace,
                self._on_limit,
                watches.of(kind.plural, namespace, needed=False),
                on_restore,
                selector="",
            )
            for kind in LIMITING
            for namespace in namespaces or (None,)
        ]

    def start(self) -> None:
        """Start listing and watching."""
        for informer in (*self.required, *self._limits):
            informer.start()

    def stop(self) -> None:
        """Stop watching."""
        for informer in (*self.required, *self._limits):
            informer.stop()

    def _on_event(self, type: str, body: Manifest) -> None:
        metadata = body["metadata"]
        if self._owns(metadata["namespace"], metadata["labels"][QUERY_LABEL]):
            if type == "DELETED":
                self._queue.add_later(self._observations.object_gone(body), DEBOUNCE_SECONDS)
            elif not self._observations.is_stored(body):  # as what the operator itself has just applied is
                self._queue.add_later(self._observations.object_seen(body), DEBOUNCE_SECONDS)

    def _on_connection(self, type: str, body: Manifest) -> None:
        update = self._observations.connection_gone if type == "DELETED" else self._observations.connection_seen
        for key in update(body):
            self._queue.add_later(key, DEBOUNCE_SECONDS)

    def _on_limit(self, type: str, body: Manifest) -> None:
        update = self._observations.limit_gone if type == "DELETED" else self._observations.limit_seen
        update(body)
