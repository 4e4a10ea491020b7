"""Cache of the observed cluster state by query, filled from watches so that reads need no API request.

``handlers`` write to it; ``reconcile`` reads an ``observed_query.ObservedQuery`` of it.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from millrace_api.model.streamquery import KIND, QUERY_LABEL
from millrace_api.validation.connections import references

from ..resources.gangs import POD_GROUP
from ..resources.names import Manifest
from ..resources.permissions import Permissions
from .connections.seen_connections import SeenConnections
from .objects.kept_object import KeptObject, version_in
from .objects.object_sizes import NAMESPACE_BYTES
from .observed_query import ObjectKey, ObservedQuery, QueryKey
from .pods.executor_failures import MOST_KEPT, FailedExecutor
from .query_memory import QueryMemory

MOST_BYTES_OF_LIMITS = 128 << 10
"""Bytes of the ResourceQuotas and LimitRanges of a namespace that are kept; others do not limit scaling."""

_ROOM = 0.9
"""Share of these bytes below which queries are read again that were not kept."""

_CLOCKS_DIFFER = timedelta(hours=1)
"""Time by which the clock of a driver may be ahead of the operator's; reports from later do not count."""

_IDENTIFYING = ("name", "namespace", "uid", "resourceVersion")


class _Objects(Mapping[ObjectKey, Manifest]):
    """The objects of a query, each decoded when it is first read."""

    def __init__(self, kept: Mapping[ObjectKey, KeptObject]) -> None:
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


@dataclass(slots=True)
class _SeenQuery:
    """A query as it was last seen, and its objects, which may be seen before it and after it is gone.

    Attributes:
        failed: its executors that failed, oldest first.
        is_kept: whether there is room for more than the names of its objects.
    """

    query: KeptObject | None = None
    memory: QueryMemory | None = None
    objects: dict[ObjectKey, KeptObject] = field(default_factory=dict)
    failed: tuple[FailedExecutor, ...] = ()
    is_kept: bool = True


