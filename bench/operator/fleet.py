"""A fleet of queries in several namespaces, which a client of its own applies, changes and deletes as users do.

Another client watches the cluster and records when it saw the states of each query, by this process's own clock.
"""

from __future__ import annotations

import copy
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from kubernetes.client import (
    ApiClient,
    CoreV1Api,
    CustomObjectsApi,
    V1Namespace,
    V1PersistentVolume,
    V1PersistentVolumeClaim,
)
from urllib3.exceptions import HTTPError

from lab.claims import claim_and_volume
from millrace_api.crd import GROUP, PLURAL, VERSION
from millrace_api.model.streamquery import DRIVER, QUERY_LABEL, ROLE_LABEL

NAMESPACES = 10
TIMEOUT = (5.0, 60.0)
"""Timeouts in seconds for connecting and for the response."""

Key = tuple[str, str]
"""Namespace and name of a query."""

_QUERY: dict[str, Any] = {
    "apiVersion": f"{GROUP}/{VERSION}",
    "kind": "StreamQuery",
    "metadata": {},
    "spec": {
        "sources": {
            "trips": {
                "kafka": {"bootstrapServers": "kafka:9092", "topic": "trips", "startingOffsets": "Earliest"},
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
        "checkpoint": {"claimName": "checkpoints"},
        "executors": {"initial": 2, "min": 1, "max": 8},
    },
}


class QueryFleet:
    """A fleet of queries, spread over namespaces.

    Args:
        client: the users' client.
        size: number of queries.
        rate: maximum number of changes per second, which are sent one after the other.
        kib: KiB by which each query is larger, half of them in its SQL and half in the schema of its source.
    """

    def __init__(self, client: ApiClient, size: int, rate: float, kib: int = 0) -> None:
        self._core = CoreV1Api(client)
        self._queries = CustomObjectsApi(client)
        self._rate = rate
        self._spec = copy.deepcopy(_QUERY["spec"])
        self._spec["query"]["sql"] += f" -- {'x' * 512 * kib}"
        self._spec["sources"]["trips"]["schema"] += f" COMMENT '{'x' * 512 * kib}'"
        self.keys: list[Key] = [(f"fleet-{number % NAMESPACES}", f"query-{number}") for number in range(size)]

    def make_namespaces(self) -> None:
        """Create the namespaces, each with a claim for checkpoints. Call it before ``apply``."""
        for namespace in self._namespaces():
            self._core.create_namespace(
                V1Namespace.model_validate({"metadata": {"name": namespace}}), _request_timeout=TIMEOUT
            )
            claim, volume = claim_and_volume(namespace)
            self._core.create_persistent_volume(V1PersistentVolume.model_validate(volume), _request_timeout=TIMEOUT)
            self._core.create_namespaced_persistent_volume_claim(
                namespace, V1PersistentVolumeClaim.model_validate(claim), _request_timeout=TIMEOUT
            )

    def apply(self) -> None:
        """Apply all queries by server-side apply, as ``kubectl apply --server-side`` does."""
        for key in self._paced(self.keys):
            self._apply(key, self._spec)

    def change(self, keys: Iterable[Key], record: Callable[[Key, float, int], None]) -> None:
        """Change the spec of some queries, calling ``record`` with each key, the send time and the new generation."""
        spec = copy.deepcopy(self._spec)
        spec["executors"]["max"] += 1
        for key in self._paced(keys):
            sent = time.monotonic()
            record(key, sent, int(self._apply(key, spec)["metadata"]["generation"]))

    def delete(self) -> None:
        """Request the deletion of all queries at once."""
        for namespace in self._namespaces():
            self._queries.delete_collection_namespaced_custom_object(
                GROUP, VERSION, namespace, PLURAL, _request_timeout=TIMEOUT
            )

    def _namespaces(self) -> list[str]:
        return sorted({namespace for namespace, _ in self.keys})

    def _apply(self, key: Key, spec: dict[str, Any]) -> Any:
        """Apply a query and return it, or None if it is new: the library does not parse responses with status 201."""
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
        """Yield the keys at the fleet's rate. After a delay, the next keys do not come in a burst."""
        due = time.monotonic()
        for key in keys:
            time.sleep(max(due - time.monotonic(), 0.0))
            due = max(due, time.monotonic() - 1 / self._rate) + 1 / self._rate
            yield key


_LONGEST = 7200
"""Longest duration of a watch, in seconds."""


@dataclass
class Sightings:
    """Times of the first sighting of each state, by query, in seconds of ``time.monotonic``.

    Attributes:
        ready: the query's driver pod was ready.
        running: its phase was Running.
        observed: its status had observed a generation.
        gone: it was deleted.
    """

    ready: dict[Key, float] = field(default_factory=dict)
    running: dict[Key, float] = field(default_factory=dict)
    observed: dict[tuple[Key, int], float] = field(default_factory=dict)
    gone: dict[Key, float] = field(default_factory=dict)

    def watch(self, client: Callable[[], ApiClient]) -> None:
        """Start to watch, in threads that run until the process ends or the API server stops."""
        queries, pods = CustomObjectsApi(client()), CoreV1Api(client())
        options: dict[str, Any] = {
            "watch": True,
            "timeout_seconds": _LONGEST,
            "_preload_content": False,
            "_request_timeout": _LONGEST,
        }

        def follow_queries() -> None:
            for event in _events(queries.list_cluster_custom_object(GROUP, VERSION, PLURAL, **options)):
                self.query_seen(event)

        def follow_pods() -> None:
            drivers = f"{QUERY_LABEL},{ROLE_LABEL}={DRIVER}"
            for event in _events(pods.list_pod_for_all_namespaces(label_selector=drivers, **options)):
                self.pod_seen(event)

        for follow in (follow_queries, follow_pods):
            threading.Thread(target=follow, daemon=True).start()

    def query_seen(self, event: dict[str, Any]) -> None:
        """Record what a watch event of a StreamQuery shows."""
        now, body = time.monotonic(), event["object"]
        key, status = _key(body), body.get("status", {})
        if event["type"] == "DELETED":
            self.gone.setdefault(key, now)
            return
        if status.get("phase") == "Running":
            self.running.setdefault(key, now)
        self.observed.setdefault((key, status.get("observedGeneration", 0)), now)

    def pod_seen(self, event: dict[str, Any]) -> None:
        """Record what a watch event of a driver's pod shows."""
        body = event["object"]
        ready = any(
            each["type"] == "Ready" and each["status"] == "True"
            for each in body.get("status", {}).get("conditions", ())
        )
        if ready:
            namespace, _ = _key(body)
            self.ready.setdefault((namespace, body["metadata"]["labels"][QUERY_LABEL]), time.monotonic())


def _key(body: dict[str, Any]) -> Key:
    return body["metadata"]["namespace"], body["metadata"]["name"]


def _events(answer: Any) -> Iterator[dict[str, Any]]:
    rest = b""
    with suppress(HTTPError):  # the API server has stopped
        for part in answer.stream(1 << 16, decode_content=True):
            *lines, rest = (rest + part).split(b"\n")
            yield from map(json.loads, filter(None, lines))
