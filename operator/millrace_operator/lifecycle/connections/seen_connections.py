"""Connections as last seen, and the queries that refer to them."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from millrace_api.validation.connections import MOST_SUGGESTED, references

from ...resources.names import Manifest
from ..objects.kept_object import KeptObject
from .referred_connections import MOST_BYTES_OF_CONNECTIONS, ReferredConnections, brokers_in

_ROOM = 0.9
"""Share of these bytes below which Connections are read again that were not kept."""


class _SeenConnection(NamedTuple):
    """A Connection and its brokers; without room for it, only what identifies it, and None."""

    kept: KeptObject
    brokers: str | None

    @property
    def whole(self) -> KeptObject | None:
        """The Connection; None if it is not kept."""
        return None if self.brokers is None else self.kept

    @property
    def size(self) -> int:
        """Bytes that it counts."""
        return 0 if self.brokers is None else len(self.kept)

    @property
    def version(self) -> tuple[str, int, bool]:
        """A value that changes when it leads to something else, also to nothing for want of room."""
        return self.kept.uid, self.kept.generation, self.brokers is None


class SeenConnections:
    """Cache of all Connections, and of the names that queries refer to. All methods may be called from any thread."""

    def __init__(self) -> None:
        self.on_brokers: Callable[[str], None] = lambda namespace: None
        """Called with the namespace of a Connection that names other brokers than before, or is new or gone."""
        self._lock = threading.Lock()
        self._entries: defaultdict[str, dict[str, _SeenConnection]] = defaultdict(dict)
        """Connections by namespace and name."""
        self._bytes: defaultdict[str, int] = defaultdict(int)
        """Bytes that are kept, by namespace; summed up for each event, many Connections would take quadratic time."""
        self._names: defaultdict[str, dict[str, frozenset[str]]] = defaultdict(dict)
        """Names that a query refers to, by the query's namespace and name."""

    def seen(self, body: Manifest) -> bool:
        """Store a Connection, as far as there is room for it, unless a newer version is stored.

        Returns whether it leads to something else now: its labels, for example, are of no interest to queries.
        """
        metadata, now = body["metadata"], KeptObject(body)
        namespace, name = metadata["namespace"], metadata["name"]
        with self._lock:
            found = self._entries[namespace]
            before = found.get(name)
            if before is not None and now.is_older_than(before.kept):
                return False
            size = self._bytes[namespace] - (0 if before is None else before.size)
            has_room = size + len(now) <= MOST_BYTES_OF_CONNECTIONS
            after = found[name] = (
                _SeenConnection(now, brokers_in(body)) if has_room else _SeenConnection(now.reduced(), None)
            )
            self._bytes[namespace] = size + after.size
        if before is None or before.brokers != after.brokers:
            self.on_brokers(namespace)
        return before is None or before.version != after.version

    def gone(self, body: Manifest) -> bool:
        """Remove a deleted Connection, unless a later one of the same name is stored; return whether it is removed."""
        metadata = body["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        with self._lock:
            found = self._entries.get(namespace, {})
            if name not in found or found[name].kept.uid != metadata["uid"]:
                return False
            self._bytes[namespace] -= found.pop(name).size
            if not found:
                del self._entries[namespace], self._bytes[namespace]
        self.on_brokers(namespace)
        return True

    def has_room(self, namespace: str) -> bool:
        """Return whether a Connection that was not kept may be read again."""
        with self._lock:
            return self._bytes.get(namespace, 0) < _ROOM * MOST_BYTES_OF_CONNECTIONS

    def refers(self, namespace: str, query: str, body: Mapping[str, Any]) -> None:
        """Store which names a query refers to."""
        names = frozenset(name for _, name in references(body))
        if not names:
            self.forget(namespace, query)
            return
        with self._lock:
            self._names[namespace][query] = names

    def forget(self, namespace: str, query: str) -> None:
        """Forget what a query refers to."""
        with self._lock:
            found = self._names.get(namespace, {})
            found.pop(query, None)
            if not found:
                self._names.pop(namespace, None)

    def referring_to(self, namespace: str, name: str) -> list[str]:
        """Return the queries that refer to a Connection."""
        with self._lock:
            return [query for query, names in self._names.get(namespace, {}).items() if name in names]

    def of(self, namespace: str, names: Iterable[str]) -> ReferredConnections:
        """Return what a query that refers to these names needs of its namespace."""
        wanted = tuple(sorted(set(names)))
        now = partial(self.now, namespace)
        if not wanted:
            return ReferredConnections(now=now)
        with self._lock:
            known = self._entries.get(namespace, {})
            found = {name: known[name].whole for name in wanted if name in known}
            return ReferredConnections(found, wanted, tuple(islice(known, MOST_SUGGESTED)), now)

    def now(self, namespace: str, name: str) -> KeptObject | None:
        """Return a Connection; None if it does not exist, or is not kept."""
        with self._lock:
            found = self._entries.get(namespace, {}).get(name)
        return None if found is None else found.whole

    def brokers_of(self, namespace: str, name: str) -> str | None:
        """Return the brokers that a Connection names, unchecked; None if it does not exist, or is not kept."""
        with self._lock:
            found = self._entries.get(namespace, {}).get(name)
        return None if found is None else found.brokers

    def kept_bytes(self) -> dict[str, int]:
        """Return the bytes that are kept, by namespace."""
        with self._lock:
            return dict(self._bytes)
