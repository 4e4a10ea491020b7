"""Informer for the objects of one kind, by default with the query label: a list, then a watch, like client-go's.

All watches of the operator are informers; docs/architecture.md says why none of them is kopf's.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

from kubernetes.client import ApiException
from urllib3.exceptions import ReadTimeoutError

from millrace_api.model.streamquery import QUERY_LABEL
from millrace_support.backoff import Backoff

from ..lifecycle.objects.object_sizes import OUR_LABELS
from ..resources.names import Manifest
from ..telemetry.logs import in_short
from ..telemetry.watches import WatchHealth
from .client import JsonClient, ResourceKind, pages

WATCH_SECONDS, TIMEOUT = 300, (3.0, 70.0)
"""Seconds after which the API server ends a watch, and timeouts to connect and of silence, after which a watch is dead.

The API server sends a bookmark every minute. A dead watch is opened again before the canary counts as missed.
"""

_PAUSE_JITTER = 0.5
"""Share by which pauses vary, so that not all kinds are listed at once when an API server has been restarted."""

_MARGIN_SECONDS = 5.0
"""Seconds by which the API server may end a watch before its time."""

_LIST_SECONDS = 0.05
"""Seconds between two looks whether all objects are listed."""

REFUSALS = (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)
"""Answers to a list in a namespace that is gone, or where the operator has no rights."""

_IDENTIFYING = frozenset({"name", "namespace", "uid", "resourceVersion"})

log = logging.getLogger(__name__)

EventHandler = Callable[[str, Manifest], None]
"""Receives an object and what became of it: LISTED, ADDED, MODIFIED or DELETED."""


class VersionTooOldError(Exception):
    """The resource version is too old to watch from."""


class Informer:
    """Informer that reports each object and each change of one, from its own thread.

    Deletions missed by a watch are reported after the next list, with the fields that identify the object, since no
    more is kept of it. No error of a watch or of the handler ends the informer; a deletion that the handler failed
    at is reported again after the next list. When a connection breaks, or ends before its time, all objects are listed
    again, as a backup with earlier versions may have been restored; client-go would watch on where it was. A watch
    that is silent or refused is opened again where it was, so that its health says for how long. When the API server
    refuses a namespace that is watched by name, its objects count as deleted until it can be listed again.

    Args:
        client: client for the API server.
        kind: kind of the objects.
        namespace: namespace of the objects; None for all.
        on_event: handler of the events, which must be fast; the bodies include the kind.
        health: where the informer reports what it hears.
        on_restore: called when a listed object is older than the informer has seen it, see ``is_restored``.
        selector: labels of the objects; empty for all objects.
    """

    def __init__(
        self,
        client: JsonClient,
        kind: ResourceKind,
        namespace: str | None,
        on_event: EventHandler,
        health: WatchHealth,
        on_restore: Callable[[], None],
        selector: str = QUERY_LABEL,
    ) -> None:
        self.listed = threading.Event()
        self._client = client
        self._kind = kind
        self._namespace = namespace
        self._path = kind.path(namespace)
        self._on_event = on_event
        self._health = health
        self._on_restore = on_restore
        self._selector = selector
        self._known: dict[str, Manifest] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch-{kind.plural}", daemon=True)

    def start(self) -> None:
        """Start with a list; ``listed`` is set when it is complete."""
        self._thread.start()

    def stop(self) -> None:
        """Stop reporting; a waiting watch is not interrupted."""
        self._ended.set()

    def _run(self) -> None:
        version, backoff, last_error = "", Backoff(jitter=_PAUSE_JITTER), ""
        while not self._ended.is_set():
            try:
                if not version:
                    version = self._list()
                    last_error = ""
                has_events, began = False, time.monotonic()
                for event in watch_events(self._client, self._path, self._selector, version, WATCH_SECONDS, TIMEOUT):
                    version, has_events = self._report(event), True
                    self._health.heard(len(self._known))
                    backoff.reset()
                    last_error = ""
                    if self._ended.is_set():
                        return
                if time.monotonic() - began < WATCH_SECONDS - _MARGIN_SECONDS:
                    raise ConnectionError("the connection ended before its time")
                if has_events:
                    continue
            except VersionTooOldError:
                version = ""
            except Exception as error:  # without this watch, the operator would miss all changes
                if not isinstance(error, ApiException | ReadTimeoutError):
                    version = ""
                text = in_short(error)
                is_new, last_error = text != last_error, text  # a missing right would be logged twice a minute
                is_refused = isinstance(error, ApiException) and error.status in REFUSALS
                if is_refused and self._namespace is not None:
                    version = ""
                    self._drop()
                else:
                    self._health.failed()
                if is_new:
                    kind = self._kind.plural
                    if is_refused:
                        where = f"namespace {self._namespace}" if self._namespace else "all namespaces"
                        log.warning("%s of %s are not watched until they can be: %s", kind, where, text)
                    else:
                        log.warning("the watch of %s is restarted: %s", kind, text)
            self._ended.wait(backoff.next())

    def _drop(self) -> None:
        """Report all objects as deleted, and the list as complete, so that nothing waits for it."""
        self._health.refuse()
        for uid in list(self._known):
            self._notify_deleted(uid, self._known[uid])
        self.listed.set()

    def _list(self) -> str:
        """Report all objects and the deletions since the last list; return the list's resource version."""
        found: set[str] = set()
        for page in pages(self._client, self._path, self._selector):
            for body in page["items"]:
                uid = body["metadata"]["uid"]
                if is_restored(self._known.get(uid), body):
                    self._on_restore()
                found.add(uid)
                self._report_seen("LISTED", body)
            version = page["metadata"]["resourceVersion"]
        for uid in self._known.keys() - found:
            self._notify_deleted(uid, self._known[uid])
        self._health.heard(len(self._known))
        self.listed.set()
        return str(version)

    def _report(self, event: Manifest) -> str:
        """Report one event; return the resource version to continue from."""
        type, body = event["type"], event["object"]
        if type == "DELETED":
            self._notify_deleted(body["metadata"]["uid"], body | self._kind.type_meta)
        elif type != "BOOKMARK":
            self._report_seen(type, body)
        return str(body["metadata"]["resourceVersion"])

    def _report_seen(self, type: str, body: Manifest) -> None:
        body = body | self._kind.type_meta
        before = self._known.get(body["metadata"]["uid"])
        self._known[body["metadata"]["uid"]] = now = identity(body)
        is_of_query = self._selector == QUERY_LABEL
        if is_of_query and before is not None and _query_in(before) != _query_in(now):  # it moved to another query
            self._notify("DELETED", before)
        self._notify(type, body)

    def _notify_deleted(self, uid: str, body: Manifest) -> None:
        """Report a deletion, and forget the object if its handler has done its part."""
        if self._notify("DELETED", body):
            self._known.pop(uid, None)

    def _notify(self, type: str, body: Manifest) -> bool:
        """Return whether the handler has done its part; an error is counted."""
        try:
            self._on_event(type, body)
        except Exception as error:  # one object must not end the watch of all
            self._health.failed()
            log.warning("an event of %s is left out: %s", self._kind.plural, in_short(error))
            return False
        return True


