"""A fleet of queries in several namespaces, as users make it: applied, changed and deleted by a client of its own."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kubernetes.client import ApiClient, CoreV1Api, CustomObjectsApi, V1Namespace

from millrace_api.crd.document import GROUP, PLURAL, VERSION

NAMESPACES = 10
TIMEOUT = (5.0, 60.0)
"""Seconds to connect, and to answer."""

Key = tuple[str, str]
"""Namespace and name of a query."""

_QUERY: dict[str, Any] = {
    "apiVersion": f"{GROUP}/{VERSION}",
    "kind": "StreamQuery",
    "metadata": {},
    "spec": {
        "sources": {
            "trips": {
                "kafka": {"bootstrapServers": "kafka:9092", "topic": "trips", "startingOffsets": "earliest"},
                "format": "json",
                "schema": "medallion STRING, cell STRING, fare DOUBLE, pickup TIMESTAMP",
                "watermark": {"column": "pickup", "delay": "30s"},
            }
        },
        "query": {
            "sql": "SELECT window.start AS since, cell, count(*) AS trips, avg(fare) AS fare "
            "FROM trips GROUP BY window(pickup, '10 minutes', '1 minute'), cell"
        },
        "sink": {"kafka": {"bootstrapServers": "kafka:9092", "topic": "trips-by-cell", "key": ["cell"]}},
        "checkpoint": {"claim": "checkpoints"},
        "executors": {"initial": 2, "min": 1, "max": 8},
    },
}


class Fleet:
    """So many queries, spread over namespaces.

    Args:
        client: of the users.
        size: how many there are.
        rate: changes a second at most, one after the other.
    """

    def __init__(self, client: ApiClient, size: int, rate: float) -> None:
        self._core = CoreV1Api(client)
        self._queries = CustomObjectsApi(client)
        self._rate = rate
        self.keys: list[Key] = [(f"fleet-{number % NAMESPACES}", f"query-{number}") for number in range(size)]

    def make_namespaces(self) -> None:
        """Before anything is applied to them."""
        for namespace in self._namespaces():
            self._core.create_namespace(
                V1Namespace.model_validate({"metadata": {"name": namespace}}), _request_timeout=TIMEOUT
            )

    def apply(self) -> None:
        """Apply all of them, from the server's side as ``kubectl apply --server-side`` does."""
        for key in self._paced(self.keys):
            self._apply(key, _QUERY["spec"])

    def change(self, keys: Iterable[Key], said: Callable[[Key, float, int], None]) -> None:
        """Change the spec of some; ``said`` is told when each was sent, and which generation that made."""
        spec = copy.deepcopy(_QUERY["spec"])
        spec["executors"]["max"] += 1
        for key in self._paced(keys):
            sent = time.monotonic()
            said(key, sent, int(self._apply(key, spec)["metadata"]["generation"]))

    def delete(self) -> None:
        """Ask for the deletion of all of them at once."""
        for namespace in self._namespaces():
            self._queries.delete_collection_namespaced_custom_object(
                GROUP, VERSION, namespace, PLURAL, _request_timeout=TIMEOUT
            )

    def _namespaces(self) -> list[str]:
        return sorted({namespace for namespace, _ in self.keys})

    def _apply(self, key: Key, spec: dict[str, Any]) -> Any:
        """The query as it is then; None where it is new: the library reads no answer with status 201."""
        namespace, name = key
        return self._queries.patch_namespaced_custom_object(
            GROUP,
            VERSION,
            namespace,
            PLURAL,
            name,
            _QUERY | {"metadata": {"name": name, "namespace": namespace}, "spec": spec},
            field_manager="bench",
            _content_type="application/apply-patch+yaml",
            _request_timeout=TIMEOUT,
        )

    def _paced(self, keys: Iterable[Key]) -> Iterator[Key]:
        """The keys, none of them before its time; what comes late makes the next ones no earlier."""
        due = time.monotonic()
        for key in keys:
            time.sleep(max(due - time.monotonic(), 0.0))
            due = max(due, time.monotonic() - 1 / self._rate) + 1 / self._rate
            yield key
