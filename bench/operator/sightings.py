"""Times when a client that watches the cluster saw the states of each query, by this process's own clock."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from kubernetes.client import ApiClient, CoreV1Api, CustomObjectsApi
from urllib3.exceptions import HTTPError

from bench.operator.fleet import Key
from millrace_api.crd import GROUP, PLURAL, VERSION
from millrace_api.model.streamquery import DRIVER, QUERY_LABEL, ROLE_LABEL

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
        """Start to watch, in threads that last as long as the process or until the API server ends."""
        queries, pods = CustomObjectsApi(client()), CoreV1Api(client())
        how: dict[str, Any] = {
            "watch": True,
            "timeout_seconds": _LONGEST,
            "_preload_content": False,
            "_request_timeout": _LONGEST,
        }

        def follow_queries() -> None:
            for event in _events(queries.list_cluster_custom_object(GROUP, VERSION, PLURAL, **how)):
                self.query_seen(event)

        def follow_pods() -> None:
            drivers = f"{QUERY_LABEL},{ROLE_LABEL}={DRIVER}"
            for event in _events(pods.list_pod_for_all_namespaces(label_selector=drivers, **how)):
                self.pod_seen(event)

        for follow in (follow_queries, follow_pods):
            threading.Thread(target=follow, daemon=True).start()

    def query_seen(self, event: dict[str, Any]) -> None:
        """Note what a watch event of a StreamQuery shows."""
        now, body = time.monotonic(), event["object"]
        key, status = _key(body), body.get("status", {})
        if event["type"] == "DELETED":
            self.gone.setdefault(key, now)
            return
        if status.get("phase") == "Running":
            self.running.setdefault(key, now)
        self.observed.setdefault((key, status.get("observedGeneration", 0)), now)

    def pod_seen(self, event: dict[str, Any]) -> None:
        """Note what a watch event of a driver's pod shows."""
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
    with suppress(HTTPError):  # the API server has ended
        for part in answer.stream(1 << 16, decode_content=True):
            *lines, rest = (rest + part).split(b"\n")
            yield from map(json.loads, filter(None, lines))