def wait_until_listed(informers: Iterable[Informer], stopped: threading.Event) -> bool:
    """Wait until informers have listed all their objects; return False if stopped before."""
    while not all(informer.listed.is_set() for informer in informers):
        if stopped.wait(_LIST_SECONDS):
            return False
    return not stopped.is_set()


def watch_events(
    client: JsonClient, path: str, selector: str, version: str, seconds: int, timeout: tuple[float, float]
) -> Iterator[Manifest]:
    """Yield the events of a watch, which the API server ends after ``seconds``; its objects lack version and kind.

    Raises:
        VersionTooOldError: the resource version is too old to watch from, so all objects must be listed again.
        ApiException: the API server refuses the watch, or ends it with an error.
    """
    query = {
        "labelSelector": selector,
        "watch": "true",
        "resourceVersion": version,
        "allowWatchBookmarks": "true",
        "timeoutSeconds": str(seconds),
    }
    try:
        for event in client.lines(path, query, timeout):
            if event["type"] == "ERROR":
                raise ApiException(status=event["object"].get("code"), reason=event["object"].get("message"))
            yield event
    except ApiException as error:
        if error.status == HTTPStatus.GONE:
            raise VersionTooOldError from None
        raise


def _query_in(body: Manifest) -> str | None:
    query: str | None = body["metadata"].get("labels", {}).get(QUERY_LABEL)
    return query


def is_restored(before: Mapping[str, Any] | None, listed: Mapping[str, Any]) -> bool:
    """Return whether a listed object is older than the same watch has seen it: a backup was restored meanwhile.

    Lists are consistent reads. Resource versions are increasing numbers (guaranteed from Kubernetes 1.35 on).
    """
    if before is None:
        return False
    old, new = (str(each["metadata"].get("resourceVersion", "")) for each in (before, listed))
    return old.isdecimal() and new.isdecimal() and int(new) < int(old)


def identity(body: Mapping[str, Any]) -> Manifest:
    """Return the fields of an object that identify it, which are enough to report its deletion."""
    metadata = {name: value for name, value in body["metadata"].items() if name in _IDENTIFYING}
    labels = body["metadata"].get("labels") or {}
    metadata["labels"] = {name: value for name, value in labels.items() if name in OUR_LABELS}
    return {"apiVersion": body["apiVersion"], "kind": body["kind"], "metadata": metadata}
