"""Cache of the observed cluster state by query, filled from watches so that reads need no API request."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from millrace_api.model.streamquery import KIND, QUERY_LABEL
from millrace_api.validation.connections import references

from ..resources.names import Manifest
from ..resources.permissions import Permissions
from .executor_failures import FailedExecutor, FailedExecutors
from .kept import Kept
from .object_sizes import NAMESPACE_BYTES
from .observe import ObjectKey, ObservedQuery, QueryKey
from .seen_connections import SeenConnections

MOST_BYTES_OF_LIMITS = 128 << 10
"""Bytes of the ResourceQuotas and LimitRanges of a namespace that are kept; others do not limit scaling."""

_ROOM = 0.9
"""Share of these bytes below which queries are read again that were not kept."""

_IDENTIFYING = ("name", "namespace", "uid", "resourceVersion")

Key = TypeVar("Key")


class _Objects(Mapping[ObjectKey, Manifest]):
    """The objects of a query, each decoded when it is first read."""

    def __init__(self, kept: Mapping[ObjectKey, Kept]) -> None:
        self._kept = kept
        self._decoded: dict[ObjectKey, Manifest] = {}

    def __getitem__(self, key: ObjectKey) -> Manifest:
        if key not in self._decoded:
            self._decoded[key] = self._kept[key].body()
        return self._decoded[key]

    def __contains__(self, key: object) -> bool:
        return key in self._kept  # which decodes nothing

    def __iter__(self) -> Iterator[ObjectKey]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)


class Observations:
    """Thread-safe cache of all queries, their objects and quotas; handlers write to it, workers read from it.

    Responses to requests and watch events about one object may arrive out of order, so an older version never replaces
    a newer one. So many bytes are kept of each namespace. Of a query that does not fit, only the names of its objects
    are kept; it is to be read again once there is room.

    Args:
        permissions: what queries may ask for.
        namespace_bytes: bytes of JSON that are kept of one namespace.
    """

    def __init__(
        self,
        permissions: Permissions | None = None,
        namespace_bytes: int = NAMESPACE_BYTES,
    ) -> None:
        self.connections = SeenConnections()
        self._permissions = permissions or Permissions()
        self._most = namespace_bytes
        self._lock = threading.Lock()
        self._queries: dict[QueryKey, Kept] = {}
        self._objects: defaultdict[QueryKey, dict[ObjectKey, Kept]] = defaultdict(dict)
        self._limits: defaultdict[str, dict[ObjectKey, Kept]] = defaultdict(dict)
        self._failed: defaultdict[QueryKey, FailedExecutors] = defaultdict(FailedExecutors)
        self._bytes: defaultdict[str, int] = defaultdict(int)
        self._not_kept: set[QueryKey] = set()

    def query_seen(self, body: Mapping[str, Any]) -> QueryKey:
        """Store the observed version of a query; return its key."""
        key, now = QueryKey(body["metadata"]["namespace"], body["metadata"]["name"]), Kept(body)
        with self._lock:
            self._store(self._queries, key, now, key)
            if self._queries[key] is now:
                self.connections.refers(*key, body)
        return key

    def query_gone(self, body: Mapping[str, Any]) -> QueryKey:
        """Remove a deleted query; return its key."""
        key = QueryKey(body["metadata"]["namespace"], body["metadata"]["name"])
        with self._lock:
            self._remove(self._queries, key, body["metadata"]["uid"], key)
            if key not in self._queries:
                self.connections.forget(*key)
            self._forget_if_gone(key)
        return key

    def connection_seen(self, body: Manifest) -> list[QueryKey]:
        """Store a Connection; return the queries that refer to it if it leads to something else now."""
        return self._referring_to(body) if self.connections.seen(body) else []

    def connection_gone(self, body: Manifest) -> list[QueryKey]:
        """Remove a deleted Connection; return the queries that refer to it, if there was it."""
        return self._referring_to(body) if self.connections.gone(body) else []

    def object_seen(self, body: Manifest) -> QueryKey:
        """Store an object with a query's label; return the query's key."""
        key, failed, now = _query_of(body), FailedExecutor.of(body), Kept(body)
        with self._lock:
            self._store(self._objects[key], _key_of(body), now, key)
            if failed is not None:
                self._failed[key].add(failed)
        return key

    def object_gone(self, body: Manifest) -> QueryKey:
        """Remove a deleted object; return the key of its query."""
        key = _query_of(body)
        with self._lock:
            self._remove(self._objects[key], _key_of(body), body["metadata"]["uid"], key)
            if not self._objects[key]:
                del self._objects[key]
            self._forget_if_gone(key)
        return key

    def is_stored(self, body: Mapping[str, Any]) -> bool:
        """Return whether this very version of a query, or of an object of one, is stored already.

        The operator stores what its own changes return; a later report of them by a watch has nothing new.
        """
        metadata = body["metadata"]
        with self._lock:
            if body.get("kind") == KIND:
                found = self._queries.get(QueryKey(metadata["namespace"], metadata["name"]))
            else:
                found = self._objects.get(_query_of(body), {}).get(_key_of(body))
        return found is not None and found.is_version(metadata)

    def limit_seen(self, body: Manifest) -> None:
        """Store a ResourceQuota or a LimitRange, as far as there is room for it."""
        key, metadata = _key_of(body), {name: body["metadata"].get(name) for name in _IDENTIFYING}
        now = Kept({name: body.get(name) for name in ("kind", "spec", "status")} | {"metadata": metadata})
        with self._lock:
            found = self._limits[body["metadata"]["namespace"]]
            if key in found and now.is_older_than(found[key]):
                return
            found.pop(key, None)
            if "spec" in body and sum(map(len, found.values())) + len(now) <= MOST_BYTES_OF_LIMITS:
                found[key] = now

    def limit_gone(self, body: Manifest) -> None:
        """Remove a deleted ResourceQuota or LimitRange."""
        namespace, key = body["metadata"]["namespace"], _key_of(body)
        with self._lock:
            found = self._limits[namespace].get(key)
            if found is not None and found.uid == body["metadata"]["uid"]:
                del self._limits[namespace][key]
            if not self._limits[namespace]:
                del self._limits[namespace]

    def of(self, key: QueryKey) -> ObservedQuery | None:
        """Return the observed state of a query, or None if it no longer exists."""
        with self._lock:
            found = self._queries.get(key)
            if found is None:
                return None
            objects = dict(self._objects.get(key, {}))
            limits = list(self._limits.get(key.namespace, {}).values())
            failed = tuple(self._failed.get(key, ()))
            is_kept = key not in self._not_kept
        body = found.body()
        return ObservedQuery(
            body,
            _Objects(objects),
            tuple(each.body() for each in limits),
            permissions=self._permissions,
            failed_executors=failed,
            size=len(found),
            no_room=None if is_kept else self._most,
            cut=tuple(key for key, each in objects.items() if each.is_cut),
            connections=self.connections.of(key.namespace, (name for _, name in references(body))),
        )

    def has_room(self, key: QueryKey) -> bool:
        """Return whether a query that was not kept may be read again."""
        with self._lock:
            return self._bytes.get(key.namespace, 0) < _ROOM * self._most

    def read_again(self, key: QueryKey, query: Mapping[str, Any], objects: Iterable[Manifest]) -> None:
        """Store a query that was not kept, with its objects as they are read, as long as there is room for them."""
        with self._lock:
            self._not_kept.discard(key)
        self.query_seen(query)
        for each in objects:
            self.object_seen(each)
            if key in self._not_kept:
                break

    def kept_bytes(self) -> dict[str, int]:
        """Return the bytes that are kept, by namespace."""
        with self._lock:
            found = dict(self._bytes)
        for namespace, size in self.connections.kept_bytes().items():
            found[namespace] = found.get(namespace, 0) + size
        return found

    def queries(self) -> list[QueryKey]:
        """Return the keys of all queries."""
        with self._lock:
            return list(self._queries)

    def versions(self) -> list[tuple[QueryKey, object]]:
        """Return the keys of all queries, each with a value that changes when the query or an object of it does."""
        with self._lock:
            return [(key, (found, *self._objects.get(key, {}).values())) for key, found in self._queries.items()]

    def generation(self, key: QueryKey) -> int | None:
        """Return the generation of a query's spec, or None if the query no longer exists."""
        with self._lock:
            found = self._queries.get(key)
        return None if found is None else found.generation

    def phases(self) -> list[str]:
        """Return the last reported phase of each query but the canaries; Pending if none was reported."""
        with self._lock:
            return [each.phase for each in self._queries.values() if not each.is_canary]

    def _referring_to(self, connection: Manifest) -> list[QueryKey]:
        metadata = connection["metadata"]
        names = self.connections.referring_to(metadata["namespace"], metadata["name"])
        return [QueryKey(metadata["namespace"], name) for name in names]

    def _store(self, stored: dict[Key, Kept], at: Key, now: Kept, key: QueryKey) -> None:
        """Store an object of a query unless a newer version is stored."""
        before = stored.get(at)
        if before is not None and now.is_older_than(before):
            return
        if key in self._not_kept:
            now = now.reduced()
        self._count(key, len(now) - (0 if before is None else len(before)))
        stored[at] = now
        if self._bytes.get(key.namespace, 0) > self._most and key not in self._not_kept:
            self._reduce(key)

    def _remove(self, stored: dict[Key, Kept], at: Key, uid: str, key: QueryKey) -> None:
        """Remove an object of a query unless a later one of the same name is stored."""
        found = stored.get(at)
        if found is not None and found.uid == uid:
            del stored[at]
            self._count(key, -len(found))

    def _reduce(self, key: QueryKey) -> None:
        """Keep no more of a query than the names of its objects."""
        self._not_kept.add(key)
        places: list[tuple[dict[Any, Kept], object]] = [(self._queries, key)] if key in self._queries else []
        objects = self._objects.get(key, {})
        for stored, at in (*places, *((objects, at) for at in objects)):
            before, stored[at] = stored[at], stored[at].reduced()
            self._count(key, len(stored[at]) - len(before))

    def _count(self, key: QueryKey, more: int) -> None:
        self._bytes[key.namespace] += more
        if not self._bytes[key.namespace]:
            del self._bytes[key.namespace]

    def _forget_if_gone(self, key: QueryKey) -> None:
        """Forget which executors failed once neither the query nor an object of it is there."""
        if key not in self._queries and key not in self._objects:
            self._failed.pop(key, None)
            self._not_kept.discard(key)


def _query_of(body: Mapping[str, Any]) -> QueryKey:
    metadata = body["metadata"]
    return QueryKey(metadata["namespace"], metadata["labels"][QUERY_LABEL])


def _key_of(body: Mapping[str, Any]) -> ObjectKey:
    return body["kind"], body["metadata"]["name"]