class ObservationCache:
    """Thread-safe cache of all queries, their objects and quotas; handlers write to it, workers read from it.

    Responses to requests and watch events about one object may arrive out of order, so an older version never replaces
    a newer one, nor within a step brings back what was deleted after it. So many bytes are kept of each namespace. Of a
    query that does not fit, only the names of its objects are kept; it is to be read again once there is room.

    Args:
        permissions: what queries may ask for.
        namespace_bytes: bytes of JSON that are kept of one namespace.
        clock: the operator's clock.
    """

    def __init__(
        self,
        permissions: Permissions | None = None,
        namespace_bytes: int = NAMESPACE_BYTES,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._clock = clock
        self.connections = SeenConnections()
        self._permissions = permissions or Permissions()
        self._most = namespace_bytes
        self._lock = threading.Lock()
        self._records: defaultdict[QueryKey, _SeenQuery] = defaultdict(_SeenQuery)
        self._limits: defaultdict[str, dict[ObjectKey, KeptObject]] = defaultdict(dict)
        self._bytes: defaultdict[str, int] = defaultdict(int)
        self._gone: dict[QueryKey, dict[str, int | None]] = {}
        """Versions at which objects were deleted, by uid, for each query that is in a step."""

    @contextmanager
    def step(self, key: QueryKey) -> Iterator[None]:
        """Remember what is deleted during a step of a query, whose responses may be stored after a later deletion."""
        with self._lock:
            self._gone[key] = {}
        try:
            yield
        finally:
            with self._lock:
                del self._gone[key]

    def query_seen(self, body: Mapping[str, Any]) -> QueryKey:
        """Store the observed version of a query; return its key."""
        key, now = QueryKey(body["metadata"]["namespace"], body["metadata"]["name"]), KeptObject(body)
        with self._lock:
            if self._is_gone(key, now):
                return key
            record = self._records[key]
            record.query = self._newer(key, record, record.query, now)
            if record.memory is None or record.memory.uid != record.query.uid:
                record.memory = QueryMemory(record.query.uid)
            self._make_room(key, record)
            if record.query is now:
                self.connections.refers(*key, body)
        return key

    def query_gone(self, body: Mapping[str, Any]) -> QueryKey:
        """Remove a deleted query; return its key."""
        key = QueryKey(body["metadata"]["namespace"], body["metadata"]["name"])
        with self._lock:
            self._note_gone(key, body)
            record = self._records[key]
            if record.query is not None and record.query.uid == body["metadata"]["uid"]:
                self._count(key, -len(record.query))
                record.query = record.memory = None
            if record.query is None:
                self.connections.forget(*key)
            self._drop_if_empty(key, record)
        return key

    def connection_seen(self, body: Manifest) -> list[QueryKey]:
        """Store a Connection; return the queries that refer to it if it leads to something else now."""
        return self._referring_to(body) if self.connections.seen(body) else []

    def connection_gone(self, body: Manifest) -> list[QueryKey]:
        """Remove a deleted Connection; return the queries that refer to it, if there was it."""
        return self._referring_to(body) if self.connections.gone(body) else []

    def object_seen(self, body: Manifest) -> QueryKey:
        """Store an object with a query's label; return the query's key."""
        key, failed, now = _query_of(body), FailedExecutor.of(body), KeptObject(body)
        with self._lock:
            if body["kind"] == POD_GROUP:
                self._note_unwatched(key, body)
                return key
            if self._is_gone(key, now):
                return key
            record, at = self._records[key], _key_of(body)
            record.objects[at] = self._newer(key, record, record.objects.get(at), now)
            self._make_room(key, record)
            if failed is not None and all(each.uid != failed.uid for each in record.failed):
                record.failed = (*record.failed, failed)[-MOST_KEPT:]
        return key

    def object_gone(self, body: Manifest) -> QueryKey:
        """Remove a deleted object; return the key of its query."""
        key = _query_of(body)
        with self._lock:
            self._note_gone(key, body)
            record, at = self._records[key], _key_of(body)
            found = record.objects.get(at)
            if found is not None and found.uid == body["metadata"]["uid"]:  # not a later one of the same name
                del record.objects[at]
                self._count(key, -len(found))
            self._drop_if_empty(key, record)
        return key

    def is_stored(self, body: Mapping[str, Any]) -> bool:
        """Return whether this very version of a query, or of an object of one, is stored already.

        The operator stores what its own changes return; a later report of them by a watch has nothing new.
        """
        metadata = body["metadata"]
        with self._lock:
            if body.get("kind") == KIND:
                found = self._record(QueryKey(metadata["namespace"], metadata["name"])).query
            else:
                found = self._record(_query_of(body)).objects.get(_key_of(body))
        return found is not None and found.is_version(metadata)

    def limit_seen(self, body: Manifest) -> None:
        """Store a ResourceQuota or a LimitRange, as far as there is room for it."""
        key, metadata = _key_of(body), {name: body["metadata"].get(name) for name in _IDENTIFYING}
        now = KeptObject({name: body.get(name) for name in ("kind", "spec", "status")} | {"metadata": metadata})
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
            record = self._record(key)
            found, objects = record.query, dict(record.objects)
            objects |= {} if record.memory is None else record.memory.unwatched
            limits = list(self._limits.get(key.namespace, {}).values())
            failed, is_kept = record.failed, record.is_kept
        if found is None:
            return None
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
            reports_until=self._clock() + _CLOCKS_DIFFER,
        )

    def memory_of(self, key: QueryKey, uid: str) -> QueryMemory:
        """Return the memory of the query with this uid; of one that is gone, an empty one."""
        with self._lock:
            found = self._record(key).memory
        return QueryMemory(uid) if found is None or found.uid != uid else found

    def has_room(self, key: QueryKey) -> bool:
        """Return whether a query that was not kept may be read again."""
        with self._lock:
            return self._bytes.get(key.namespace, 0) < _ROOM * self._most

    def read_again(self, key: QueryKey, query: Mapping[str, Any], objects: Iterable[Manifest]) -> None:
        """Store a query that was not kept, with its objects as they are read, as long as there is room for them."""
        with self._lock:
            self._record(key).is_kept = True
        self.query_seen(query)
        for each in objects:
            self.object_seen(each)
            if not self._record(key).is_kept:
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
            return [key for key, record in self._records.items() if record.query is not None]

    def kept_queries(self) -> list[tuple[QueryKey, KeptObject]]:
        """Return all queries but the canaries as they are kept; a changed query is another object."""
        with self._lock:
            found = [(key, record.query) for key, record in self._records.items() if record.query is not None]
        return [(key, each) for key, each in found if not each.is_canary]

    def memories(self, namespace: str) -> list[tuple[str, QueryMemory]]:
        """Return the memories of the queries of a namespace, with their names."""
        with self._lock:
            found = [(key.name, each.memory) for key, each in self._records.items() if key.namespace == namespace]
        return [(name, memory) for name, memory in found if memory is not None]

    def versions(self) -> list[tuple[QueryKey, object, QueryMemory]]:
        """Return all queries with their memory; the value between changes when the query or an object of it does."""
        with self._lock:
            return [
                (key, (record.query, *record.objects.values()), record.memory)
                for key, record in self._records.items()
                if record.memory is not None
            ]

    def generation(self, key: QueryKey) -> int | None:
        """Return the generation of a query's spec, or None if the query no longer exists."""
        with self._lock:
            found = self._record(key).query
        return None if found is None else found.generation

    def phases(self) -> list[str]:
        """Return the last reported phase of each query but the canaries; Pending if none was reported."""
        with self._lock:
            found = [record.query for record in self._records.values() if record.query is not None]
        return [each.phase for each in found if not each.is_canary]

    def _referring_to(self, connection: Manifest) -> list[QueryKey]:
        metadata = connection["metadata"]
        names = self.connections.referring_to(metadata["namespace"], metadata["name"])
        return [QueryKey(metadata["namespace"], name) for name in names]

    def _record(self, key: QueryKey) -> _SeenQuery:
        """Return what is known of a query, without adding it."""
        return self._records.get(key) or _SeenQuery()

    def _note_unwatched(self, key: QueryKey, body: Manifest) -> None:
        """Remember an object that no watch reports for as long as its query exists, as nothing reports its end."""
        memory = self._record(key).memory
        if memory is not None and any(each["uid"] == memory.uid for each in body["metadata"]["ownerReferences"]):
            memory.unwatched[_key_of(body)] = KeptObject(body)

    def _note_gone(self, key: QueryKey, body: Mapping[str, Any]) -> None:
        """Remember the version at which an object was deleted, if a response may be on its way."""
        if key in self._gone:
            self._gone[key][body["metadata"]["uid"]] = version_in(body["metadata"])

    def _is_gone(self, key: QueryKey, now: KeptObject) -> bool:
        """Return whether an object was deleted after this version of it.

        What the operator may not read any more counts as deleted, too, and comes back in the version that it had.
        """
        gone = self._gone.get(key, {}).get(now.uid)
        return gone is not None and now.version is not None and now.version < gone

    def _newer(self, key: QueryKey, record: _SeenQuery, before: KeptObject | None, now: KeptObject) -> KeptObject:
        """Return the newer version of a query or an object of it, and count it."""
        if before is not None and now.is_older_than(before):
            return before
        if not record.is_kept:
            now = now.reduced()
        self._count(key, len(now) - (0 if before is None else len(before)))
        return now

    def _make_room(self, key: QueryKey, record: _SeenQuery) -> None:
        """Keep no more of a query than the names of its objects if its namespace has too much."""
        if not record.is_kept or self._bytes.get(key.namespace, 0) <= self._most:
            return
        record.is_kept = False
        if record.query is not None:
            record.query = self._newer(key, record, record.query, record.query)
        for at, each in record.objects.items():
            record.objects[at] = self._newer(key, record, each, each)

    def _count(self, key: QueryKey, more: int) -> None:
        self._bytes[key.namespace] += more
        if not self._bytes[key.namespace]:
            del self._bytes[key.namespace]

    def _drop_if_empty(self, key: QueryKey, record: _SeenQuery) -> None:
        if record.query is None and not record.objects:
            del self._records[key]


def _query_of(body: Mapping[str, Any]) -> QueryKey:
    metadata = body["metadata"]
    return QueryKey(metadata["namespace"], metadata["labels"][QUERY_LABEL])


def _key_of(body: Mapping[str, Any]) -> ObjectKey:
    return body["kind"], body["metadata"]["name"]
